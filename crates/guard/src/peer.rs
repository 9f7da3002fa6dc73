//! Who is connected to the guardian.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use uncork_guardian::channel;
use uncork_guardian::{Answer, Question, Reply};

use crate::session::Session;

/// Somebody who has connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: OwnedFd,
    /// The process that has connected; it may be one of another namespace, which cannot be seen. Its
    /// end is told by this even where a child of its has inherited the connection.
    pub(crate) process: Option<OwnedFd>,
    /// Its number, if it can be seen.
    pub(crate) pid: Option<u32>,
    pub(crate) since: Instant,
    /// Nothing until he has said the token.
    pub(crate) session: Option<Session>,
}

/// A question, and the descriptor that came with it.
pub(crate) struct Heard {
    pub(crate) question: Question,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let pid = getsockopt(&socket, sockopt::PeerCredentials)
            .ok()
            .and_then(|peer| Pid::from_raw(peer.pid()));
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let pid = pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        Self { socket, process, pid, since: Instant::now(), session: None }
    }

    /// Whether something of his has come that was not heard yet.
    pub(crate) fn has_spoken(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&now)).is_ok_and(|_| asked[0].revents() == PollFlags::IN)
    }

    /// The next question; an error if he is gone, or talks what nobody understands.
    pub(crate) fn hear(&self) -> io::Result<Option<Heard>> {
        let came = match channel::receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            came => came?,
        };
        if came.bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let question = serde_json::from_slice(&came.bytes)?;
        Ok(Some(Heard { question, descriptor: came.descriptor }))
    }

    /// Answers. Who does not take his answers is as good as gone.
    pub(crate) fn answer(
        &self,
        id: u32,
        reply: Reply,
        descriptor: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let descriptor = descriptor.map(|descriptor| descriptor.as_fd());
        channel::send(self.socket.as_fd(), &Answer { id, reply }, descriptor, SendFlags::DONTWAIT)
    }
}
