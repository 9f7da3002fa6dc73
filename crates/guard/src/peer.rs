//! Who is connected to the guardian.

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

/// What may wait to be told, at the most: more than an instance has ports.
const UNSAID: usize = 1 << 16;

/// Somebody who has connected.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: ClosedApart,
    /// The process that has connected; it may be one of another namespace, which cannot be seen. Its
    /// end is told by this even where a child of its has inherited the connection.
    pub(crate) process: Option<OwnedFd>,
    /// Its number, if it can be seen.
    pub(crate) pid: Option<u32>,
    /// Whose he was when he came.
    pub(crate) uid: Option<u32>,
    pub(crate) since: Instant,
    /// He is gone, and is to be buried.
    pub(crate) is_lost: bool,
    /// Nothing until he has said the token.
    pub(crate) session: Option<Session>,
    /// What he has not taken yet. An instance is told much that it has not asked for, and may be at something else.
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

    /// Whether he has ended or hung up, and has only to be buried.
    pub(crate) fn is_gone(&self) -> bool {
        let ended = |process| glance(process).contains(PollFlags::IN);
        self.process.as_ref().is_some_and(ended) || glance(&self.socket).contains(PollFlags::HUP)
    }

    /// Whether something of his has come that was not heard yet.
    pub(crate) fn has_spoken(&self) -> bool {
        glance(&self.socket) == PollFlags::IN
    }

    /// The next question, which stays to be heard, with what may have come with it; an error if he is gone, or talks what
    /// nobody understands.
    pub(crate) fn listen(&self) -> io::Result<Option<Question>> {
        match channel::glance(self.socket.as_fd(), RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            said => Ok(Some(question(&said?)?)),
        }
    }

    /// The next question; an error if he is gone, or talks what nobody understands.
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

    /// Answers. Who does not take his answers is as good as gone.
    pub(crate) fn answer(
        &self,
        id: u32,
        reply: Reply,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        channel::send(self.socket.as_fd(), &Answer { id, reply }, descriptor, SendFlags::DONTWAIT)
    }

    /// Whether something waits until he takes it.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// The same as [`Peer::answer`], but what he cannot take now waits, and all after it.
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

    /// Says what waits, as far as he takes it.
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
        // He is to hear of it now, whenever it is closed.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

fn question(said: &[u8]) -> io::Result<Question> {
    if said.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(said)?)
}

/// What is to be said of a descriptor that is read, now.
fn glance(descriptor: &impl AsFd) -> PollFlags {
    let mut asked = [PollFd::new(descriptor, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut asked, Some(&now)) {
        Ok(_) => asked[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}
