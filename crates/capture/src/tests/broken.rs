//! Every damage ends in one sentence, after what could be read.

use std::io::{self, Read};

use super::build::{
    MICROSECONDS, ORDERS, Order, block, interface, option, packet, pcap, record, section,
    simple_packet,
};
use super::read_all;
use crate::{Capture, Error, Lie, MAX_RECORD_BYTES};

const FRAME: &[u8] = b"four and a bit";
const ORDER: Order = Order::Little;

fn pcap_of(frames: usize) -> Vec<u8> {
    let frame = record(ORDER, (1, 2), FRAME.len(), FRAME);
    [pcap(ORDER, MICROSECONDS, 1), frame.repeat(frames)].concat()
}

fn head() -> Vec<u8> {
    [section(ORDER), interface(ORDER, 1, 0, &[])].concat()
}

fn pcapng_of(frames: usize) -> Vec<u8> {
    [head(), packet(ORDER, 0, 3, FRAME.len(), (FRAME, &[])).repeat(frames)].concat()
}

/// Returns the contradiction in which it ends, after so many frames.
fn lie(file: &[u8], frames: usize) -> Lie {
    match read_all(file) {
        (read, _, Some(Error::Lies { lie, .. })) if read.len() == frames => lie,
        (read, _, end) => panic!("{} frames, then {end:?}", read.len()),
    }
}

#[test]
fn a_file_cut_anywhere_gives_the_frames_before_the_cut() {
    for (file, head) in [(pcap_of(3), 24), (pcapng_of(3), head().len())] {
        let frame = (file.len() - head) / 3;
        for length in head..=file.len() {
            let (frames, _, end) = read_all(&file[..length]);
            assert_eq!(frames.len(), (length - head) / frame, "of {length} bytes");
            let rest = (length - head) % frame;
            match end {
                None => assert_eq!(rest, 0),
                Some(Error::CutOff { at }) => assert_eq!(at as usize, length - rest),
                Some(other) => panic!("{other}"),
            }
        }
        for length in 4..head {
            let (frames, _, end) = read_all(&file[..length]);
            assert!(frames.is_empty());
            // Between the section and its interface the file is complete, and has no frames.
            let whole = length == section(ORDER).len() && file[0] == 0x0a;
            assert_eq!(matches!(end, Some(Error::CutOff { .. })), !whole, "{length}: {end:?}");
        }
    }
}

#[test]
fn what_is_no_capture_is_named_by_what_it_is() {
    let sentence = |begin: &[u8]| read_all(begin).2.unwrap().to_string();
    assert_eq!(sentence(b""), "it is empty");
    let text = sentence(b"#!/bin/sh");
    assert!(text.contains("no capture") && text.contains("23 21 2f 62"), "{text}");
    assert!(sentence(&[0xd4, 0xc3]).contains("d4 c3"), "{}", sentence(&[0xd4, 0xc3]));
    let text = sentence(&[0x1f, 0x8b, 8, 0, 0, 0]);
    assert!(text.contains("zcat FILE | uncork doctor --pcap -"), "{text}");
    assert!(sentence(&[0x28, 0xb5, 0x2f, 0xfd, 1]).contains("zstdcat FILE"));
}

/// Counts what is read from it.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read(buffer)?;
        self.1 += bytes as u64;
        Ok(bytes)
    }
}

