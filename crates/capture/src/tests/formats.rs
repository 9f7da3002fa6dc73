//! Valid captures are read correctly.

use std::io::{self, Read};
use std::time::Duration;

use uncork_wire::link::LinkType;

use super::build::{
    MICROSECONDS, MODIFIED, NANOSECONDS, ORDERS, Order, block, interface, old_packet, option,
    packet, pcap, record, section, simple_packet,
};
use super::{Kept, read_all};
use crate::{Capture, UnknownLink};

const TIME: (u32, u32) = (1_700_000_000, 123_456);
const FRAME: &[u8] = b"a frame";
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

fn time(nanoseconds: u32) -> Duration {
    Duration::new(TIME.0.into(), nanoseconds)
}

fn kept(time: Duration, link: LinkType, wire_bytes: usize, bytes: &[u8]) -> Kept {
    Kept { time, link, wire_bytes, bytes: bytes.to_vec() }
}

/// Returns the times of the frames, with everything else as expected.
fn times(file: &[u8]) -> Vec<Duration> {
    let (frames, _, error) = read_all(file);
    assert!(error.is_none(), "{error:?}");
    frames
        .into_iter()
        .map(|frame| {
            assert_eq!((frame.bytes.as_slice(), frame.wire_bytes), (FRAME, FRAME.len()));
            frame.time
        })
        .collect()
}

#[test]
fn pcap_is_read_in_both_orders_and_both_resolutions() {
    for order in ORDERS {
        for (magic, expected) in [(MICROSECONDS, time(123_456_000)), (NANOSECONDS, time(123_456))] {
            let mut file = pcap(order, magic, 1);
            file.extend(record(order, TIME, FRAME.len(), FRAME));
            file.extend(record(order, TIME, 1500, FRAME));
            let (frames, counts, error) = read_all(file.as_slice());
            assert!(error.is_none(), "{error:?}");
            let frame = |wire_bytes| kept(expected, LinkType::Ethernet, wire_bytes, FRAME);
            assert_eq!(frames, [frame(FRAME.len()), frame(1500)]);
            assert_eq!(counts.frames, 2);
        }
    }
}

#[test]
fn a_fraction_of_more_than_a_second_is_added_up() {
    for (magic, fraction, expected) in [
        (MICROSECONDS, 2_500_000, Duration::from_millis(3_500)),
        (MICROSECONDS, u32::MAX, Duration::from_micros(1_000_000 + u64::from(u32::MAX))),
        (NANOSECONDS, 2_500_000_000, Duration::from_millis(3_500)),
    ] {
        let frame = record(Order::Little, (1, fraction), FRAME.len(), FRAME);
        assert_eq!(times(&[pcap(Order::Little, magic, 1), frame].concat()), [expected]);
    }
}

#[test]
fn a_modified_pcap_has_longer_headers_and_the_same_frames() {
    let mut file = pcap(Order::Little, MODIFIED, 1);
    for _ in 0..2 {
        let mut long = record(Order::Little, TIME, FRAME.len(), FRAME);
        long.splice(16..16, [2, 0, 0, 0, 8, 0, 4, 0]);
        file.extend(long);
    }
    assert_eq!(times(&file), [time(123_456_000); 2]);
}

#[test]
fn the_upper_half_of_the_link_type_is_about_something_else() {
    let file = pcap(Order::Little, MICROSECONDS, 0x2400_0071);
    let file = [file, record(Order::Little, TIME, FRAME.len(), FRAME)].concat();
    assert_eq!(read_all(file.as_slice()).0[0].link, LinkType::LinuxSll);
}

