//! The seeds of fuzzing (`fuzz/seeds`) are valid: the fuzzer breaks them by itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::Path;

use uncork_capture::Capture;
use uncork_wire::link::LinkType;

fn seeds(of: &str) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let files = fs::read_dir(root.join("fuzz/seeds").join(of)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

#[test]
fn captures_are_read_to_their_end() {
    let seeds = seeds("capture");
    assert!(seeds.len() >= 7);
    for (name, file) in seeds {
        let mut capture = Capture::open(file.as_slice()).unwrap();
        let mut segments = 0;
        while let Some(frame) = capture.next_frame().unwrap() {
            let read = uncork_wire::read_frame(frame.link, frame.bytes, frame.wire_bytes);
            segments += u32::from(read.is_ok());
        }
        assert!(segments >= 8, "{name}: {segments} segments");
    }
}

#[test]
fn frames_hold_a_segment_in_every_link_layer() {
    const LINKS: [i32; 8] = [0, 1, 101, 108, 113, 228, 229, 276];
    let mut seen = [false; LINKS.len()];
    for (name, input) in seeds("frame") {
        let (&[link, cut, cut_more], frame) = input.split_first_chunk().unwrap();
        let link = usize::from(link);
        let wire_bytes = frame.len() + usize::from(u16::from_le_bytes([cut, cut_more]));
        let link_type = LinkType::from_number(LINKS[link]).unwrap();
        let read = uncork_wire::read_frame(link_type, frame, wire_bytes);
        assert!(read.is_ok(), "{name}: {read:?}");
        seen[link] = true;
    }
    assert_eq!(seen, [true; LINKS.len()]);
}
