//! What one program has, and so what is to be undone at its end.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use uncork_bpf::owned::Engine;

/// Both ends of a connection, ours first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// A program that is served.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, by which packets are its.
    pub(crate) engine: Engine,
    /// The table of its connections, which it writes.
    pub(crate) table: OwnedFd,
    /// What it has asked for, and the places that this means.
    ports: Vec<(SocketAddr, Vec<SocketAddr>)>,
    /// All places that it ever had: connections may outlive their port.
    granted: HashSet<SocketAddr>,
    /// Those that it opened.
    connections: HashSet<Ends>,
    /// Devices, each as often as it was opened.
    devices: Vec<i32>,
}

impl Session {
    pub(crate) fn new(engine: Engine, table: OwnedFd) -> Self {
        Self {
            engine,
            table,
            ports: Vec::new(),
            granted: HashSet::new(),
            connections: HashSet::new(),
            devices: Vec::new(),
        }
    }

    /// How often it has opened a device.
    pub(crate) fn opens(&self, device: i32) -> usize {
        self.devices.iter().filter(|other| **other == device).count()
    }

    pub(crate) fn note_open(&mut self, device: i32) {
        self.devices.push(device);
    }

    /// Notes a port, and gives those of its places that are new.
    pub(crate) fn grant(&mut self, asked: SocketAddr, places: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let held = self.held();
        self.granted.extend(&places);
        let new = places.iter().copied().filter(|place| !held.contains(place)).collect();
        self.ports.push((asked, places));
        new
    }

    /// Forgets a port, and gives those of its places that no other claim has. None if there is no such.
    pub(crate) fn release(&mut self, asked: SocketAddr) -> Option<Vec<SocketAddr>> {
        let at = self.ports.iter().position(|(port, _)| *port == asked)?;
        let (_, mut places) = self.ports.swap_remove(at);
        let held = self.held();
        places.retain(|place| !held.contains(place));
        Some(places)
    }

    pub(crate) fn add(&mut self, ends: Ends) {
        self.connections.insert(ends);
    }

    /// Whether there was such a connection.
    pub(crate) fn remove(&mut self, ends: &Ends) -> bool {
        self.connections.remove(ends)
    }

    /// Places that it has.
    pub(crate) fn held(&self) -> HashSet<SocketAddr> {
        self.ports.iter().flat_map(|(_, places)| places).copied().collect()
    }

    /// Connections that it opened.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &Ends> {
        self.connections.iter()
    }

    /// Whether it ever had this place.
    pub(crate) fn had(&self, place: SocketAddr) -> bool {
        self.granted.contains(&place)
    }

    /// Whether a connection with these ends may be its.
    pub(crate) fn may_have(&self, ends: &Ends) -> bool {
        self.had(ends.0) || self.connections.contains(ends)
    }

    /// What of its table was granted. A program may write there what it likes.
    pub(crate) fn connections(&self) -> Vec<Ends> {
        let found = uncork_guardian::table::read(self.table.as_fd());
        let mut found = found.unwrap_or_default();
        found.retain(|ends| self.may_have(ends));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_let_go_of_with_the_last_claim_to_it() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = uncork_guardian::table::create().unwrap();
        let mut session = Session::new(Engine::ONLY, memory.as_fd().try_clone_to_owned().unwrap());
        let (any, one, other) = (end("0.0.0.0:80"), end("10.0.0.1:80"), end("10.0.1.1:80"));
        assert_eq!(session.grant(any, vec![one, other]), [one, other]);
        assert_eq!(session.grant(one, vec![one]), []);
        assert_eq!(session.grant(any, vec![one, other]), []);
        assert_eq!(session.release(any), Some(vec![]));
        assert_eq!(session.release(any), Some(vec![other]));
        assert_eq!(session.release(any), None);
        assert_eq!(session.release(one), Some(vec![one]));
        assert!(session.held().is_empty());
    }
}