#[test]
fn every_interface_has_its_own_link_type_resolution_and_offset() {
    for order in ORDERS {
        let micro = 1_700_000_000_123_456_u64;
        let offset = match order {
            Order::Little => (-3_600_i64).to_le_bytes(),
            Order::Big => (-3_600_i64).to_be_bytes(),
        };
        let moved = [option(order, IF_TSRESOL, &[9]), option(order, IF_TSOFFSET, &offset)].concat();
        let binary = option(order, IF_TSRESOL, &[0x80 | 30]);
        let file = [
            section(order),
            interface(order, 1, 0, &[]),
            interface(order, 276, 0, &moved),
            packet(order, 0, micro, FRAME.len(), (FRAME, &[])),
            interface(order, 101, 0, &binary),
            packet(order, 1, (micro + 3_600_000_000) * 1000, 99, (FRAME, &[])),
            packet(order, 2, 1_700_000_000_u64 << 30, FRAME.len(), (FRAME, &[])),
        ]
        .concat();
        let (frames, _, error) = read_all(file.as_slice());
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            frames,
            [
                kept(time(123_456_000), LinkType::Ethernet, FRAME.len(), FRAME),
                kept(time(123_456_000), LinkType::LinuxSll2, 99, FRAME),
                kept(time(0), LinkType::Raw, FRAME.len(), FRAME),
            ]
        );
    }
}

#[test]
fn each_section_has_its_own_byte_order_and_interfaces() {
    let mut file = Vec::new();
    for (order, link) in [(Order::Little, 1), (Order::Big, 101), (Order::Little, 113)] {
        file.extend(section(order));
        file.extend(interface(order, link, 0, &[]));
        file.extend(packet(order, 0, 7, FRAME.len(), (FRAME, &[])));
    }
    let links: Vec<_> = read_all(file.as_slice()).0.iter().map(|frame| frame.link).collect();
    assert_eq!(links, [LinkType::Ethernet, LinkType::Raw, LinkType::LinuxSll]);
}

#[test]
fn blocks_of_other_kinds_are_stepped_over_however_long() {
    let order = Order::Little;
    let comment = option(order, 1, b"a comment, and another option that lies\x07\x00\xff\xff");
    let file = [
        section(order),
        block(order, 0xbad, &[1; 3]),
        interface(order, 1, 0, &[]),
        block(order, 10, &vec![7; 5 << 20]), // secrets, longer than any record may be
        packet(order, 0, 1, FRAME.len(), (FRAME, &comment)),
        block(order, 5, &[0; 16]), // statistics
        packet(order, 0, 2, FRAME.len(), (FRAME, &[])),
    ]
    .concat();
    assert_eq!(times(&file), [1, 2].map(Duration::from_micros));
}

#[test]
fn older_and_simpler_packet_blocks_are_read_too() {
    for order in ORDERS {
        let file = [
            section(order),
            interface(order, 1, 5, &[]),
            old_packet(order, 0, 1_000_000, FRAME),
            simple_packet(order, 1500, b"a fra\0\0\0"), // cut to the snap length, and padded
            simple_packet(order, 2, b"ab\0\0"),
        ]
        .concat();
        let (frames, counts, error) = read_all(file.as_slice());
        assert!(error.is_none(), "{error:?}");
        let at = Duration::from_secs(1);
        assert_eq!(
            frames,
            [
                kept(at, LinkType::Ethernet, FRAME.len(), FRAME),
                kept(at, LinkType::Ethernet, 1500, b"a fra"),
                kept(at, LinkType::Ethernet, 2, b"ab"),
            ]
        );
        assert_eq!((counts.frames, counts.without_time), (3, 2));
    }
}

#[test]
fn frames_of_an_interface_that_is_not_known_are_counted_and_left_out() {
    let order = Order::Little;
    let head = [section(order), interface(order, 189, 0, &[]), interface(order, 1, 0, &[])];
    let usb = packet(order, 0, 1, FRAME.len(), (FRAME, &[]));
    let file = [&head.concat()[..], &usb, &usb].concat();
    let error = read_all(file.as_slice()).2.unwrap().to_string();
    assert!(error.contains("189 (USB)") && error.contains("Ethernet"), "{error}");

    let both = [file, packet(order, 1, 2, FRAME.len(), (FRAME, &[]))].concat();
    let (frames, counts, error) = read_all(both.as_slice());
    assert!(error.is_none(), "{error:?}");
    assert_eq!((frames.len(), counts.unknown_link), (1, 2));
    assert_eq!(counts.first_unknown_link, Some(UnknownLink(189)));
}

