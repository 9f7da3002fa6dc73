//! Values that an off-path attacker must not be able to guess.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::demux::Tuple;
use crate::hash::{self, Key};

/// Keys derived from the random octets that the stack is made with: it has no source of randomness itself.
pub(crate) struct Secrets {
    /// For the table of connections.
    pub(crate) table: Key,
    sequence: Key,
    stamps: Key,
    ports: Key,
    flows: Key,
    /// For Fast Open: the cookies that are given, and the table of those that were received.
    pub(crate) fast_open: (Key, Key),
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let word =
            |at: usize| seed[at..].first_chunk().map_or(0, |&octets| u64::from_le_bytes(octets));
        let root = Key(word(0), word(8));
        let half = |purpose, which| hash::strong(root, &[word(16), word(24), purpose, which]);
        let derive = |purpose| Key(half(purpose, 0), half(purpose, 1));
        Self {
            table: derive(1),
            sequence: derive(2),
            stamps: derive(3),
            ports: derive(4),
            fast_open: (derive(5), derive(6)),
            flows: derive(7),
        }
    }

    /// Returns an initial sequence number (RFC 6528 §3): a clock of 4 µs plus a keyed function of the
    /// connection's ends.
    pub(crate) fn initial_sequence(&self, tuple: &Tuple, now: Instant) -> SeqNumber {
        let clock = now.as_nanos() >> 12;
        let function = hash::strong(self.sequence, &tuple.words());
        #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
        let number = function.wrapping_add(clock) as u32;
        SeqNumber(number)
    }

    /// Returns the offset of a connection's timestamp clock (RFC 7323 §5.4), so that it does not reveal the uptime.
    #[expect(clippy::cast_possible_truncation, reason = "timestamps wrap")]
    pub(crate) fn stamp_offset(&self, tuple: &Tuple) -> u32 {
        let [local, local_rest, remote, remote_rest, _] = tuple.words();
        // The same for all connections between two hosts: a new connection's timestamps are then
        // later than an old one's, and can cut TIME-WAIT short (RFC 6191).
        hash::strong(self.stamps, &[local, local_rest, remote, remote_rest]) as u32
    }

    /// Returns where the search for a free port begins, for this destination (RFC 6056 §3.3.3).
    #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
    pub(crate) fn port_offset(&self, tuple: &Tuple) -> u32 {
        hash::strong(self.ports, &tuple.words()) as u32
    }

    /// Returns the flow label of packets between these ends (RFC 6437 §3: the same for all of a flow, evenly distributed, and not
    /// guessable), by which routers choose one of several paths where they do not look at ports (net.ipv6.auto_flowlabels). It is
    /// not zero, which would mean that there is none, except for IPv4, which has none.
    pub(crate) fn flow_label(&self, tuple: &Tuple) -> u32 {
        if !tuple.is_ipv6() {
            return 0;
        }
        let label = (hash::fast(self.flows, &tuple.words()) >> 44) as u32;
        label.max(1)
    }

    /// Returns where the search for a free UDP port begins, for the `turn`th time.
    #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
    pub(crate) fn udp_port(&self, turn: u32) -> u32 {
        hash::strong(self.ports, &[u64::from(turn)]) as u32
    }

    /// Returns the 24 bits that authenticate a SYN cookie made in the minute `count` (RFC 4987 §3.6).
    pub(crate) fn cookie(&self, tuple: &Tuple, irs: SeqNumber, count: u64, extra: u64) -> u32 {
        let [a, b, c, d, e] = tuple.words();
        let words = [a, b, c, d, e, u64::from(irs.0), count, extra];
        (hash::strong(self.sequence, &words) >> 40) as u32
    }
}
