//! Requests, changes and notifications of the kernel's routing (rtnetlink(7)), and questions about IPsec, with attributes left as
//! octets: what is not understood is preserved.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname,
    recv, sendto, socket,
};
use rustix::net::{netlink, socket_with};
use uncork_high::high;

/// The kernel's dumps come in datagrams of at most this size (NLMSG_GOODSIZE and more).
const ANSWER_BYTES: usize = 256 * 1024;
const HEAD_BYTES: usize = 16;
/// Messages and attributes begin at multiples of this (NLMSG_ALIGN, NLA_ALIGN).
const ALIGNMENT: usize = 4;

// linux/netlink.h
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// The dumped table has changed meanwhile: some of it may be missing.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// How often a dump is tried.
const DUMPS: u32 = 10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Replace an existing object; together with [`CREATE`] also create it.
pub const REPLACE: u16 = 0x100;
/// Fail if it exists.
pub const EXCLUSIVE: u16 = 0x200;
/// Create it.
pub const CREATE: u16 = 0x400;
/// Append it to the existing ones.
pub const APPEND: u16 = 0x800;

/// A netlink socket, in the thread's network namespace.
#[derive(Debug)]
pub struct Line {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Line {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { fd: high(fd), buffer: vec![0; ANSWER_BYTES] })
    }

    /// Opens a socket for questions about IPsec (NETLINK_XFRM).
    ///
    /// # Errors
    ///
    /// The kernel's error: EPROTONOSUPPORT if it has no IPsec.
    pub fn of_ipsec() -> io::Result<Self> {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (family, raw) = (rustix::net::AddressFamily::NETLINK, rustix::net::SocketType::RAW);
        let fd = socket_with(family, raw, flags, Some(netlink::XFRM))?;
        Ok(Self { fd: high(fd), buffer: vec![0; ANSWER_BYTES] })
    }

    /// Returns all answers to a request, without their headers.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 1..DUMPS {
            self.send(kind, NLM_F_DUMP, body)?;
            match self.receive(true) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answers => return answers,
            }
        }
        self.send(kind, NLM_F_DUMP, body)?;
        self.receive(true)
    }

    /// Returns the only answer to a request.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn get(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.send(kind, NLM_F_ACK, body)?;
        self.receive(false)?.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Requests a change.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn order(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, NLM_F_ACK | flags, body)?;
        self.receive(false).map(drop)
    }

    fn send(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(HEAD_BYTES + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        // One request at a time: no sequence number is needed. The kernel fills in the sender's port.
        message.extend([0; 8]);
        message.extend(body);
        sendto(self.fd.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&mut self, dump: bool) -> io::Result<Vec<Vec<u8>>> {
        let mut bodies = Vec::new();
        let mut whole = true;
        loop {
            let bytes = recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty())?;
            let mut rest = &self.buffer[..bytes];
            while let Some((message, after)) = Message::first(rest) {
                whole &= !dump || message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE if !whole => return Err(io::ErrorKind::Interrupted.into()),
                    NLMSG_DONE => return Ok(bodies),
                    NLMSG_ERROR => {
                        match number(message.body, 0).map_or(-(Errno::EIO as i32), u32::cast_signed)
                        {
                            0 => return Ok(bodies),
                            code => return Err(io::Error::from_raw_os_error(-code)),
                        }
                    }
                    _ => bodies.push(message.body.to_vec()),
                }
                rest = after;
            }
            if bytes == 0 || (!dump && bodies.is_empty()) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Notifications of the kernel: messages of multicast groups (RTNLGRP_*).
#[derive(Debug)]
pub struct News {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl News {
    /// Subscribes to groups, which are numbered from 1 to 32. Reading does not block.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn of(groups: &[u32]) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let route = SockProtocol::NetlinkRoute;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, mask(groups)))?;
        Ok(Self { fd: high(fd), buffer: vec![0; ANSWER_BYTES] })
    }

    /// Subscribes to these groups from now on, and to no others.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn subscribe(&self, groups: &[u32]) -> io::Result<()> {
        let port = getsockname::<NetlinkAddr>(self.fd.as_raw_fd())?.pid();
        Ok(bind(self.fd.as_raw_fd(), &NetlinkAddr::new(port, mask(groups)))?)
    }

    /// Passes the messages of one datagram to `tell`, with their types; returns whether there was one.
    ///
    /// # Errors
    ///
    /// ENOBUFS if some were lost, as they were not read in time: the state that they were about has to be
    /// asked for. Otherwise the kernel's error.
    pub fn receive(&mut self, mut tell: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        let bytes = match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            received => received?,
        };
        let mut rest = &self.buffer[..bytes];
        while let Some((message, after)) = Message::first(rest) {
            tell(message.kind, message.body);
            rest = after;
        }
        Ok(true)
    }
}

fn mask(groups: &[u32]) -> u32 {
    groups.iter().fold(0, |mask, group| mask | 1 << (group - 1))
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for News {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the first message, and what follows it.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = number(bytes, 0)? as usize;
        let short = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let message =
            Self { kind: short(4)?, flags: short(6)?, body: bytes.get(HEAD_BYTES..length)? };
        Some((message, bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default()))
    }
}

/// Reads a number of four octets at this offset.
#[must_use]
pub fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a number of eight octets at this offset.
#[must_use]
pub fn long_number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns the attributes by type. The two highest bits of a type are flags (NLA_TYPE_MASK).
#[must_use]
pub fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    let head =
        |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    while let (Some(length), Some(kind)) = (head(bytes, 0), head(bytes, 2)) {
        let length = usize::from(length);
        let Some(value) = bytes.get(4..length) else { break };
        found.push((kind & 0x3fff, value));
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    found
}

/// Returns the value of the attribute of this type.
#[must_use]
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).into_iter().find(|(other, _)| *other == kind).map(|(_, value)| value)
}

/// Appends an attribute.
pub fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_written_as_they_are_read() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, b"eth0\0");
        push(&mut bytes, 41, &6000_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 12 + 8);
        let expected: [(u16, &[u8]); 2] = [(3, b"eth0\0"), (41, &6000_u32.to_ne_bytes())];
        assert_eq!(attributes(&bytes), expected);
        assert_eq!(attribute(&bytes, 41).and_then(|value| number(value, 0)), Some(6000));
        assert_eq!(attributes(&bytes[..17]).len(), 1);
    }

    #[test]
    fn the_kernel_s_refusal_is_an_error() {
        let mut line = Line::open().unwrap();
        // RTM_GETLINK of a device that cannot exist.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = line.get(18, &body).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ENODEV as i32));
        assert!(!line.dump(18, &[0; 16]).unwrap().is_empty());
    }
}
