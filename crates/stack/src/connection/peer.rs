//! What the two SYNs have negotiated.

use uncork_packet::Instant;
use uncork_wire::tcp::OptionSet;

use super::receive::window::LARGEST_SHIFT;
use crate::config::{Config, Ecn};

/// MSS of a peer that has not announced any (RFC 9293 §3.7.1, MUST-15), IPv4 and IPv6.
const DEFAULT_SEGMENT: (u16, u16) = (536, 1220);

/// Age at which a timestamp no longer proves anything, as the peer's clock may have wrapped (RFC 7323 §5.5, for a clock of
/// microseconds, as Linux's TCP_PAWS_WRAP).
const STALE_STAMP: u32 = ((2147 * 1_000_000_000_u64) >> COARSE) as u32;

/// Nanoseconds of the unit of that age, as a power of two: about a second, without a division.
const COARSE: u32 = 30;

/// Octets of the timestamp option with its padding.
pub(crate) const TIMESTAMP_BYTES: u32 = 12;

/// The extensions that this side supports, and so offers in a SYN and accepts from a peer's, according to the settings when
/// the connection begins: what a SYN has offered stays valid if they change before the answer comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer(u8);

impl Offer {
    pub(crate) const STAMPS: u8 = 1;
    pub(crate) const SACKS: u8 = 1 << 1;
    pub(crate) const SCALES: u8 = 1 << 2;
    /// ECN is accepted.
    pub(crate) const ECN: u8 = 1 << 3;
    /// ECN is requested.
    pub(crate) const ASKS_ECN: u8 = 1 << 4;

    pub(crate) fn of(config: &Config) -> Self {
        let all = [
            (Self::STAMPS, config.timestamps),
            (Self::SACKS, config.sack),
            (Self::SCALES, config.window_scaling),
            (Self::ECN, config.ecn != Ecn::Refused),
            (Self::ASKS_ECN, config.ecn == Ecn::Asked),
        ];
        Self(all.iter().filter(|(_, on)| *on).fold(0, |offer, (what, _)| offer | what))
    }

    pub(crate) fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    /// Returns the peer's options without those that are unsupported here, as if it had not offered them.
    pub(crate) fn of_these(self, offered: &OptionSet) -> OptionSet {
        OptionSet {
            timestamps: offered.timestamps.filter(|_| self.has(Self::STAMPS)),
            sack_permitted: offered.sack_permitted && self.has(Self::SACKS),
            window_scale: offered.window_scale.filter(|_| self.has(Self::SCALES)),
            ..*offered
        }
    }
}

/// The negotiated parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) offer: Offer,
    /// The peer's MSS option: the largest segment that it accepts, in octets.
    pub(crate) mss: u16,
    /// Window scale shift of the peer's windows.
    pub(crate) send_shift: u8,
    /// Window scale shift of ours.
    pub(crate) receive_shift: u8,
    /// Both have sent a window scale option.
    pub(crate) scales: bool,
    /// Both have sent timestamps.
    pub(crate) stamps: bool,
    /// Both support SACK.
    pub(crate) sacks: bool,
    /// Both support ECN (RFC 3168 §6.1.1).
    pub(crate) ecn: bool,
    /// A CE mark has come that the sender has not yet answered with CWR.
    pub(crate) echoes_congestion: bool,
    /// The congestion window was reduced for an ECE; the next new data carries CWR.
    pub(crate) owes_cwr: bool,
    /// Latest timestamp to echo (TS.Recent), and when it came ([`coarse`]).
    pub(crate) recent: u32,
    recent_at: u32,
    has_recent: bool,
    /// Start of our timestamp clock.
    pub(crate) stamp_offset: u32,
}

impl Peer {
    /// The parameters before anything is known of the peer.
    pub(crate) fn new(stamp_offset: u32, offer: Offer) -> Self {
        Self {
            offer,
            mss: u16::MAX,
            send_shift: 0,
            receive_shift: 0,
            scales: false,
            stamps: false,
            sacks: false,
            ecn: false,
            echoes_congestion: false,
            owes_cwr: false,
            recent: 0,
            recent_at: 0,
            has_recent: false,
            stamp_offset,
        }
    }