/// Returns its data in the pieces in which it was written, and never more than was asked for.
struct Pieces {
    pieces: std::vec::IntoIter<Vec<u8>>,
    rest: Vec<u8>,
    reads: usize,
}

impl Pieces {
    fn new(pieces: Vec<Vec<u8>>) -> Self {
        Self { pieces: pieces.into_iter(), rest: Vec::new(), reads: 0 }
    }
}

impl Read for &mut Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.rest.is_empty() {
            self.rest = self.pieces.next().unwrap_or_default();
        }
        let bytes = self.rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&self.rest[..bytes]);
        self.rest.drain(..bytes);
        Ok(bytes)
    }
}

#[test]
fn a_frame_that_has_arrived_is_given_before_more_is_waited_for() {
    let order = Order::Little;
    let ng_head = [section(order), interface(order, 1, 0, &[])].concat();
    let ng_frame = packet(order, 0, 5, FRAME.len(), (FRAME, &[]));
    let head = pcap(order, MICROSECONDS, 1);
    let frame = record(order, TIME, FRAME.len(), FRAME);
    for (head, frame) in [(head, frame), (ng_head, ng_frame)] {
        // Two frames in one piece, then the next one in two.
        let (one, two) = frame.split_at(21);
        let pieces = vec![head, [frame.clone(), frame.clone()].concat(), one.into(), two.into()];
        let mut pieces = Pieces::new(pieces);
        let mut capture = Capture::open(&mut pieces).unwrap();
        let mut frames_after_reads = Vec::new();
        while capture.next_frame().unwrap().is_some() {
            frames_after_reads.push(capture.window.reader().reads);
        }
        assert_eq!(frames_after_reads, [2, 2, 4]);
    }
}

#[test]
fn octets_that_come_one_by_one_make_the_same_frames() {
    let order = Order::Big;
    let pcap = [pcap(order, NANOSECONDS, 1), record(order, TIME, FRAME.len(), FRAME)].concat();
    let ng = [
        section(order),
        block(order, 99, &[0; 40]),
        interface(order, 1, 0, &[]),
        packet(order, 0, 5, FRAME.len(), (FRAME, &[])),
        packet(order, 0, 6, FRAME.len(), (FRAME, &[])),
    ]
    .concat();
    for file in [pcap, ng] {
        let mut slow = Pieces::new(file.iter().map(|&octet| vec![octet]).collect());
        let (frames, _, error) = read_all(&mut slow);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(frames, read_all(file.as_slice()).0);
    }
}

#[test]
fn files_behind_each_other_are_read_as_if_they_were_one() {
    let pcap_file = |order, magic| {
        let mut file = pcap(order, magic, 1);
        file.extend(record(order, TIME, FRAME.len(), FRAME));
        file
    };
    let pcapng_file = |order| {
        let mut file = section(order);
        file.extend(interface(order, 1, 0, &[]));
        file.extend(packet(order, 0, 1_700_000_000_123_456, FRAME.len(), (FRAME, &[])));
        // As dumpcap ends its files: statistics.
        file.extend(block(order, 5, &[0; 12]));
        file
    };
    let files: Vec<Vec<u8>> = ORDERS
        .into_iter()
        .flat_map(|order| {
            [pcap_file(order, MICROSECONDS), pcap_file(order, NANOSECONDS), pcapng_file(order)]
        })
        .chain([pcap_file(Order::Little, MODIFIED)].map(|mut file| {
            // Its records have eight more octets: an interface, a protocol, a kind.
            let frame = file.len() - FRAME.len();
            file.splice(frame..frame, [0; 8]);
            file
        }))
        .collect();
    for first in &files {
        for second in &files {
            let both = [first.as_slice(), second].concat();
            let (frames, counts, error) = read_all(both.as_slice());
            assert!(error.is_none(), "{error:?}");
            assert_eq!(frames.len(), 2, "{first:02x?} {second:02x?}");
            assert!(frames.iter().all(|frame| frame.bytes == FRAME));
            // A section of pcapng after another is no other file.
            let sections = [first, second].iter().all(|file| file.starts_with(&[0x0a, 0x0d]));
            assert_eq!(counts.files_behind, u64::from(!sections));
        }
    }
}
