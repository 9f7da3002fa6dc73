//! All the options of one header at once, so that the caller needs no loop over kinds.

use crate::SeqNumber;
use crate::bytes::{array, be16, be32, octet, put_words};
use crate::checksum::Sum;

/// Octets of options that a header has room for (RFC 9293 §3.1: a data offset of 15 words).
pub const MAX_BYTES: usize = 40;

/// The longest Fast Open cookie (RFC 7413 §4.1.1).
pub const MAX_COOKIE_BYTES: usize = 16;

const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;
/// Kind and experiment identifier of Fast Open while it was an experiment (RFC 6994, RFC 7413 §8).
const EXPERIMENT: u8 = 254;
const EXPERIMENT_FAST_OPEN: [u8; 2] = [0xf9, 0x89];
const NO_OPERATION: u8 = 1;

/// The blocks of a selective acknowledgment, each with left and right edge (RFC 2018 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); 4],
    count: u8,
}

impl SackBlocks {
    /// The most blocks that fit beside a timestamp option.
    pub const WITH_TIMESTAMPS: usize = 3;
    /// The most blocks that fit at all.
    pub const MOST: usize = 4;

    /// Appends a block, and returns whether there was room for it.
    pub fn push(&mut self, left: SeqNumber, right: SeqNumber) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *place = (left, right);
        self.count += 1;
        true
    }

    /// The blocks, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Returns whether there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A TCP Fast Open cookie (RFC 7413). An empty one requests a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cookie {
    octets: [u8; MAX_COOKIE_BYTES],
    bytes: u8,
    experimental: bool,
}

impl Cookie {
    /// Makes a cookie of these octets, if their number is valid: none, or 4 to 16 and even (RFC 7413 §4.1.1).
    #[must_use]
    pub fn new(octets: &[u8]) -> Option<Self> {
        if !matches!(octets.len(), 0 | 4..=MAX_COOKIE_BYTES) || octets.len() % 2 == 1 {
            return None;
        }
        let bytes = u8::try_from(octets.len()).ok()?;
        let mut cookie = Self { octets: [0; MAX_COOKIE_BYTES], bytes, experimental: false };
        cookie.octets[..octets.len()].copy_from_slice(octets);
        Some(cookie)
    }

    /// Returns the cookie for the experimental option (kind 254, RFC 6994) or for the standard one (kind 34).
    #[must_use]
    pub const fn in_experiment(self, experimental: bool) -> Self {
        Self { experimental, ..self }
    }

    /// Returns whether it is in the experimental option.
    #[must_use]
    pub const fn is_experimental(&self) -> bool {
        self.experimental
    }

    /// Returns whether it is empty, which requests a cookie.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        self.bytes == 0
    }

    fn option_bytes(&self) -> usize {
        2 + if self.experimental { 2 } else { 0 } + self.as_slice().len()
    }

    /// Its octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.bytes)]
    }
}

/// The options of one header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionSet {
    /// Maximum segment size, in octets.
    pub mss: Option<u16>,
    /// Window scale: the shift count, as it was sent; above 14 means 14 (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// The sender supports SACK.
    pub sack_permitted: bool,
    /// Timestamp value and echo reply (RFC 7323 §3).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks: what arrived out of order, or twice.
    pub sack: SackBlocks,
    /// A Fast Open cookie, or a request for one.
    pub fast_open: Option<Cookie>,
}

