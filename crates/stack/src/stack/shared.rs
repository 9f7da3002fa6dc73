//! Operation on addresses that are shared with the host's kernel
//! ([`Config::shares_addresses`](crate::Config)).
//!
//! The kernel still handles everything that is not the stack's: it refuses segments of no connection,
//! and its tables, which the driver of the stack asks, say where packets go.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Instant, Medium};
use uncork_wire::ethernet::Mac;
use uncork_wire::tcp::Flags;

use super::Stack;
use crate::connection::arrival::Segment;
use crate::demux::Tuple;
use crate::interface::Found;
use crate::interface::arrival::Incoming;

/// How long no segment of a connection that was given away is reset: its new owner must have
/// taken it over by then.
const HANDED_OVER: Duration = Duration::from_secs(10);

/// Most bytes of segments that are kept for a connection that is being given away: the peer sends the rest again.
const CAUGHT_BYTES: usize = 64 * 1024;

/// Connections for which segments are kept at once: as many programs of an instance may be giving one away.
const CHANGING_AT_ONCE: usize = 16;

/// Ports and connections whose unknown segments are not answered, each with an expiry time.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// Ports: few, and not for long.
    ports: Vec<(u16, Instant)>,
    /// Connections by the words of their tuples: as many as a program has when it gives all of them away.
    connections: BTreeMap<[u64; 5], Instant>,
    /// Their keys, in the order in which they were given away.
    order: VecDeque<[u64; 5]>,
    /// The last ones that were given away, until their new owners have them.
    changing: VecDeque<Changing>,
}

/// A connection that is being handed over.
#[derive(Debug)]
struct Changing {
    name: [u64; 5],
    /// Segments that have come for it since, from the TCP header on.
    caught: Vec<Vec<u8>>,
}

impl Quiet {
    fn add_port(&mut self, port: u16, until: Instant) {
        match self.ports.iter_mut().find(|(other, _)| *other == port) {
            Some((_, other)) => *other = until.max(*other),
            None => self.ports.push((port, until)),
        }
    }

    /// Adds a connection that was just given away.
    pub(super) fn add_connection(&mut self, tuple: &Tuple, now: Instant) {
        self.forget(now);
        let name = tuple.words();
        self.changing.retain(|one| one.name != name);
        if self.changing.len() >= CHANGING_AT_ONCE {
            self.changing.pop_front();
        }
        self.changing.push_back(Changing { name, caught: Vec::new() });
        if self.connections.insert(name, now + HANDED_OVER).is_none() {
            self.order.push_back(name);
        }
    }

    /// Keeps a segment if its connection is being handed over and there is room.
    fn catch(&mut self, tuple: &Tuple, segment: &[u8]) {
        if self.changing.is_empty() {
            return;
        }
        let name = tuple.words();
        let Some(one) = self.changing.iter_mut().find(|one| one.name == name) else { return };
        let caught: usize = one.caught.iter().map(Vec::len).sum();
        if caught + segment.len() <= CAUGHT_BYTES {
            one.caught.push(segment.to_vec());
        }
    }

    fn take(&mut self, tuple: &Tuple) -> Vec<Vec<u8>> {
        let name = tuple.words();
        let at = self.changing.iter().position(|one| one.name == name);
        at.and_then(|at| self.changing.remove(at)).map_or_else(Vec::new, |one| one.caught)
    }

    /// Returns whether segments of this connection are not answered. Expired entries are removed.
    fn has(&mut self, tuple: &Tuple, now: Instant) -> bool {
        self.has_connection(tuple, now)
            || self.ports.iter().any(|&(port, _)| port == tuple.local_port)
    }

    /// Returns whether this connection was given away. Expired entries are removed.
    pub(super) fn has_connection(&mut self, tuple: &Tuple, now: Instant) -> bool {
        self.forget(now);
        self.connections.get(&tuple.words()).is_some_and(|&until| until > now)
    }

    /// Removes a connection, as a new one begins with the same ends.
    pub(super) fn begins_anew(&mut self, tuple: &Tuple) {
        self.connections.remove(&tuple.words());
    }

    fn forget(&mut self, now: Instant) {
        self.ports.retain(|&(_, until)| until > now);
        while let Some(first) = self.order.front() {
            match self.connections.get(first) {
                Some(&until) if until > now => break,
                _ => self.connections.remove(first),
            };
            self.changing.retain(|one| one.name != *first);
            self.order.pop_front();
        }
    }
}

impl Stack {
    /// Suppresses resets for unknown segments to this port until then. To be called before a port of the
    /// kernel becomes the stack's: the first segments of the kernel's connections may come here before it is
    /// known which those are, and a reset would end them. Their peers send them again, and they then reach the
    /// kernel. SYNs are handled as ever.
    pub fn quiet_until(&mut self, port: u16, until: Instant) {
        self.quiet.add_port(port, until);
    }

