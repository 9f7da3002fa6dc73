//! Taking frames in before the device has no room for more.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use common::{end, turn};
use uncork_driver::memory::{Port, pair};
use uncork_driver::{Driver as _, Offer};
use uncork_engine::Engine;
use uncork_packet::{Capabilities, Checksum, Medium, Transmit};

/// Frames that a device has room for.
const ROOM: usize = 1024;

/// Returns a stack, and the device at the other end of its cable.
fn alone() -> (Engine<Port>, Port) {
    let (one, other) = pair(Capabilities::plain(Medium::Ethernet, 1500), ROOM);
    (end(one, 1), other)
}

/// Sends a number of meaningless frames.
fn send(device: &mut Port, frames: usize) {
    for _ in 0..frames {
        let fill = &mut |room: &mut [u8]| {
            room[..60].fill(0xff);
            Some(Transmit {
                frame_bytes: 60,
                checksum: Checksum::Complete,
                segmentation: None,
                owner: None,
            })
        };
        assert_eq!(device.offer(fill).unwrap(), Offer::Taken);
    }
}

fn taken_in(engine: &Engine<Port>) -> u64 {
    engine.stack_ref().counters().frames_in
}

#[test]
fn who_has_no_turn_yet_takes_in_what_would_soon_find_no_room() {
    let (mut engine, mut other) = alone();
    send(&mut other, ROOM / 2);
    engine.relieve().unwrap();
    assert_eq!(taken_in(&engine), 0, "there is room for as much again");
    send(&mut other, 10);
    engine.relieve().unwrap();
    let taken = taken_in(&engine);
    assert!((10..=200).contains(&taken), "{taken} frames: enough, and not for long");
    // Without it there would be no room for the rest.
    for _ in 0..10 {
        send(&mut other, 100);
        engine.relieve().unwrap();
    }
}

#[test]
fn a_turn_takes_in_a_batch_and_more_while_there_would_soon_be_no_room() {
    let (mut engine, mut other) = alone();
    send(&mut other, ROOM / 2);
    turn(&mut engine);
    let batch = taken_in(&engine);
    assert!(batch < ROOM as u64 / 2, "{batch} frames in one turn");
    send(&mut other, ROOM - (ROOM / 2 - batch as usize));
    turn(&mut engine);
    let left = ROOM as u64 - (taken_in(&engine) - batch);
    assert!(left <= ROOM as u64 / 2 && left > 0, "{left} frames are left of {ROOM}");
}