impl OptionSet {
    /// Reads the octets between header and data. Options of an unknown kind, or of a length that
    /// their kind cannot have, are skipped; one that runs past the header ends the reading, as
    /// nothing after it can be trusted.
    #[must_use]
    #[inline]
    pub fn read(octets: &[u8]) -> Self {
        // By far the most headers have exactly this (RFC 7323, appendix A).
        if let &[NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] = octets {
            let (value, echo) =
                (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
            return Self { timestamps: Some((value, echo)), ..Self::default() };
        }
        Self::read_all(octets)
    }

    fn read_all(octets: &[u8]) -> Self {
        let mut set = Self::default();
        let mut rest = octets;
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                0 => break,
                NO_OPERATION => rest = after,
                _ => {
                    let length = after.first().map_or(0, |&length| usize::from(length));
                    if length < 2 || length > rest.len() {
                        break;
                    }
                    set.note(kind, &rest[2..length]);
                    rest = &rest[length..];
                }
            }
        }
        set
    }

    fn note(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (MSS, 2) => self.mss = be16(value, 0).ok(),
            (WINDOW_SCALE, 1) => self.window_scale = octet(value, 0).ok(),
            (SACK_PERMITTED, 0) => self.sack_permitted = true,
            (SACK, 8..) if value.len().is_multiple_of(8) => {
                for block in value.chunks_exact(8) {
                    let (left, right) = block.split_at(4);
                    let edge = |octets| array(octets, 0).map_or(0, u32::from_be_bytes);
                    self.sack.push(SeqNumber(edge(left)), SeqNumber(edge(right)));
                }
            }
            (TIMESTAMPS, 8) => {
                self.timestamps = be32(value, 0).ok().zip(be32(value, 4).ok());
            }
            // If there are several, the last one counts, as in Linux.
            (FAST_OPEN, _) => self.fast_open = Cookie::new(value),
            (EXPERIMENT, 2..) if value.starts_with(&EXPERIMENT_FAST_OPEN) => {
                self.fast_open = Cookie::new(&value[2..]).map(|cookie| cookie.in_experiment(true));
            }
            _ => {}
        }
    }

    /// Returns the timestamps, if there is no other option, as in nearly every segment.
    pub(super) fn lone_timestamps(&self) -> Option<(u32, u32)> {
        let alone = self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.sack.is_empty()
            && self.fast_open.is_none();
        self.timestamps.filter(|_| alone)
    }

    /// Returns the octets that the options take on the wire: a multiple of four.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        let mut bytes = 0;
        bytes += if self.mss.is_some() { 4 } else { 0 };
        bytes += match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        bytes += if self.window_scale.is_some() { 4 } else { 0 };
        bytes += self.fast_open.map_or(0, |cookie| cookie.option_bytes().next_multiple_of(4));
        bytes += match self.sack.as_slice().len() {
            0 => 0,
            blocks => 4 + blocks * 8,
        };
        bytes
    }

    /// Writes the options in the order in which Linux does (which middleboxes have seen before), padded to
    /// words, and returns their length in octets.
    ///
    /// # Panics
    ///
    /// If they do not fit into `octets`.
    pub fn emit(&self, octets: &mut [u8]) -> usize {
        let mut writer = Writer { octets, at: 0 };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            writer.put(&[MSS, 4, high, low]);
        }
        if let Some((value, echo)) = self.timestamps {
            let lead = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NO_OPERATION; 2] };
            writer.put(&lead);
            writer.put(&[TIMESTAMPS, 10]);
            writer.put(&value.to_be_bytes());
            writer.put(&echo.to_be_bytes());
        } else if self.sack_permitted {
            writer.put(&[NO_OPERATION, NO_OPERATION, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            writer.put(&[NO_OPERATION, WINDOW_SCALE, 3, shift]);
        }
        if let Some(cookie) = &self.fast_open {
            #[expect(clippy::cast_possible_truncation, reason = "at most 20 octets")]
            let bytes = cookie.option_bytes() as u8;
            if cookie.experimental {
                writer.put(&[EXPERIMENT, bytes]);
                writer.put(&EXPERIMENT_FAST_OPEN);
            } else {
                writer.put(&[FAST_OPEN, bytes]);
            }
            writer.put(cookie.as_slice());
            writer.pad();
        }
        if let blocks @ [_, ..] = self.sack.as_slice() {
            #[expect(clippy::cast_possible_truncation, reason = "at most four blocks")]
            writer.put(&[NO_OPERATION, NO_OPERATION, SACK, blocks.len() as u8 * 8 + 2]);
            for (left, right) in blocks {
                writer.put(&left.0.to_be_bytes());
                writer.put(&right.0.to_be_bytes());
            }
        }
        writer.at
    }
}

/// Writes timestamps as RFC 7323, appendix A, recommends, adds them to a checksum, and returns their
/// length in octets.
pub(super) fn emit_timestamps(
    (value, echo): (u32, u32),
    octets: &mut [u8],
    sum: &mut Sum,
) -> usize {
    let lead = u32::from_be_bytes([NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10]);
    put_words(octets, [lead, value, echo], sum);
    12
}