    /// Returns the segments, each from the TCP header on, that came for one of the connections given away last, after that and
    /// before its new owner began to receive. Nothing is kept for it from now on.
    pub fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
        self.quiet.take(&Tuple::new(local, remote))
    }

    /// Sets the device's hardware address.
    pub fn set_mac(&mut self, mac: Mac) {
        if mac != self.interface.mac {
            self.finish_joining();
            self.interface.mac = mac;
        }
    }

    /// Answers [`Event::Neighbour`](crate::Event), or updates the answer. It is ignored for an address that
    /// was not asked for. If the address is unreachable, connections to it that are not open yet fail, as
    /// after an ARP failure.
    pub fn set_neighbour(&mut self, now: Instant, remote: IpAddr, found: Found) {
        self.finish_joining();
        let Some((id, waiting)) = self.interface.neighbours.tell(remote, found, now) else {
            return;
        };
        match found {
            Found::At { mtu, .. } => {
                if let Some(mtu) = mtu.filter(|&mtu| mtu < self.interface.device.mtu) {
                    self.shrink_paths(now, mtu, |path| path.neighbour == Some(id));
                }
                self.resume(waiting);
            }
            Found::Elsewhere if self.interface.neighbours.is_known(id) => self.resume(waiting),
            Found::Elsewhere | Found::Unreachable => self.fail_all_unreachable(waiting, now),
            Found::Lapsed => {}
        }
    }

    /// Requests the route of a connection that is about to be opened, so that the request is there before its
    /// first frame is asked for.
    pub(super) fn ask_the_way(&mut self, now: Instant, place: u32) {
        if self.interface.shared
            && let Some(id) = self.connections.get(place).and_then(|one| one.path.neighbour)
        {
            self.interface.neighbours.mac(id, now);
        }
    }

    /// Sends the answer to a SYN back the way that it came, until the route is known.
    pub(super) fn assume_way_back(&mut self, now: Instant, incoming: &Incoming<'_>) {
        if !self.interface.shared || self.interface.device.medium != Medium::Ethernet {
            return;
        }
        let Some(mac) = incoming.back.mac() else { return };
        if let Some(id) = self.interface.neighbour_for(incoming.source.ip()) {
            self.interface.neighbours.assume(id, mac, now);
        }
    }

    /// Handles a segment that belongs to no connection. On an address of its own the stack resets it. On a shared
    /// address only a port where the stack listens is the stack's alone: on any other, including one that the stack connects
    /// from, the kernel may have connections; but it does not have one that the stack gave up, unless a SYN begins a new
    /// one.
    pub(super) fn refuse_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        incoming: &Incoming<'_>,
    ) {
        self.quiet.catch(tuple, incoming.payload);
        let was_ours = || !segment.flags.has(Flags::SYN) && self.shared.given_up.has(tuple, now);
        let kernel_may =
            self.interface.shared && !self.listeners.is_anybody_at(tuple.local()) && !was_ours();
        if !kernel_may && !self.quiet.has(tuple, now) {
            self.reset(tuple, segment, incoming);
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;

    use super::{Quiet, Tuple};

    #[test]
    fn a_port_is_quiet_for_as_long_as_anybody_has_asked() {
        let tuple = |text: &str| Tuple::new(text.parse().unwrap(), "10.0.0.2:1".parse().unwrap());
        let (one, other) = (tuple("10.0.0.1:80"), tuple("10.0.0.1:81"));
        let at = Instant::from_millis;
        let mut quiet = Quiet::default();
        quiet.add_port(80, at(500));
        quiet.add_port(80, at(400));
        assert!(quiet.has(&one, at(499)) && !quiet.has(&other, at(0)) && !quiet.has(&one, at(500)));
        quiet.add_connection(&other, at(900));
        assert!(quiet.has(&other, at(10_899)) && !quiet.has(&one, at(900)));
        // Opened again with the same ends and given away again.
        quiet.add_connection(&one, at(1_000));
        quiet.add_connection(&other, at(5_000));
        assert!(quiet.has(&one, at(10_999)) && !quiet.has(&one, at(11_000)));
        assert!(quiet.has(&other, at(14_999)) && !quiet.has(&other, at(15_000)));
        quiet.add_connection(&one, at(20_000));
        quiet.add_connection(&other, at(20_500));
        assert!(!quiet.has(&one, at(30_000)) && quiet.has(&other, at(30_000)));
        assert!(!quiet.has(&other, at(30_500)) && quiet.order.is_empty());
        assert!(quiet.ports.is_empty() && quiet.connections.is_empty());
    }
}
