//! When an engine sleeps, and what wakes it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::cell::Cell;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use uncork_driver::{Driver, Offer};
use uncork_engine::{Engine, Instant, Interest, Program, Watch};
use uncork_packet::{Capabilities, Completion, Medium, Received, Transmit};
use uncork_stack::{Config, Event, Mac, Stack};

/// A device without frames, whose completions can always be fetched, and which has a frame when
/// something was written to the other end of `frames`.
struct Device {
    completions: (UnixStream, UnixStream),
    frames: UnixStream,
    full: bool,
    /// Wakes nothing, and is to be polled at this interval.
    silent: Option<Duration>,
    looked: Cell<u32>,
}

impl Device {
    fn new() -> (Self, UnixStream) {
        let completions = UnixStream::pair().unwrap();
        (&completions.1).write_all(b"x").unwrap();
        let (frames, end) = UnixStream::pair().unwrap();
        frames.set_nonblocking(true).unwrap();
        (Self { completions, frames, full: false, silent: None, looked: Cell::new(0) }, end)
    }
}

impl Driver for Device {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 1500)
    }

    fn receive(&mut self, _: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let mut octets = [0; 16];
        let Ok(count) = self.frames.read(&mut octets) else { return Ok(0) };
        (0..count).for_each(|_| each(Received::plain(&[])));
        Ok(count)
    }

    fn complete(&mut self, _: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.looked.set(self.looked.get() + 1);
        Ok(())
    }

    fn offer(&mut self, _: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        Ok(if self.full { Offer::Full } else { Offer::Declined })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        self.silent.is_none().then_some(self.completions.0.as_fd())
    }

    fn wakes_for_frames(&self) -> Option<BorrowedFd<'_>> {
        self.silent.is_none().then_some(self.frames.as_fd())
    }

    fn rest_at_most(&self) -> Option<Duration> {
        self.silent
    }
}

/// Counts turns until its deadline, or until something can be read.
struct Waits {
    deadline: Instant,
    watched: UnixStream,
    turns: u32,
    told: Option<u64>,
    over: bool,
}

impl Program for Waits {
    fn on_event(&mut self, _: &mut Stack, _: Instant, _: Event) {}

    fn on_turn(&mut self, _: &mut Stack, now: Instant) {
        self.turns += 1;
        self.over |= now >= self.deadline;
    }

    fn watched(&self) -> Vec<Watch<'_>> {
        vec![Watch { fd: self.watched.as_fd(), interest: Interest::Read, key: 7 }]
    }

    fn on_watched(&mut self, _: &mut Stack, _: Instant, key: u64) -> io::Result<()> {
        self.told = Some(key);
        self.over = true;
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

fn engine() -> (Engine<Device>, UnixStream) {
    let (device, end) = Device::new();
    let stack =
        Stack::new(Config::default(), device.capabilities(), Mac([2, 0, 0, 0, 0, 1]), [7; 32]);
    (Engine::new(device, stack), end)
}

fn waits(engine: &Engine<Device>, time: Duration) -> (Waits, UnixStream) {
    let (watched, end) = UnixStream::pair().unwrap();
    let deadline = engine.now() + time;
    (Waits { deadline, watched, turns: 0, told: None, over: false }, end)
}

#[test]
fn it_sleeps_until_a_deadline_and_completions_that_nobody_waits_for_do_not_wake_it() {
    let (mut engine, _end) = engine();
    let (mut program, _other) = waits(&engine, Duration::from_millis(200));
    engine.run(&mut program).unwrap();
    assert!(engine.now() >= program.deadline);
    assert_eq!(program.told, None);
    // One turn before, one after, and some for a clock that wakes early.
    assert!((2..6).contains(&program.turns), "{} turns", program.turns);
}

#[test]
fn a_full_device_is_looked_at_again_though_it_wakes_nobody() {
    let (mut engine, _end) = engine();
    engine.driver().full = true;
    let (mut program, _other) = waits(&engine, Duration::from_millis(50));
    engine.run(&mut program).unwrap();
    assert!(program.turns > 2, "{} turns", program.turns);
}

#[test]
fn a_device_that_wakes_nobody_is_asked_as_often_as_it_wants() {
    let (mut engine, mut end) = engine();
    engine.driver().silent = Some(Duration::from_millis(5));
    let (mut program, _other) = waits(&engine, Duration::from_millis(200));
    let writing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        end.write_all(b"x").unwrap();
        end
    });
    engine.run(&mut program).unwrap();
    drop(writing.join().unwrap());
    assert_eq!(engine.stack().counters().frames_in, 1);
    // Forty times, and some for a clock that wakes early; fewer on a busy machine.
    assert!((10..45).contains(&program.turns), "{} turns", program.turns);
}

#[test]
fn a_descriptor_of_the_programs_wakes_it() {
    let (mut engine, _end) = engine();
    let (mut program, mut other) = waits(&engine, Duration::from_secs(3600));
    let writing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.write_all(b"x").unwrap();
        other
    });
    engine.run(&mut program).unwrap();
    assert_eq!(program.told, Some(7));
    drop(writing.join().unwrap());
}

#[test]
fn frames_wake_it_and_after_them_a_glance_is_enough() {
    let (mut engine, mut end) = engine();
    let (mut program, mut other) = waits(&engine, Duration::from_secs(3600));
    let writing = std::thread::spawn(move || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            end.write_all(b"x").unwrap();
        }
        other.write_all(b"x").unwrap();
        (end, other)
    });
    engine.run(&mut program).unwrap();
    drop(writing.join().unwrap());
    assert_eq!(engine.stack().counters().frames_in, 5);
    // A whole turn for each frame, which looks for completions, and none more before sleeping.
    let looked = engine.driver().looked.get();
    assert!(looked < 10, "looked {looked} times in {} turns", program.turns);
}

#[test]
fn spinning_it_looks_on_and_still_sees_its_descriptors() {
    let (mut engine, _end) = engine();
    engine.spin_for(Duration::from_secs(3600));
    let (mut program, mut other) = waits(&engine, Duration::from_secs(3600));
    other.write_all(b"x").unwrap();
    engine.run(&mut program).unwrap();
    assert_eq!(program.told, Some(7));
    assert!(program.turns >= 64, "{} turns", program.turns);
}
