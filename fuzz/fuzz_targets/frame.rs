//! Any frame: the first octet chooses the link layer, the next two say how much the capture cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncork_wire::link::LinkType;

const LINKS: [i32; 8] = [0, 1, 101, 108, 113, 228, 229, 276];

fuzz_target!(|input: &[u8]| {
    let Some((&[link, cut, cut_more], frame)) = input.split_first_chunk() else { return };
    let Some(link) = LinkType::from_number(LINKS[usize::from(link) % LINKS.len()]) else { return };
    let cut_bytes = match cut_more {
        0xff => usize::MAX - frame.len(),
        cut_more => usize::from(u16::from_le_bytes([cut, cut_more])),
    };
    let wire_bytes = frame.len() + cut_bytes;
    if let Ok(segment) = uncork_wire::read_frame(link, frame, wire_bytes) {
        assert!(segment.payload_bytes as usize <= wire_bytes.min(1 << 30));
        let _ = (segment.seq_end(), segment.source.to_string());
    }
});