#[test]
fn ten_gigabytes_of_zeros_end_at_once_wherever_they_begin() {
    let zeros = || io::repeat(0).take(10 << 30);
    let begin = |file: Vec<u8>| {
        let mut counted = Counted(io::Cursor::new(file).chain(zeros()), 0);
        let (frames, _, error) = read_all(&mut counted);
        assert!(counted.1 < 1 << 20, "{} bytes were read", counted.1);
        (frames.len(), error.unwrap())
    };
    assert!(matches!(begin(vec![]), (0, Error::NotACapture(_))));
    assert!(matches!(begin(pcap_of(2)), (2, Error::Lies { lie: Lie::Zeros, .. })));
    assert!(matches!(begin(pcapng_of(2)), (2, Error::Lies { lie: Lie::Zeros, .. })));
    // The zeros inside a record are its frame, and the next record consists of zeros.
    let mut cut = pcap_of(2);
    cut.truncate(cut.len() - 3);
    assert!(matches!(begin(cut), (2, Error::Lies { lie: Lie::Zeros, .. })));
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    for length in [u32::MAX, u32::MAX - 3, 0x7fff_fffc, 1 << 20] {
        let mut file = pcap_of(1);
        file.extend([[0; 4], [0; 4], length.to_le_bytes(), length.to_le_bytes()].concat());
        assert!(matches!(lie(&file, 1), Lie::TooLong(_)));

        for kind in [1_u32, 2, 3, 6, 0x0a0d_0d0a] {
            // In whole words, and more than the maximum.
            let length = (length & !3).max((1 << 20) + 4);
            let mut block = block(ORDER, kind, &[0; 20]);
            block[4..8].copy_from_slice(&length.to_le_bytes());
            if kind == 0x0a0d_0d0a {
                block[8..12].copy_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
            }
            let file = [pcapng_of(1), block].concat();
            let mut capture = Capture::open(file.as_slice()).unwrap();
            assert!(capture.next_frame().unwrap().is_some());
            let error = capture.next_frame().unwrap_err();
            assert!(matches!(error, Error::Lies { lie: Lie::TooLong(_), .. }), "{error}");
            assert!(capture.window.room_bytes() <= MAX_RECORD_BYTES);
        }
    }
    // In a block type that is skipped anyway, the length may be true.
    let mut unknown = block(ORDER, 77, &[0; 20]);
    unknown[4..8].copy_from_slice(&0xffff_fffc_u32.to_le_bytes());
    let file = [pcapng_of(1), unknown].concat();
    let mut capture = Capture::open(file.as_slice()).unwrap();
    assert!(capture.next_frame().unwrap().is_some());
    assert!(matches!(capture.next_frame().unwrap_err(), Error::CutOff { .. }));
    assert!(capture.window.room_bytes() <= MAX_RECORD_BYTES);
}

#[test]
fn the_longest_record_that_is_believed_is_read() {
    let frame = vec![1; MAX_RECORD_BYTES - 16];
    let file = [pcap(ORDER, MICROSECONDS, 1), record(ORDER, (1, 2), 1 << 20, &frame)].concat();
    let (frames, _, end) = read_all(file.as_slice());
    assert!(end.is_none(), "{end:?}");
    assert_eq!(frames[0].bytes, frame);
}

#[test]
fn lengths_of_blocks_that_contradict_each_other_are_told() {
    for length in [0_u32, 4, 8, 11, 13, 30] {
        let mut short = block(ORDER, 6, &[0; 20]);
        short[4..8].copy_from_slice(&length.to_le_bytes());
        let file = [pcapng_of(1), short].concat();
        assert_eq!(lie(&file, 1), Lie::BlockLength(length));
    }
    for kind in [6, 99] {
        let mut differs = block(ORDER, kind, &[0; 20]);
        let end = differs.len() - 4;
        differs[end..].copy_from_slice(&36_u32.to_le_bytes());
        assert_eq!(lie(&[pcapng_of(1), differs].concat(), 1), Lie::BlockEnd(32, 36));
    }
    for (kind, body) in [(6, 16), (2, 16), (3, 0), (1, 4), (0x0a0d_0d0a, 4)] {
        let mut body = vec![0; body];
        if kind == 0x0a0d_0d0a {
            body.copy_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        }
        let small = block(ORDER, kind, &body);
        assert_eq!(lie(&[pcapng_of(1), small].concat(), 1), Lie::Block, "kind {kind:#x}");
    }
}

