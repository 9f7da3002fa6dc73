//! What becomes of the devices: that something has, the kernel says (rtnetlink(7)), and then it is looked what.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// linux/rtnetlink.h: all that has to do with devices themselves.
const RTMGRP_LINK: u32 = 1;
/// What is said is not read, and may be cut off.
const NEWS_BYTES: usize = 512;
/// So much is heard in one go.
const AT_ONCE: usize = 1024;

/// Hears of it.
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

    /// It has been heard. That more was said than there was room for is news, too, and over when it is read.
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
