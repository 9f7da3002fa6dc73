//! Peers: processes that are connected to the guardian.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use uncork_guardian::channel;
use uncork_guardian::{Answer, Question, Reply};

use crate::session::Session;
use uncork_closing::{ClosedApart, Closing};

/// How many messages may wait for a peer, at most: more than an instance has ports.
const UNSAID: usize = 1 << 16;

/// A process that has connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: ClosedApart,
    /// A pidfd of the process that has connected; none if it is in another PID namespace and cannot be seen. It announces the
    /// process's end even if a child has inherited the connection.
    pub(crate) process: Option<OwnedFd>,
    /// Its process id, if it can be seen.
    pub(crate) pid: Option<u32>,
    /// Its user when it connected.
    pub(crate) uid: Option<u32>,
    pub(crate) since: Instant,
    /// Set when it is gone and is to be buried.
    pub(crate) is_lost: bool,
    /// `None` until it has sent the token.
    pub(crate) session: Option<Session>,
    /// Messages that it has not taken yet. An instance is sent much that it has not asked for, and may be busy.
    unsaid: VecDeque<(Answer, Option<OwnedFd>)>,
}

/// A question, and the descriptor that came with it.
pub(crate) struct Heard {
    pub(crate) question: Question,
    pub(crate) descriptor: Option<ClosedApart>,
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd, closing: &Closing) -> Self {
        let credentials = getsockopt(&socket, sockopt::PeerCredentials).ok();
        let uid = credentials.map(|peer| peer.uid());
        let pid = credentials.and_then(|peer| Pid::from_raw(peer.pid()));
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let pid = pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        let (since, unsaid) = (Instant::now(), VecDeque::new());
        let socket = ClosedApart::emptied(socket, &closing.of(uid));
        let (is_lost, session) = (false, None);
        Self { socket, process, pid, uid, since, is_lost, session, unsaid }
    }

    /// Tells whether it has ended or hung up, and only remains to be buried.
    pub(crate) fn is_gone(&self) -> bool {
        let ended = |process| glance(process).contains(PollFlags::IN);
        self.process.as_ref().is_some_and(ended) || glance(&self.socket).contains(PollFlags::HUP)
    }

    /// Tells whether it has sent something that was not received yet.
    pub(crate) fn has_spoken(&self) -> bool {
        glance(&self.socket) == PollFlags::IN
    }

    /// Returns the next question and leaves it queued, with what may have come with it; an error if the peer is gone, or sends
    /// something unintelligible.
    pub(crate) fn listen(&self) -> io::Result<Option<Question>> {
        match channel::glance(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            said => Ok(Some(question(&said?)?)),
        }
    }

    /// Receives the next question; an error if the peer is gone, or sends something unintelligible.
    pub(crate) fn hear(&self, closing: &Closing) -> io::Result<Option<Heard>> {
        let came = match channel::receive_all(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            came => came?,
        };
        let closing = closing.of(self.uid);
        let descriptor = came.descriptor.map(|passed| ClosedApart::new(passed, &closing));
        came.surplus.into_iter().for_each(|passed| closing.close(passed));
        if came.is_cut {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(Heard { question: question(&came.bytes)?, descriptor }))
    }

    /// Answers a question. A peer that does not take its answers is as good as gone.
    pub(crate) fn answer(
        &self,
        id: u32,
        reply: Reply,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        channel::send(self.socket.as_fd(), &Answer { id, reply }, descriptor, SendFlags::DONTWAIT)
    }

    /// Tells whether messages wait until the peer takes them.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Sends a message as [`Peer::answer`] does, but what the peer cannot take now waits, and all after it.
    pub(crate) fn say(
        &mut self,
        id: u32,
        reply: Reply,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<()> {
        if self.unsaid.len() >= UNSAID {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unsaid.push_back((Answer { id, reply }, descriptor));
        self.catch_up()
    }

    /// Sends what waits, as far as the peer takes it.
    pub(crate) fn catch_up(&mut self) -> io::Result<()> {
        while let Some((answer, descriptor)) = self.unsaid.front() {
            let descriptor = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
            match channel::send(self.socket.as_fd(), answer, descriptor, SendFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                said => said?,
            }
            self.unsaid.pop_front();
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer is to notice now, whenever the socket is closed.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

fn question(said: &[u8]) -> io::Result<Question> {
    if said.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(said)?)
}

/// Returns what poll(2) says of a descriptor at this moment.
fn glance(descriptor: &impl AsFd) -> PollFlags {
    let mut asked = [PollFd::new(descriptor, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut asked, Some(&now)) {
        Ok(_) => asked[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}
