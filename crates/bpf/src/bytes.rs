//! Reading the C structures that the programs of `src/bpf` write, member by member.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use uncork_doctor::live::{Ends, Who};
use uncork_wire::Endpoint;

/// Reads one member after another. Past the end every member is zero, and [`Bytes::short`] returns true.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    short: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, short: false }
    }

    /// Whether more was read than there was.
    pub(crate) fn short(&self) -> bool {
        self.short
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                *taken
            }
            None => {
                self.short = true;
                [0; N]
            }
        }
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_ne_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// Returns this many octets, or those that are left if there are fewer.
    pub(crate) fn rest(&mut self, octets: usize) -> &'a [u8] {
        self.short |= octets > self.rest.len();
        let (taken, rest) = self.rest.split_at(octets.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Reads nanoseconds in a `__u64`.
    pub(crate) fn ns(&mut self) -> Duration {
        Duration::from_nanos(self.u64())
    }

    /// Reads microseconds in a `__u32`.
    pub(crate) fn us(&mut self) -> Duration {
        Duration::from_micros(self.u32().into())
    }

    /// Reads the time of an event; `None` if it is zero, because nothing happened.
    pub(crate) fn some_ns(&mut self) -> Option<Duration> {
        Some(self.ns()).filter(|time| !time.is_zero())
    }

    pub(crate) fn u32s<const N: usize>(&mut self) -> [u32; N] {
        std::array::from_fn(|_| self.u32())
    }

    pub(crate) fn u64s<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.u64())
    }

    /// Reads a `struct who`.
    pub(crate) fn who(&mut self) -> Who {
        let (pid, tid) = (self.u32(), self.u32());
        let comm: [u8; 16] = self.take();
        let length = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        let name = String::from_utf8_lossy(&comm[..length]).into_owned();
        Who { pid, tid, name }
    }

    /// Reads a `struct tuple`.
    pub(crate) fn ends(&mut self) -> Ends {
        let (local, remote): ([u8; 16], [u8; 16]) = (self.take(), self.take());
        let (local_port, remote_port) = (self.u16(), self.u16());
        let six = self.u16() == AF_INET6;
        let _padding = self.u16();
        Ends {
            local: Endpoint { address: address(local, six), port: local_port },
            remote: Endpoint { address: address(remote, six), port: remote_port },
        }
    }
}

const AF_INET6: u16 = 10;

/// Converts an address from the kernel's form, in network byte order.
fn address(bytes: [u8; 16], six: bool) -> IpAddr {
    if six {
        return IpAddr::V6(Ipv6Addr::from(bytes));
    }
    let [a, b, c, d, ..] = bytes;
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}