    /// Takes over what the peer's SYN offers; `shift` is ours, if both scale.
    pub(crate) fn agree(&mut self, options: &OptionSet, ipv6: bool, shift: u8, now: Instant) {
        let default = if ipv6 { DEFAULT_SEGMENT.1 } else { DEFAULT_SEGMENT.0 };
        self.mss = options.mss.filter(|&mss| mss > 0).unwrap_or(default);
        self.sacks = options.sack_permitted;
        self.scales = options.window_scale.is_some();
        self.send_shift = options.window_scale.unwrap_or(0).min(LARGEST_SHIFT);
        self.receive_shift = if self.scales { shift } else { 0 };
        self.stamps = options.timestamps.is_some();
        if let Some((value, _)) = options.timestamps {
            self.note_stamp(value, now);
        }
    }

    /// Stores a timestamp to echo.
    pub(crate) fn note_stamp(&mut self, value: u32, now: Instant) {
        self.recent = value;
        self.recent_at = coarse(now);
        self.has_recent = true;
    }

    /// Returns whether a segment with this timestamp is older than one that was already received
    /// (PAWS, RFC 7323 §5.3 rule R1).
    pub(crate) fn is_old_stamp(&self, value: u32, now: Instant) -> bool {
        let age = || coarse(now).saturating_sub(self.recent_at);
        self.has_recent && value.wrapping_sub(self.recent).cast_signed() < 0 && age() < STALE_STAMP
    }

    /// Returns our timestamp clock, in milliseconds.
    #[expect(clippy::cast_possible_truncation, reason = "timestamps wrap")]
    pub(crate) fn stamp(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.stamp_offset)
    }

    /// Returns the timestamp option for a segment that leaves now.
    pub(crate) fn stamps_option(&self, now: Instant) -> Option<(u32, u32)> {
        self.stamps.then(|| self.stamps_now(now))
    }

    /// Returns the values of the timestamp option.
    #[inline]
    pub(crate) fn stamps_now(&self, now: Instant) -> (u32, u32) {
        (self.stamp(now), if self.has_recent { self.recent } else { 0 })
    }
}

/// Returns a coarse time for comparisons over minutes and more; it lasts for 146 years.
#[expect(clippy::cast_possible_truncation, reason = "see above")]
#[inline]
fn coarse(now: Instant) -> u32 {
    (now.as_nanos() >> COARSE) as u32
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;
    use uncork_wire::tcp::OptionSet;

    use super::{Offer, Peer};
    use crate::config::Config;

    fn peer() -> Peer {
        Peer::new(0, Offer::of(&Config::default()))
    }

    #[test]
    fn a_peer_that_says_nothing_gets_the_default_and_no_extension() {
        let mut peer = peer();
        peer.agree(&OptionSet::default(), false, 7, Instant::ZERO);
        assert_eq!((peer.mss, peer.receive_shift, peer.stamps, peer.sacks), (536, 0, false, false));
        assert!(!peer.is_old_stamp(u32::MAX, Instant::ZERO));
    }

    #[test]
    fn stamps_are_compared_across_the_wrap_and_forgotten() {
        let mut peer = peer();
        peer.note_stamp(5, Instant::ZERO);
        assert!(peer.is_old_stamp(u32::MAX, Instant::ZERO));
        assert!(!peer.is_old_stamp(5, Instant::ZERO));
        assert!(!peer.is_old_stamp(u32::MAX, Instant::from_millis(24 * 86_400_000)));
    }

    /// Linux has timestamps in microseconds where a route says so (`features tcp_usec_ts`).
    #[test]
    fn a_clock_of_microseconds_may_have_turned_after_36_minutes() {
        let mut peer = peer();
        peer.note_stamp(5, Instant::ZERO);
        let minutes = 40;
        let stamp = 5 + minutes * 60_000_000;
        assert!(!peer.is_old_stamp(stamp, Instant::from_millis(u64::from(minutes) * 60_000)));
    }
}
