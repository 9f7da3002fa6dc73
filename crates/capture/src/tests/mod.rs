//! Captures of every kind, whole and broken.

mod broken;
mod build;
mod formats;
mod mutations;

use std::io::Read;
use std::time::Duration;

use uncork_wire::link::LinkType;

use crate::{Capture, Counts, Error};

/// An owned frame.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    time: Duration,
    link: LinkType,
    wire_bytes: usize,
    bytes: Vec<u8>,
}

/// Returns all frames, the counts, and the error with which it ended, if any.
fn read_all(reader: impl Read) -> (Vec<Kept>, Counts, Option<Error>) {
    let mut capture = match Capture::open(reader) {
        Ok(capture) => capture,
        Err(error) => return (Vec::new(), Counts::default(), Some(error)),
    };
    let mut frames = Vec::new();
    let end = loop {
        match capture.next_frame() {
            Ok(Some(frame)) => frames.push(Kept {
                time: frame.time,
                link: frame.link,
                wire_bytes: frame.wire_bytes,
                bytes: frame.bytes.to_vec(),
            }),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(capture.next_frame().unwrap().is_none(), "nothing comes after the end");
    (frames, capture.counts(), end)
}
