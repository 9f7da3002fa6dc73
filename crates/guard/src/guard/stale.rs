//! Ports of programs that have closed the kernel's socket without saying so: by a system call of their own, or to do harm. The
//! kernel gives such a port to the next program that asks, perhaps another user's that knows nothing of a stack; that program is
//! to get all connections there, as on kernel sockets.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Guard;
use crate::session::{Role, Session};

/// How often the sockets that have proven ports are looked for. It may take a second at most until a closed one is missed.
const ROUND: Duration = Duration::from_millis(500);
const LONGEST_ROUND: Duration = Duration::from_secs(1);
/// At most one part in so many of the time is spent on that.
const SHARE: u32 = 100;

/// When these sockets were last looked for, and how long until the next time.
#[derive(Debug)]
pub(super) struct Looks {
    last: Instant,
    rests: Duration,
}

impl Looks {
    pub(super) fn new() -> Self {
        Self { last: Instant::now(), rests: ROUND }
    }
}

/// A peer's index, a port as that peer has asked for it, and the sockets that have proven it.
type Proven = (usize, SocketAddr, Vec<u64>);

impl Guard {
    /// Returns how long until the next look; none if no program has a port.
    pub(super) fn looks_after(&self) -> Option<Duration> {
        let is_any = |session: &Session| is_program(session) && session.asked().next().is_some();
        let mut sessions = self.peers.iter().filter_map(|peer| peer.session.as_ref());
        let looks = &self.stale_looks;
        sessions.any(is_any).then(|| looks.rests.saturating_sub(looks.last.elapsed()))
    }

    /// Takes ports away from all programs that no longer have a kernel socket there.
    pub(super) fn look_for_stale(&mut self) {
        let begun = Instant::now();
        let mut all = Vec::new();
        for (at, session) in self.programs() {
            let of_one = session.all_proven().into_iter();
            all.extend(of_one.map(|(asked, sockets)| (at, asked, sockets)));
        }
        // If the kernel does not tell, everything stays as it was.
        if let Ok(listening) = self.steering.all_listening() {
            self.disown_but(all, &listening.into_iter().collect());
        }
        let rests = (begun.elapsed() * SHARE).clamp(ROUND, LONGEST_ROUND);
        self.stale_looks = Looks { last: Instant::now(), rests };
    }

    /// Takes these places, all of one port, away from programs without a kernel socket there, before another gets them.
    pub(super) fn let_go_of_stale(&mut self, at: usize, places: &[SocketAddr], proven: u64) {
        let mut others = Vec::new();
        for (other, session) in self.programs().filter(|(other, _)| *other != at) {
            let of_other = session.proven(places).into_iter();
            let of_other = of_other.filter(|(_, sockets)| !sockets.contains(&proven));
            others.extend(of_other.map(|(asked, sockets)| (other, asked, sockets)));
        }
        let Some(port) = places.first().map(SocketAddr::port).filter(|_| !others.is_empty()) else {
            return;
        };
        if let Ok(listening) = self.steering.listening_at(port) {
            self.disown_but(others, &listening.into_iter().collect());
        }
    }

    fn disown_but(&mut self, mut all: Vec<Proven>, listening: &HashSet<u64>) {
        all.retain(|(.., sockets)| !sockets.iter().any(|socket| listening.contains(socket)));
        if all.is_empty() {
            return;
        }
        for (at, asked, _) in all {
            // As often as it was asked for.
            while self.take_away(at, asked).is_ok() {}
        }
        self.tidy_claims();
    }

    /// Returns the sessions of programs, without instances', which only hold what their programs have.
    fn programs(&self) -> impl Iterator<Item = (usize, &Session)> {
        let sessions = self.peers.iter().enumerate();
        let sessions = sessions.filter_map(|(at, peer)| Some((at, peer.session.as_ref()?)));
        sessions.filter(|(_, session)| is_program(session))
    }
}

fn is_program(session: &Session) -> bool {
    !matches!(session.role, Role::Instance(_))
}