#[test]
fn a_frame_that_does_not_fit_its_block_is_told() {
    for order in ORDERS {
        let head = [section(order), interface(order, 1, 0, &[])].concat();
        for kept in [17, 20, u32::MAX] {
            let mut packet = packet(order, 0, 3, FRAME.len(), (FRAME, &[]));
            packet[20..24].copy_from_slice(&order.u32(kept));
            assert_eq!(lie(&[head.clone(), packet].concat(), 0), Lie::FrameLength);
        }
        let simple = simple_packet(order, 9, b"12345678");
        assert_eq!(lie(&[head, simple].concat(), 0), Lie::FrameLength);
    }
}

#[test]
fn frames_of_interfaces_that_nobody_described_are_told() {
    let frame = packet(ORDER, 1, 3, FRAME.len(), (FRAME, &[]));
    assert_eq!(lie(&[pcapng_of(1), frame].concat(), 1), Lie::Interface(1));
    let simple = simple_packet(ORDER, 4, b"1234");
    assert_eq!(lie(&[section(ORDER), simple].concat(), 0), Lie::Interface(0));
    // A new section has none of the interfaces of the one before.
    let frame = packet(ORDER, 0, 3, FRAME.len(), (FRAME, &[]));
    assert_eq!(lie(&[pcapng_of(2), section(ORDER), frame].concat(), 2), Lie::Interface(0));
}

#[test]
fn more_interfaces_than_memory_should_hold_are_refused() {
    let one = interface(ORDER, 1, 0, &[]);
    let file = io::Cursor::new(section(ORDER)).chain(io::Cursor::new(one.repeat(70_000)));
    assert!(matches!(read_all(file).2, Some(Error::Lies { lie: Lie::Interfaces, .. })));
}

#[test]
fn options_of_an_interface_that_lie_are_passed_over_and_impossible_ones_told() {
    let interface_with = |options: &[u8]| {
        let frame = packet(ORDER, 0, 3_000_000, FRAME.len(), (FRAME, &[]));
        [section(ORDER), interface(ORDER, 1, 0, options), frame].concat()
    };
    // A length beyond the block, and a resolution of no octets, are ignored.
    for options in [vec![9, 0, 0xff, 0xff, 9, 0, 0, 0], option(ORDER, 9, &[])] {
        let (frames, _, end) = read_all(interface_with(&options).as_slice());
        assert!(end.is_none(), "{end:?}");
        assert_eq!(frames[0].time.as_secs(), 3);
    }
    let impossible = interface_with(&option(ORDER, 9, &[0x80 | 64]));
    assert_eq!(lie(&impossible, 0), Lie::Resolution(0xc0));
}

#[test]
fn other_versions_and_byte_orders_are_told() {
    let mut file = pcap_of(1);
    file[4] = 3;
    assert!(matches!(read_all(file.as_slice()).2, Some(Error::Version { major: 3, .. })));
    let mut file = section(ORDER);
    file[12] = 2;
    let end = read_all(file.as_slice()).2.unwrap().to_string();
    assert_eq!(end, "version 2.0 of pcapng is not known; convert it with editcap");
    let mut file = section(ORDER);
    file[8] = 0;
    assert_eq!(lie(&file, 0), Lie::ByteOrder);
}

#[test]
fn a_pcap_of_a_link_type_that_is_not_known_says_which_are() {
    let end = read_all(pcap(ORDER, MICROSECONDS, 127).as_slice()).2.unwrap().to_string();
    assert!(end.contains("127 (802.11 with radiotap)") && end.contains("Ethernet"), "{end}");
}

/// A reader that is interrupted before each read, and fails after its data, as a disk does.
struct Failing<'a> {
    rest: &'a [u8],
    interrupted: bool,
}

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match self.rest.read(buffer)? {
            0 => Err(io::Error::from_raw_os_error(5)),
            bytes => Ok(bytes),
        }
    }
}

#[test]
fn an_error_of_the_disk_ends_it_after_the_frames_before() {
    let file = pcap_of(2);
    let (frames, _, end) = read_all(Failing { rest: &file, interrupted: false });
    assert_eq!(frames.len(), 2);
    assert!(end.unwrap().to_string().contains("cannot be read"));
}
