//! Connections that wait to be accepted in a process that listens no more. On kernel sockets all who listen share one
//! queue, from which another takes them.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use uncork_guardian::Reply;

use super::Guard;
use crate::peer::Peer;
use crate::proof;
use crate::session::{Role, Session};
use uncork_closing::ClosedApart;

/// The number of what is no answer.
pub(super) const UNASKED: u32 = 0;
/// How often it is looked whether somebody has come for what is kept.
pub(super) const ROUND: Duration = Duration::from_millis(20);
/// How long a connection is kept for who listens at its port with the kernel only: his stack begins when he first
/// waits, as a server's new workers do some time after they were started.
const KEPT: Duration = Duration::from_secs(10);
/// How many may be kept: each is a descriptor, of which a process has 1024 if nobody says otherwise.
const MOST: usize = 256;

/// A connection that nobody is there for yet.
#[derive(Debug)]
pub(super) struct Kept {
    local: SocketAddr,
    socket: ClosedApart,
    since: Instant,
}

impl Kept {
    /// Its peer gets a reset when it is closed, as those get who wait at a listener that is closed.
    fn refuse(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl Guard {
    /// A connection that waits to be accepted is for another owner of its port.
    pub(super) fn pass_on(
        &mut self,
        at: usize,
        local: SocketAddr,
        socket: Option<ClosedApart>,
    ) -> Result<(), String> {
        if !self.session(at)?.had(local) {
            return Err(format!("{local} was not owned"));
        }
        let socket = proof::that_it_is_at(socket, self.listener.as_fd(), local)?;
        self.turns.passes(&local);
        let kept = Kept { local, socket, since: Instant::now() };
        let Some(kept) = self.give(kept, Some(at)) else { return Ok(()) };
        if self.kept.len() >= MOST {
            kept.refuse();
            return Err(format!("nobody else listens at {local}, and {MOST} connections wait"));
        }
        self.kept.push(kept);
        Ok(())
    }

    /// Gives it to somebody who owns its port; back if there is nobody.
    fn give(&self, kept: Kept, but: Option<usize>) -> Option<Kept> {
        for other in self.owners(kept.local).into_iter().filter(|other| Some(*other) != but) {
            // Who does not take it, be it that he is gone: the next.
            let passed = Reply::Passed { local: kept.local };
            if self.peers[other].answer(UNASKED, passed, Some(kept.socket.as_fd())).is_ok() {
                return None;
            }
        }
        Some(kept)
    }

    /// Gives what is kept to those who own its port by now, and have room for it.
    pub(super) fn give_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.kept = kept.into_iter().filter_map(|one| self.give(one, None)).collect();
    }

    /// Gives what can be given by now, and resets what nobody will come for.
    pub(super) fn look_after_kept(&mut self) {
        self.kept_looked = Instant::now();
        self.give_kept();
        let listening = self.steering.listening();
        let is_over =
            |one: &mut Kept| one.since.elapsed() >= KEPT || !listening.contains(&one.local.port());
        self.kept.extract_if(.., is_over).for_each(|one| one.refuse());
    }

    /// Who owns a place, the newest process first: the older are the likelier to leave.
    fn owners(&self, place: SocketAddr) -> Vec<usize> {
        let sessions = self.peers.iter().enumerate();
        let owns = |(at, peer): (usize, &Peer)| {
            // What an instance has are its programs' ports.
            let is_instance = |session: &&Session| matches!(session.role, Role::Instance(_));
            let session = peer.session.as_ref().filter(|session| !is_instance(session))?;
            session.held().contains(&place).then_some((session.engine.0, at))
        };
        let mut owners: Vec<_> = sessions.filter_map(owns).collect();
        owners.sort_unstable_by(|one, other| other.cmp(one));
        owners.into_iter().map(|(_, at)| at).collect()
    }
}
