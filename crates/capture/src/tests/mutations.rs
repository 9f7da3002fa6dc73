//! Captures that were valid once: cut, changed, wrongly combined. None may panic, loop forever, or
//! end in anything but frames and one sentence.

use std::io::Read;

use proptest::prelude::*;

use super::build::{
    MICROSECONDS, MODIFIED, NANOSECONDS, Order, block, interface, old_packet, option, packet, pcap,
    record, section, simple_packet,
};
use super::read_all;
use crate::Capture;

const FRAME: &[u8] = b"an Ethernet frame, or so it says";

/// Returns one of each kind, small enough that a change hits something that matters.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (order, magic) in
        [(Order::Little, MICROSECONDS), (Order::Big, NANOSECONDS), (Order::Little, MODIFIED)]
    {
        let mut frame = record(order, (7, 8), 60, FRAME);
        if magic == MODIFIED {
            frame.splice(16..16, [2, 0, 0, 0, 8, 0, 4, 0]);
        }
        seeds.push([pcap(order, magic, 1), frame.repeat(4)].concat());
    }
    for order in [Order::Little, Order::Big] {
        let options = [option(order, 2, b"eth0"), option(order, 9, &[9])].concat();
        seeds.push(
            [
                section(order),
                interface(order, 1, 96, &options),
                packet(order, 0, 1 << 40, 60, (FRAME, &option(order, 1, b"why"))),
                block(order, 5, &[0; 12]),
                old_packet(order, 0, 1 << 41, FRAME),
                simple_packet(order, 4, b"four"),
                section(order),
                interface(order, 101, 0, &[]),
                packet(order, 0, 1 << 42, 60, (FRAME, &[])),
            ]
            .concat(),
        );
    }
    seeds
}

/// A defect of a file; positions wrap around.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Flip(usize, u8),
    /// A word that is likely to be a length.
    Word(usize, u32),
    Cut(usize),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    /// A range of another seed.
    Splice(usize, usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0usize..1000;
    let word = prop_oneof![Just(0), Just(u32::MAX), Just(1 << 20), 0u32..64, any::<u32>(),];
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, octet)| Change::Set(at, octet)),
        (at.clone(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, 1 << bit)),
        (at.clone(), word).prop_map(|(at, word)| Change::Word(at, word)),
        at.clone().prop_map(Change::Cut),
        (at.clone(), 1usize..20).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        (at.clone(), proptest::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, octets)| Change::Insert(at, octets)),
        (at.clone(), 0usize..5, at.clone(), at)
            .prop_map(|(at, seed, from, to)| Change::Splice(at, seed, from, to)),
    ]
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    let length = file.len();
    if length == 0 {
        return;
    }
    match change {
        Change::Set(at, octet) => file[at % length] = *octet,
        Change::Flip(at, bit) => file[at % length] ^= bit,
        Change::Word(at, word) => {
            let at = (at % length) & !3;
            for (octet, new) in file[at..].iter_mut().zip(word.to_le_bytes()) {
                *octet = new;
            }
        }
        Change::Cut(at) => file.truncate(at % length),
        Change::Remove(at, bytes) => {
            let at = at % length;
            file.drain(at..length.min(at + bytes));
        }
        Change::Insert(at, octets) => {
            let at = at % length;
            file.splice(at..at, octets.iter().copied());
        }
        Change::Splice(at, seed, from, to) => {
            let other = &seeds()[*seed];
            let (from, to) = (from % other.len(), to % other.len());
            let at = at % length;
            file.splice(at..at, other[from.min(to)..from.max(to)].iter().copied());
        }
    }
}

fn check(file: &[u8]) -> Result<(), TestCaseError> {
    let (frames, counts, end) = read_all(file);
    prop_assert_eq!(frames.len() as u64, counts.frames);
    // Each frame consumes a record of the file: no loop, and no frame from nothing.
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len() + 12).sum();
    prop_assert!(bytes <= file.len());
    for frame in &frames {
        prop_assert!(frame.wire_bytes >= frame.bytes.len());
        let _ = uncork_wire::read_frame(frame.link, &frame.bytes, frame.wire_bytes);
    }
    if let Some(error) = end {
        let sentence = error.to_string();
        prop_assert!(!sentence.is_empty() && !sentence.contains('\n'), "{}", sentence);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_broken_file_ends_in_frames_or_one_sentence(
        seed in 0usize..5,
        changes in proptest::collection::vec(change(), 1..6),
    ) {
        let mut file = seeds().swap_remove(seed);
        for change in &changes {
            apply(&mut file, change);
        }
        check(&file)?;
    }

    #[test]
    fn the_pieces_in_which_it_arrives_make_no_difference(
        seed in 0usize..5,
        changes in proptest::collection::vec(change(), 0..3),
        piece in 1usize..40,
    ) {
        let mut file = seeds().swap_remove(seed);
        for change in &changes {
            apply(&mut file, change);
        }
        let (whole, _, end) = read_all(file.as_slice());
        let (pieces, _, pieces_end) = read_all(Piecewise(&file, piece));
        prop_assert_eq!(whole, pieces);
        prop_assert_eq!(end.map(|end| end.to_string()), pieces_end.map(|end| end.to_string()));
    }

    #[test]
    fn any_octets_after_a_good_beginning_are_read_or_refused(
        seed in 0usize..5,
        octets in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut file = seeds().swap_remove(seed);
        file.extend(octets);
        check(&file)?;
    }
}

/// A reader that returns at most so many octets at once.
struct Piecewise<'a>(&'a [u8], usize);

impl Read for Piecewise<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = self.1.min(buffer.len());
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn the_seeds_themselves_are_whole() {
    for (index, seed) in seeds().iter().enumerate() {
        let (frames, _, end) = read_all(seed.as_slice());
        assert!(end.is_none(), "seed {index}: {end:?}");
        assert_eq!(frames.len(), 4, "seed {index}");
        assert!(Capture::open(seed.as_slice()).is_ok());
    }
}
