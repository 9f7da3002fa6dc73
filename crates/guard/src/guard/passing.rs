//! Connections that wait to be accepted in a process that no longer listens. On kernel sockets all that listen share one
//! accept queue, from which another process takes them.

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

/// The id of messages that answer no question.
pub(super) const UNASKED: u32 = 0;
/// How often owners are looked for that take what is kept.
pub(super) const ROUND: Duration = Duration::from_millis(20);
/// How long a connection is kept for processes that so far listen at its port on the kernel only: a stack begins when its process
/// first waits, which a server's new workers do some time after they were started.
const KEPT: Duration = Duration::from_secs(10);
/// How many may be kept: each takes a descriptor, of which a process has 1024 by default.
const MOST: usize = 256;

/// A connection that no process has come for yet.
#[derive(Debug)]
pub(super) struct Kept {
    local: SocketAddr,
    socket: ClosedApart,
    since: Instant,
}

impl Kept {
    /// Makes closing it reset its peer, as happens to connections that wait at a listener when that is closed.
    fn refuse(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl Guard {
    /// Passes a connection that waits to be accepted to another owner of its port, or keeps it for one.
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

    /// Gives a connection to an owner of its port; returns it if there is none.
    fn give(&self, kept: Kept, but: Option<usize>) -> Option<Kept> {
        for other in self.owners(kept.local).into_iter().filter(|other| Some(*other) != but) {
            // An owner that does not take it, perhaps because it is gone, is passed over.
            let passed = Reply::Passed { local: kept.local };
            if self.peers[other].answer(UNASKED, passed, Some(kept.socket.as_fd())).is_ok() {
                return None;
            }
        }
        Some(kept)
    }

    /// Gives what is kept to processes that own its port by now, and have room for it.
    pub(super) fn give_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.kept = kept.into_iter().filter_map(|one| self.give(one, None)).collect();
    }

    /// Gives what can be given by now, and resets what no process will come for.
    pub(super) fn look_after_kept(&mut self) {
        self.kept_looked = Instant::now();
        self.give_kept();
        let listening = self.steering.listening();
        let is_over =
            |one: &mut Kept| one.since.elapsed() >= KEPT || !listening.contains(&one.local.port());
        self.kept.extract_if(.., is_over).for_each(|one| one.refuse());
    }

    /// Returns the owners of a place, the newest process first: older ones are likelier to leave.
    fn owners(&self, place: SocketAddr) -> Vec<usize> {
        let sessions = self.peers.iter().enumerate();
        let owns = |(at, peer): (usize, &Peer)| {
            // The places of an instance are its programs' ports.
            let is_instance = |session: &&Session| matches!(session.role, Role::Instance(_));
            let session = peer.session.as_ref().filter(|session| !is_instance(session))?;
            session.held().contains(&place).then_some((session.engine.0, at))
        };
        let mut owners: Vec<_> = sessions.filter_map(owns).collect();
        owners.sort_unstable_by(|one, other| other.cmp(one));
        owners.into_iter().map(|(_, at)| at).collect()
    }
}
