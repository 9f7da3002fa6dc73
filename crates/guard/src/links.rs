//! Changes to devices: the kernel only announces that there was one (rtnetlink(7)), and then its nature is looked up.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// linux/rtnetlink.h: messages about devices themselves.
const RTMGRP_LINK: u32 = 1;
/// Messages are not interpreted, and may be cut off.
const NEWS_BYTES: usize = 512;
/// How many messages are received in one go.
const AT_ONCE: usize = 1024;

/// A netlink socket that hears of changes to devices.
#[derive(Debug)]
pub(crate) struct Links(OwnedFd);

impl Links {
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = SockType::Raw;
        let line = socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
        bind(line.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
        Ok(Self(line))
    }

    /// Discards all messages, as they were noticed. An overflow (ENOBUFS) is news, too, and is cleared by being read.
    pub(crate) fn silence(&self) {
        let mut news = [0; NEWS_BYTES];
        for _ in 0..AT_ONCE {
            match recv(self.0.as_raw_fd(), &mut news, MsgFlags::empty()) {
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for Links {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
