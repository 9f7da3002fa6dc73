//! Ports of programs that have closed the kernel's socket and have not said so: by a system call of their own, or to do harm. The
//! kernel may have given them to another user since, who would get a share of the connections only.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::Guard;
use crate::session::{Role, Session};

impl Guard {
    /// Before somebody gets these places, which are one port's: others have them no more that the kernel has no socket of.
    pub(super) fn let_go_of_stale(&mut self, at: usize, places: &[SocketAddr], proven: u64) {
        let mut others = Vec::new();
        for (other, peer) in self.peers.iter().enumerate() {
            let of_others = peer.session.as_ref().filter(|_| other != at);
            // An instance has what its programs have.
            let is_program = |session: &&Session| !matches!(session.role, Role::Instance(_));
            let Some(session) = of_others.filter(is_program) else { continue };
            let of_other = session.proven(places).into_iter();
            let of_other = of_other.filter(|(_, sockets)| !sockets.contains(&proven));
            others.extend(of_other.map(|(asked, sockets)| (other, asked, sockets)));
        }
        let Some(port) = places.first().map(SocketAddr::port).filter(|_| !others.is_empty()) else {
            return;
        };
        // Where the kernel does not say, all is as it was.
        let Ok(listening) = self.steering.listening_at(port) else { return };
        let listening: HashSet<_> = listening.into_iter().collect();
        others.retain(|(.., sockets)| !sockets.iter().any(|socket| listening.contains(socket)));
        for (other, asked, _) in others {
            // As often as it was asked for.
            while self.disown(other, asked).is_ok() {}
        }
    }
}
