//! Files that are broken on purpose: read as far as possible, with a sentence where they go wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs::File;
use std::path::Path;

use uncork_capture::Capture;
use uncork_doctor::{Doctor, Settings, Summary};
use uncork_wire::read_frame;

/// Reads a file; returns what was understood, and the sentence, if it ended in one.
fn read(name: &str) -> (Summary, Option<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("broken").join(name);
    let mut doctor = Doctor::new(Settings::default());
    let mut sentence = None;
    match Capture::open(File::open(&path).unwrap()) {
        Err(error) => sentence = Some(error.to_string()),
        Ok(mut capture) => loop {
            match capture.next_frame() {
                Ok(Some(frame)) => match read_frame(frame.link, frame.bytes, frame.wire_bytes) {
                    Ok(segment) => doctor.segment(frame.time, &segment),
                    Err(why) => doctor.unread(why),
                },
                Ok(None) => break,
                Err(error) => {
                    sentence = Some(error.to_string());
                    break;
                }
            }
        },
    }
    (doctor.finish().summary, sentence)
}

/// Files that must end in a sentence, and how many segments must have been understood before.
const GOES_WRONG: [(&str, u64); 15] = [
    ("empty.pcap", 0),
    ("cut-in-file-header.pcap", 0),
    ("cut-in-record-header.pcap", 1),
    ("cut-in-record.pcap", 1),
    ("wrong-magic.pcap", 0),
    ("record-of-4-gb.pcap", 1),
    ("unknown-link-layer.pcap", 0),
    ("zeros.pcap", 0),
    ("text.pcap", 0),
    ("cut-in-section-header.pcapng", 0),
    ("cut-in-block.pcapng", 1),
    ("block-of-4-gb.pcapng", 1),
    ("block-of-nothing.pcapng", 1),
    ("packet-longer-than-block.pcapng", 1),
    ("wrong-byte-order-magic.pcapng", 0),
];

/// Files in which every second frame is malformed: the others must be understood.
const FRAMES_LIE: [&str; 5] = [
    "ip-lies.pcap",
    "ip-header-too-short.pcap",
    "tcp-header-lies.pcap",
    "tcp-header-too-short.pcap",
    "option-of-length-0.pcap",
];

#[test]
fn a_file_that_goes_wrong_is_read_as_far_as_it_goes_and_ends_in_a_sentence() {
    for (name, at_least) in GOES_WRONG {
        let (summary, sentence) = read(name);
        let sentence = sentence.unwrap_or_else(|| panic!("{name} was taken for good"));
        assert!(sentence.len() > 10, "{name}: {sentence:?} says nothing");
        assert!(summary.segments >= at_least, "{name}: {} segments", summary.segments);
    }
}

#[test]
fn frames_that_lie_are_counted_and_the_others_are_understood() {
    for name in FRAMES_LIE {
        let (summary, sentence) = read(name);
        assert_eq!(sentence, None, "{name}");
        assert!(summary.segments >= 10, "{name}: {summary:?}");
        assert!(summary.malformed + summary.cut_short >= 10, "{name}: {summary:?}");
    }
}

#[test]
fn no_broken_file_is_the_end_of_the_doctor() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("broken");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let _ = read(&name);
        files += 1;
    }
    assert!(files >= 28, "only {files} broken files");
}
