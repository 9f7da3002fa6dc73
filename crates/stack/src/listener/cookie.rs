//! SYN cookies (RFC 4987 §3.6): when too many handshakes are under way, the state of a further one is
//! kept in the sequence number and the timestamp of the SYN-ACK, and comes back with
//! the ACK.
//!
//! The sequence number has five bits of a minute counter, three of the segment size, and 24 that
//! authenticate them. The other options of the peer's SYN fit into the timestamp's lowest six bits,
//! if it sends timestamps; otherwise a connection from a cookie has no options but the segment size.

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;
use uncork_wire::tcp::OptionSet;

use crate::demux::Tuple;
use crate::secrets::Secrets;

/// Segment sizes that three bits can encode (the measurements that Linux's table is based on).
const SEGMENTS: [u16; 8] = [536, 576, 1220, 1300, 1440, 1452, 1460, 8960];
/// Minutes for which a cookie is valid.
const LIFE: u64 = 2;
/// Longest time for which any cookie is valid.
pub(crate) const LONGEST_LIFE: Duration = Duration::from_secs(LIFE * 60);
/// Bits of the timestamp that are used.
const STAMP_BITS: u32 = 6;
const NO_SCALE: u32 = 0xf;

fn minutes(now: Instant) -> u64 {
    now.as_millis() / 60_000
}

/// Makes the sequence number of a SYN-ACK.
pub(crate) fn make(
    secrets: &Secrets,
    tuple: &Tuple,
    irs: SeqNumber,
    mss: u16,
    now: Instant,
) -> SeqNumber {
    let index = SEGMENTS.iter().rposition(|&size| size <= mss).unwrap_or(0) as u64;
    let count = minutes(now);
    let authentic = secrets.cookie(tuple, irs, count, index);
    #[expect(clippy::cast_possible_truncation, reason = "five and three bits")]
    let head = ((count & 0x1f) << 3 | index) as u32;
    SeqNumber(head << 24 | authentic)
}

/// Returns the segment size in an acknowledged cookie, if the cookie is authentic and not too old.
pub(crate) fn check(
    secrets: &Secrets,
    tuple: &Tuple,
    irs: SeqNumber,
    cookie: SeqNumber,
    now: Instant,
) -> Option<u16> {
    let index = u64::from(cookie.0 >> 24 & 7);
    let told = u64::from(cookie.0 >> 27);
    let now = minutes(now);
    let count =
        (0..LIFE).filter_map(|age| now.checked_sub(age)).find(|count| count & 0x1f == told)?;
    let good = secrets.cookie(tuple, irs, count, index) == cookie.0 & 0x00ff_ffff;
    good.then(|| SEGMENTS[index as usize])
}

/// Encodes the options of a SYN in the timestamp of its answer.
pub(crate) fn hide_options(stamp: u32, options: &OptionSet, ecn: bool) -> u32 {
    let scale = options.window_scale.map_or(NO_SCALE, |shift| u32::from(shift.min(14)));
    let bits = scale | u32::from(options.sack_permitted) << 4 | u32::from(ecn) << 5;
    let hidden = stamp >> STAMP_BITS << STAMP_BITS | bits;
    // Never in the future: later timestamps must not look older.
    if hidden.wrapping_sub(stamp).cast_signed() > 0 {
        hidden.wrapping_sub(1 << STAMP_BITS)
    } else {
        hidden
    }
}

/// Decodes an echoed timestamp: the options of the SYN except its segment size, and whether it asked
/// for ECN.
pub(crate) fn find_options(echo: Option<u32>, stamps: Option<(u32, u32)>) -> (OptionSet, bool) {
    let Some(bits) = echo else { return (OptionSet::default(), false) };
    let scale = (bits & 0xf) as u8;
    let options = OptionSet {
        window_scale: (u32::from(scale) != NO_SCALE).then_some(scale),
        sack_permitted: bits >> 4 & 1 == 1,
        timestamps: stamps,
        ..OptionSet::default()
    };
    (options, bits >> 5 & 1 == 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;
    use uncork_wire::tcp::OptionSet;

    use super::{check, find_options, hide_options, make};
    use crate::demux::Tuple;
    use crate::secrets::Secrets;

    fn tuple(port: u16) -> Tuple {
        let remote = format!("10.0.0.2:{port}");
        Tuple::new("10.0.0.1:80".parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn a_cookie_comes_back_with_its_segment_size_for_a_minute_or_two() {
        let secrets = Secrets::new([7; 32]);
        let (irs, now) = (SeqNumber(99), Instant::from_millis(90_000));
        let cookie = make(&secrets, &tuple(1), irs, 1459, now);
        let later = |millis: u64| Instant::from_millis(90_000 + millis);
        assert_eq!(check(&secrets, &tuple(1), irs, cookie, later(60_000)), Some(1452));
        assert_eq!(check(&secrets, &tuple(1), irs, cookie, later(120_000)), None);
        assert_eq!(check(&secrets, &tuple(2), irs, cookie, now), None);
        assert_eq!(check(&secrets, &tuple(1), irs + 1, cookie, now), None);
        assert_eq!(check(&Secrets::new([8; 32]), &tuple(1), irs, cookie, now), None);
    }

    proptest! {
        #[test]
        fn options_are_hidden_and_found(stamp in any::<u32>(), scale in proptest::option::of(0u8..=14),
            sack in any::<bool>(), ecn in any::<bool>()) {
            let offered = OptionSet { window_scale: scale, sack_permitted: sack, ..OptionSet::default() };
            let hidden = hide_options(stamp, &offered, ecn);
            prop_assert!(stamp.wrapping_sub(hidden) < 128);
            prop_assert_eq!(find_options(Some(hidden), None), (offered, ecn));
        }
    }
}
