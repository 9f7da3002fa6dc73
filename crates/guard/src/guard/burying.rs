//! The end of who was served.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::{Guard, SLOTS_AT_LEAST, sessions};
use crate::reset::Left;
use crate::session::{Role, Session};

impl Guard {
    /// Goes on with those of whom nothing more is heard: who is no longer served lives, perhaps, and says nothing.
    pub(super) fn bury_lost(&mut self) {
        // From behind: who is buried is taken out.
        for at in (0..self.peers.len()).rev() {
            if self.peers[at].is_lost {
                self.bury(at);
            }
        }
    }

    /// A process is gone: what it had is taken away from it, and its peers hear of it. Where that takes long others are served
    /// meanwhile, and it is not over yet.
    pub(super) fn bury(&mut self, at: usize) {
        if !self.is_prepared_to_bury(at) {
            return;
        }
        let Some(mut session) = self.peers.remove(at).session.take() else { return };
        match session.role {
            Role::Program => {
                self.bury_stack(&session);
                self.expect_more(&session);
            }
            Role::Guest(instance) => self.bury_guest(&session, instance),
            Role::Instance(_) => {
                self.detach_guests(session.engine);
                self.bury_stack(&session);
            }
        }
        self.tidy_claims();
        self.unmake(session.engine, session.take_sockets());
        // Not before: should this process end in between, it is the heir's.
        let rests = self.prober.rests();
        if let Some(heir) = &mut self.heir {
            heir.went(&session, rests);
        }
        self.relieve_heir();
    }

    /// Its connections are the kernel's, and their peers hear of it; those of others at its ports are entered as theirs. What is
    /// left is the same however many they are.
    fn is_prepared_to_bury(&mut self, at: usize) -> bool {
        let peers = &self.peers;
        let Some(session) = peers[at].session.as_ref() else { return true };
        let others = sessions(peers);
        let mut slots = self.slots.max(SLOTS_AT_LEAST);
        let before = slots;
        let ports: HashSet<_> = session.held().iter().map(SocketAddr::port).collect();
        for port in ports {
            if !self.steering.prepare(port, &others, &mut slots) {
                self.slots = 0;
                return false;
            }
        }
        let mut is_over = false;
        while !is_over && slots > 0 {
            let (its, all) = self.steering.bequeath(session, &mut slots);
            self.prober.end(Left::all(its, |address| self.steering.device_of(address)));
            is_over = all;
        }
        self.slots = self.slots.saturating_sub(before - slots);
        is_over
    }

    /// A stack has ended with its process, and its connections are the kernel's.
    fn bury_stack(&mut self, session: &Session) {
        let left = sessions(&self.peers);
        // Or whoever connects from there again would be steered to the dead.
        self.steering.forget_all_of(session.engine);
        let places: Vec<_> = session.held().into_iter().collect();
        let _ = self.steering.leave(session.engine, &places, &left);
        self.free_queues(session.engine);
    }
}
