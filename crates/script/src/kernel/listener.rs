//! Packets that the host sends, with the kernel's own time stamps.

use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use uncork_wire::{Protocol, ipv4};

use crate::conversation::HOST;
use crate::host::{HostError, Sent};

/// A packet socket that receives everything into and out of this namespace.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    began: SystemTime,
}

impl Wire {
    pub(super) fn open(began: SystemTime) -> Result<Self, HostError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let every = SockProtocol::EthAll;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, every)
            .map_err(HostError::system("open a packet socket"))?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)
            .map_err(HostError::system("have packets stamped"))?;
        Ok(Self { socket, began })
    }

    /// Returns the next packet of the host's TCP, waiting until `until`.
    pub(super) fn next(&self, until: Duration) -> Result<Option<Sent>, HostError> {
        loop {
            match self.take() {
                Ok(Some(sent)) => return Ok(Some(sent)),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_sub(self.began.elapsed().unwrap_or_default());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    self.wait(left)?;
                }
                Err(error) => {
                    return Err(HostError::System { doing: "read what was sent", error });
                }
            }
        }
    }

    fn wait(&self, left: Duration) -> Result<(), HostError> {
        let mut watched = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // Rounded up, or the wait would become a busy loop.
        let millis = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(HostError::system("wait for what is sent")(error)),
        }
    }

    /// Returns a packet, if it is one of the host's TCP.
    fn take(&self) -> std::io::Result<Option<Sent>> {
        let mut bytes = vec![0; usize::from(u16::MAX)];
        let mut stamps = nix::cmsg_space!(TimeSpec);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut into, Some(&mut stamps), MsgFlags::MSG_DONTWAIT)?;
        let stamp = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        let length = message.bytes;
        bytes.truncate(length);
        let ours = ipv4::Header::read(&bytes)
            .is_ok_and(|(ip, _)| ip.source == HOST && ip.protocol == Protocol::TCP);
        let at = stamp.and_then(|stamp| (UNIX_EPOCH + stamp).duration_since(self.began).ok());
        Ok(ours.then(|| Sent { at: at.unwrap_or_default(), bytes }))
    }
}
