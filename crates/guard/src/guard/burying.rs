//! Cleaning up after a process that is gone.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::{Guard, SLOTS_AT_LEAST, sessions};
use crate::reset::Left;
use crate::session::{Role, Session};

impl Guard {
    /// Continues with peers that are lost and give no further sign: one that is no longer served may live on, and send nothing.
    pub(super) fn bury_lost(&mut self) {
        // Backwards, because a buried peer is removed.
        for at in (0..self.peers.len()).rev() {
            if self.peers[at].is_lost {
                self.bury(at);
            }
        }
    }

    /// Takes everything away from a process that is gone, and has its connections reset. If that takes long, other peers are
    /// served meanwhile, and a later turn continues.
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
        // Not earlier: if this process ended in between, the heir would have to do it.
        let rests = self.prober.rests();
        if let Some(heir) = &mut self.heir {
            heir.went(&session, rests);
        }
        self.relieve_heir();
    }

    /// Gives its connections to the kernel, has their peers told, and enters the connections of others at its ports as theirs.
    /// True when done: what is left then takes the same time however many they were.
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

    /// Cleans up after a stack that has ended with its process, and whose connections are the kernel's.
    fn bury_stack(&mut self, session: &Session) {
        let left = sessions(&self.peers);
        // Otherwise a peer that connects again from the same port would be steered to the dead engine.
        self.steering.forget_all_of(session.engine);
        let places: Vec<_> = session.held().into_iter().collect();
        let _ = self.steering.leave(session.engine, &places, &left);
        self.free_queues(session.engine);
    }
}
