//! The kernel's data about a device: what it has sent, what waits in its queue, which connections use it.

use std::io;
use std::net::IpAddr;

use crate::Error;
use crate::change::link::Device;
use crate::netns::Handle;
use uncork_netlink::{Line, attribute, long_number, number, push};

// linux/rtnetlink.h, linux/if_link.h, linux/gen_stats.h
const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTM_GETQDISC: u16 = 38;
const IFLA_STATS64: u16 = 23;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// `struct ifinfomsg`, `struct tcmsg`, `struct rtmsg`.
const LINK_HEAD_BYTES: usize = 16;
const QUEUE_HEAD_BYTES: usize = 20;
const ROUTE_HEAD_BYTES: usize = 12;
/// Offset of `tx_bytes` in `struct rtnl_link_stats64`, of the backlog in `struct gnet_stats_queue`.
const SENT_AT: usize = 24;
const BACKLOG_AT: usize = 4;
/// Offset of the parent in `struct tcmsg`, and the value that stands for a device's root there.
const PARENT_AT: usize = 12;
const TC_H_ROOT: u32 = u32::MAX;

/// A netlink socket for one device. It stays with the namespace in which it was opened, whichever
/// thread uses it.
pub struct Meter {
    line: Line,
    index: i32,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Meter {
    /// Opens one for the device of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(handle: &Handle, name: &str) -> Result<Self, Error> {
        let index = Device::named(handle, name)?.index;
        let line = handle.within(Line::open)?;
        let line = line.map_err(|error| Error::Netlink { what: "rtnetlink".to_owned(), error })?;
        Ok(Self { line, index })
    }

    /// Returns the device's index.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Returns what it has sent since it was created, in bytes. Trains of segments count as they
    /// were handed to it, so that a virtual device counts a train's headers once.
    ///
    /// # Errors
    /// If it is gone.
    pub fn sent_bytes(&mut self) -> Result<u64, Error> {
        let mut head = vec![0; LINK_HEAD_BYTES];
        head[4..8].copy_from_slice(&self.index.to_ne_bytes());
        let asked = self.line.get(RTM_GETLINK, &head);
        let answer = asked.map_err(|error| failed("the device's counters", error))?;
        let attributes = answer.get(LINK_HEAD_BYTES..).unwrap_or_default();
        let sent = attribute(attributes, IFLA_STATS64).and_then(|all| long_number(all, SENT_AT));
        sent.ok_or_else(|| failed("the device's counters", io::ErrorKind::InvalidData.into()))
    }

    /// Returns what waits in its queueing discipline, with headers; `None` if it has none (`noqueue`).
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn backlog_bytes(&mut self) -> Result<Option<u64>, Error> {
        let all = self.line.dump(RTM_GETQDISC, &[0; QUEUE_HEAD_BYTES]);
        let all = all.map_err(|error| failed("the queueing disciplines", error))?;
        let at_root = |answer: &&Vec<u8>| {
            number(answer, 4) == Some(self.index.cast_unsigned())
                && number(answer, PARENT_AT) == Some(TC_H_ROOT)
        };
        Ok(all.iter().find(at_root).and_then(|answer| backlog(answer)))
    }

    /// Returns the device that leads from an address of this host to another's; `None` if there is
    /// no route (any more).
    pub fn towards(&mut self, local: IpAddr, remote: IpAddr) -> Option<i32> {
        let answer = self.line.get(RTM_GETROUTE, &route_question(local, remote)).ok()?;
        let index = attribute(answer.get(ROUTE_HEAD_BYTES..)?, RTA_OIF)?;
        number(index, 0).map(u32::cast_signed)
    }
}

fn failed(what: &str, error: io::Error) -> Error {
    Error::Netlink { what: what.to_owned(), error }
}

fn backlog(answer: &[u8]) -> Option<u64> {
    let stats = attribute(answer.get(QUEUE_HEAD_BYTES..)?, TCA_STATS2)?;
    number(attribute(stats, TCA_STATS_QUEUE)?, BACKLOG_AT).map(u64::from)
}

fn route_question(local: IpAddr, remote: IpAddr) -> Vec<u8> {
    // IPv6 sockets have IPv4 addresses in mapped form.
    let (local, remote) = (local.to_canonical(), remote.to_canonical());
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let family = if remote.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let bits = if remote.is_ipv4() { 32 } else { 128 };
    let mut question = vec![0; ROUTE_HEAD_BYTES];
    question[0] = u8::try_from(family).unwrap_or_default();
    question[1] = bits;
    question[2] = bits;
    push(&mut question, RTA_DST, &octets(remote));
    push(&mut question, RTA_SRC, &octets(local));
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loopback_sends_is_counted_and_leads_to_oneself() {
        let mut meter = Meter::open(&Handle::own().unwrap(), "lo").unwrap();
        let before = meter.sent_bytes().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        assert!(meter.sent_bytes().unwrap() >= before + 1000);
        let own: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(meter.towards(own, own), Some(meter.index()));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        assert_eq!(meter.towards(mapped, mapped), Some(meter.index()));
        // No host has this address, so nothing leaves from it.
        assert_eq!(meter.towards("192.0.2.77".parse().unwrap(), own), None);
    }
}