struct Writer<'a> {
    octets: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, value: &[u8]) {
        self.octets[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    fn pad(&mut self) {
        while !self.at.is_multiple_of(4) {
            self.put(&[NO_OPERATION]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cookie, MAX_BYTES, OptionSet, SackBlocks};
    use crate::SeqNumber;

    fn any_set() -> impl Strategy<Value = OptionSet> {
        let seq = || any::<u32>().prop_map(SeqNumber);
        let syn = (
            any::<Option<u16>>(),
            any::<Option<u8>>(),
            any::<bool>(),
            any::<Option<(u32, u32)>>(),
            proptest::option::of(prop_oneof![Just(0usize), Just(4), Just(8), Just(14), Just(16)]),
            any::<bool>(),
        )
            .prop_map(
                |(mss, window_scale, sack_permitted, timestamps, cookie, experimental)| OptionSet {
                    mss,
                    window_scale,
                    sack_permitted,
                    timestamps,
                    sack: SackBlocks::default(),
                    fast_open: cookie
                        .and_then(|bytes| Cookie::new(&vec![0x5a; bytes]))
                        .map(|cookie| cookie.in_experiment(experimental)),
                },
            );
        let ack =
            (any::<Option<(u32, u32)>>(), proptest::collection::vec((seq(), seq()), 0..=4usize))
                .prop_map(|(timestamps, blocks)| {
                    let mut set = OptionSet { timestamps, ..OptionSet::default() };
                    for (left, right) in
                        blocks.into_iter().take(if timestamps.is_some() { 3 } else { 4 })
                    {
                        set.sack.push(left, right);
                    }
                    set
                });
        prop_oneof![syn, ack]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(set in any_set()) {
            let mut octets = [0xee; MAX_BYTES + 4];
            let bytes = set.emit(&mut octets);
            prop_assert_eq!(bytes, set.wire_bytes());
            prop_assert_eq!(bytes % 4, 0);
            prop_assert!(bytes <= MAX_BYTES + 4);
            prop_assert_eq!(OptionSet::read(&octets[..bytes]), set);
        }

        #[test]
        fn any_octets_are_read(octets in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let set = OptionSet::read(&octets);
            prop_assert!(set.sack.as_slice().len() <= 4);
        }
    }

    #[test]
    fn an_option_that_runs_past_the_header_ends_the_list() {
        let set = OptionSet::read(&[2, 4, 5, 180, 8, 40, 0, 0]);
        assert_eq!((set.mss, set.timestamps), (Some(1460), None));
    }

    #[test]
    fn an_option_of_a_wrong_length_is_stepped_over() {
        let set = OptionSet::read(&[2, 3, 5, 3, 3, 7]);
        assert_eq!((set.mss, set.window_scale), (None, Some(7)));
    }

    #[test]
    fn cookies_of_impossible_lengths_are_none() {
        assert_eq!(Cookie::new(&[1; 5]), None);
        assert_eq!(Cookie::new(&[1; 2]), None);
        assert_eq!(Cookie::new(&[1; 18]), None);
        assert_eq!(OptionSet::read(&[34, 5, 1, 2, 3, 1, 1, 1]).fast_open, None);
    }

    #[test]
    fn an_experiments_cookie_is_read_and_other_experiments_are_stepped_over() {
        // RFC 6994 §3: the two octets after the length are the experiment identifier.
        let read = |octets: &[u8]| OptionSet::read(octets).fast_open;
        let cookie = Cookie::new(&[1, 2, 3, 4]).unwrap();
        assert_eq!(read(&[254, 8, 0xf9, 0x89, 1, 2, 3, 4]), Some(cookie.in_experiment(true)));
        assert_eq!(read(&[254, 8, 0xf9, 0x88, 1, 2, 3, 4]), None);
        assert!(read(&[254, 4, 0xf9, 0x89]).unwrap().is_request());
        assert_eq!(read(&[254, 4, 0xf9, 0x89, 34, 6, 1, 2, 3, 4, 1, 1]), Some(cookie));
    }
}
