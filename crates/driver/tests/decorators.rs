//! Recording, disturbing and tracing, over a port in memory and with a clock that the tests set.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path as FilePath;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uncork_driver::memory::{self, Port};
use uncork_driver::{Disturb, Driver, Offer, Record, Redirected, Trace};
use uncork_packet::{
    Capabilities, Checksum, Completion, Instant, Medium, Owner, Received, Segmentation, Transmit,
    Trust,
};
use uncork_path::{Faults, Loss, Path, Reorder};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A file that a test can inspect.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A clock that the test sets.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn set(&self, time: Duration) {
        self.0.store(time.as_nanos().try_into().unwrap(), Ordering::Relaxed);
    }

    fn boxed(&self) -> Box<dyn Fn() -> Instant + Send> {
        let clock = self.clone();
        Box::new(move || Instant::from_nanos(clock.0.load(Ordering::Relaxed)))
    }

    fn wall(&self) -> Box<dyn Fn() -> Duration + Send> {
        let clock = self.clone();
        Box::new(move || Duration::from_nanos(clock.0.load(Ordering::Relaxed)))
    }
}

fn pair() -> (Port, Port) {
    let offloads = Capabilities {
        max_train_bytes: 65_535,
        completes_checksums: true,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    memory::pair(offloads, 512)
}

fn plain(bytes: usize) -> Transmit {
    Transmit {
        frame_bytes: bytes.try_into().unwrap(),
        checksum: Checksum::Complete,
        segmentation: None,
        owner: Some(Owner(5)),
    }
}

fn send(driver: &mut dyn Driver, frame: &[u8], transmit: Transmit) -> Offer {
    let offered = driver.offer(&mut |slot| {
        slot[..frame.len()].copy_from_slice(frame);
        Some(transmit)
    });
    driver.flush().unwrap();
    offered.unwrap()
}

fn received(driver: &mut dyn Driver) -> Vec<Vec<u8>> {
    let mut frames = vec![];
    driver.receive(1000, &mut |frame| frames.push(frame.bytes.to_vec())).unwrap();
    frames
}

fn left(driver: &mut dyn Driver) -> u32 {
    let mut bytes = 0;
    driver.complete(&mut |Completion { bytes: more, .. }| bytes += more).unwrap();
    bytes
}

/// Builds a TCP segment over IPv4 with 3 octets of data, and no checksum.
fn segment() -> Vec<u8> {
    let mut packet = vec![0; 43];
    packet[0] = 0x45;
    packet[3] = 43;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    packet[27] = 9;
    packet[31] = 4;
    packet[32] = 0x50;
    packet[33] = 0x18;
    packet[35] = 7;
    packet
}

#[test]
fn a_recording_holds_every_frame_with_its_time_and_reads_as_a_capture() {
    let (file, clock) = (Shared::default(), Clock::default());
    let (here, mut there) = pair();
    let mut here = Record::new(here, file.clone(), "memory", clock.wall());
    let mut expected = vec![];
    for number in 0..200_u8 {
        let time = Duration::new(1_700_000_000, 1_000_007 * u32::from(number));
        clock.set(time);
        let frame = vec![number; 20 + usize::from(number) * 7];
        if number % 2 == 0 {
            assert_eq!(send(&mut here, &frame, plain(frame.len())), Offer::Taken);
            assert_eq!(received(&mut there), std::slice::from_ref(&frame));
        } else {
            send(&mut there, &frame, plain(frame.len()));
            assert_eq!(received(&mut here), std::slice::from_ref(&frame));
        }
        expected.push((time, frame));
    }
    assert_eq!(here.outcome().frames, 200);
    drop(here);
    let written = file.0.lock().unwrap().clone();
    let mut capture = uncork_capture::Capture::open(&written[..]).unwrap();
    let mut found = vec![];
    while let Some(frame) = capture.next_frame().unwrap() {
        assert_eq!(frame.link, uncork_wire::link::LinkType::Raw);
        assert_eq!(frame.wire_bytes, frame.bytes.len());
        found.push((frame.time, frame.bytes.to_vec()));
    }
    assert!(found == expected);
}

#[test]
fn a_recording_says_which_way_a_frame_went_and_what_is_left_to_the_device() {
    let file = Shared::default();
    let (here, mut there) = pair();
    let mut here = Record::new(here, file.clone(), "memory", Clock::default().wall());
    let train = Transmit {
        checksum: Checksum::Partial { start: 20, offset: 16 },
        segmentation: Some(Segmentation {
            segment_bytes: 10,
            header_bytes: 40,
            ipv6: false,
            ecn: false,
        }),
        ..plain(100)
    };
    send(&mut here, &[1; 100], train);
    send(&mut there, &[2; 60], plain(60));
    received(&mut here);
    drop(here);
    let written = file.0.lock().unwrap().clone();
    let word = |at: usize| u32::from_ne_bytes(written[at..at + 4].try_into().unwrap());
    let mut at = 0;
    let mut packets = vec![];
    while at < written.len() {
        let (kind, length) = (word(at), word(at + 4) as usize);
        assert_eq!(word(at + length - 4) as usize, length, "the length at the end");
        if kind == 6 {
            packets.push(&written[at + 28..at + length - 4]);
        }
        at += length;
    }
    let [sent, came] = packets[..] else { unreachable!("two frames were recorded") };
    let comment = b"a train of segments of 10 octets; its checksum is left to the device";
    assert!(sent.windows(comment.len()).any(|found| found == comment));
    // epb_flags, four octets: out, and in; then the end of the options.
    assert!(sent.ends_with(&[2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]), "{sent:?}");
    assert!(came.ends_with(&[2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]), "{came:?}");
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_traffic() {
    let (here, mut there) = pair();
    // A device that is always full (full(4)).
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    let mut here = Record::later(here, "memory")
        .telling(move |error| count.set(count.get() + error.raw_os_error().unwrap()));
    here.begin(FilePath::new("/dev/full")).unwrap();
    for number in 0..10 {
        assert_eq!(send(&mut here, &[number; 50], plain(50)), Offer::Taken);
        assert_eq!(received(&mut there), [[number; 50]]);
    }
    let outcome = here.outcome();
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    assert_eq!((outcome.frames, outcome.missed), (0, 10));
    assert_eq!(told.get(), 28, "once");
}

#[test]
fn a_file_is_emptied_when_its_recording_begins_and_not_by_a_second_one() {
    let file = FilePath::new(env!("CARGO_TARGET_TMPDIR")).join("begun-twice.pcapng");
    fs::write(&file, b"of yesterday").unwrap();
    let mut first = Record::later(pair().0, "memory");
    assert_eq!(fs::read(&file).unwrap(), b"of yesterday");
    first.begin(&file).unwrap();
    let begun = fs::read(&file).unwrap();
    // The magic number of a pcapng's first block.
    assert_eq!(begun[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let mut second = Record::later(pair().0, "memory");
    let error = second.begin(&file).unwrap_err();
    assert_eq!(error.to_string(), "it is being recorded into by another");
    drop(second);
    assert_eq!(fs::read(&file).unwrap(), begun);
    drop(first);
    Record::later(pair().0, "memory").begin(&file).unwrap();
}

#[test]
fn a_delay_and_a_rate_move_frames_and_what_has_left_is_told_at_the_bottleneck() {
    let clock = Clock::default();
    let (here, mut there) = pair();
    // 1000 octets at 8 Mbit/s: a millisecond each.
    let outgoing = Path {
        delay: 5 * MILLISECOND,
        rate: Some(8_000_000),
        queue_bytes: 1 << 20,
        ..Path::default()
    };
    let mut here = Disturb::new(here, Path::default(), outgoing, clock.boxed()).unwrap();
    for number in 0..3 {
        assert_eq!(send(&mut here, &[number; 1000], plain(1000)), Offer::Taken);
    }
    assert_eq!((left(&mut here), received(&mut there).len()), (0, 0));
    clock.set(MILLISECOND);
    assert_eq!((left(&mut here), received(&mut there).len()), (1000, 0));
    assert_eq!(here.next_due(), Some(Instant::from_millis(2)));
    clock.set(3 * MILLISECOND);
    assert_eq!((left(&mut here), received(&mut there).len()), (2000, 0));
    assert_eq!(here.next_due(), Some(Instant::from_millis(6)));
    clock.set(6 * MILLISECOND);
    left(&mut here);
    assert_eq!(received(&mut there), [[0; 1000]]);
    clock.set(8 * MILLISECOND);
    left(&mut here);
    assert_eq!(received(&mut there), [[1; 1000], [2; 1000]]);
    assert_eq!(here.next_due(), None);
}

#[test]
fn a_slow_path_fills_the_device_which_then_says_so() {
    let clock = Clock::default();
    let (here, _there) = pair();
    let outgoing = Path { rate: Some(8_000), queue_bytes: 1 << 30, ..Path::default() };
    let mut here = Disturb::new(here, Path::default(), outgoing, clock.boxed()).unwrap();
    let mut taken = 0;
    while send(&mut here, &[1; 100], plain(100)) == Offer::Taken {
        taken += 1;
        assert!(taken < 10_000);
    }
    assert_eq!(taken, 256);
    clock.set(Duration::from_millis(100));
    assert_eq!(left(&mut here), 100);
    assert_eq!(send(&mut here, &[1; 100], plain(100)), Offer::Taken);
}

#[test]
fn what_comes_is_lost_doubled_and_overtaken_the_same_each_time() {
    let run = |seed| {
        let clock = Clock::default();
        let (here, mut there) = pair();
        let incoming = Path {
            loss: Loss { probability: 0.1, seed, ..Loss::default() },
            faults: Faults {
                reorder: Reorder { probability: 0.1, late_by: MILLISECOND },
                duplicate: 0.1,
                corrupt: 0.0,
            },
            ..Path::default()
        };
        let mut here = Disturb::new(here, incoming, Path::default(), clock.boxed()).unwrap();
        let mut came = vec![];
        for number in 0..200_u8 {
            send(&mut there, &[number; 30], plain(30));
            clock.set(u32::from(number) * MILLISECOND / 4);
            came.extend(received(&mut here).iter().map(|frame| frame[0]));
        }
        clock.set(Duration::from_secs(1));
        came.extend(received(&mut here).iter().map(|frame| frame[0]));
        let [counts, _] = here.counts();
        assert_eq!(came.len() as u64, 200 - counts.lost + counts.duplicated);
        assert!((5..40).contains(&counts.lost), "{counts:?}");
        assert!((5..40).contains(&counts.reordered), "{counts:?}");
        assert!(!came.is_sorted());
        came
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_turned_bit_is_never_trusted() {
    let (here, mut there) = pair();
    let faults = Faults { corrupt: 0.5, ..Faults::default() };
    let incoming = Path { faults, ..Path::default() };
    let mut here = Disturb::new(here, incoming, Path::default(), Clock::default().boxed()).unwrap();
    let good = Transmit { checksum: Checksum::Partial { start: 20, offset: 16 }, ..plain(43) };
    let mut turned = 0;
    for _ in 0..100 {
        send(&mut there, &segment(), good);
        here.receive(9, &mut |frame| {
            let changed = frame.bytes != segment();
            turned += u32::from(changed);
            assert_eq!(frame.trust, if changed { Trust::Unknown } else { Trust::Good });
        })
        .unwrap();
    }
    assert!((30..70).contains(&turned), "{turned} of 100");
    // And what is sent has its checksum filled in, or damage could not be detected.
    let capabilities = here.capabilities();
    assert!(!capabilities.completes_checksums && capabilities.max_train_bytes == 1500);
}

#[test]
fn a_trace_tells_who_what_and_when() {
    let (text, clock) = (Shared::default(), Clock::default());
    let (here, mut there) = pair();
    // As a trait object, whose kind is known only at run time.
    let here: Box<dyn Driver> = Box::new(here);
    let mut here = Trace::new(here, text.clone(), clock.boxed());
    clock.set(2 * MILLISECOND);
    send(&mut here, &segment(), plain(43));
    received(&mut there);
    clock.set(3 * MILLISECOND);
    left(&mut here);
    send(&mut there, &[0x45, 0, 0], plain(3));
    received(&mut here);
    let told = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
    assert_eq!(
        told,
        "2.000000 ms out 43 10.0.0.1:40000 > 10.0.0.2:80 P. seq 9+3 ack 4 win 7\n\
         3.000000 ms left 43 of 5\n\
         3.000000 ms in  3 shorter than its headers\n"
    );
}

/// A port that answers what only some drivers can, unlike one without these methods.
struct Knowing(Port);

impl Driver for Knowing {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        self.0.receive(budget, each)
    }

    fn has_frames(&mut self) -> bool {
        false
    }

    fn is_filling(&mut self) -> bool {
        true
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.0.complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        self.0.offer(fill)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn rest_at_most(&self) -> Option<Duration> {
        Some(Duration::from_millis(3))
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![7]
    }

    fn lost(&mut self) -> Option<u64> {
        Some(5)
    }

    fn redirected(&self) -> Option<Redirected> {
        Some(Redirected { queues: vec![1], frames: 9 })
    }
}

#[test]
fn what_a_driver_knows_is_known_through_whatever_goes_around_it() {
    let clock = Clock::default();
    let record = Record::new(Knowing(pair().0), Vec::new(), "eth0", clock.wall());
    let trace = Trace::new(Knowing(pair().0), Vec::new(), clock.boxed());
    let disturb =
        Disturb::new(Knowing(pair().0), Path::default(), Path::default(), clock.boxed()).unwrap();
    let all: [Box<dyn Driver>; 3] = [Box::new(record), Box::new(trace), Box::new(disturb)];
    for mut driver in all {
        assert!(!driver.has_frames() && driver.is_filling());
        assert_eq!(driver.rest_at_most(), Some(Duration::from_millis(3)));
        assert_eq!((driver.lost(), driver.descriptors()), (Some(5), vec![7]));
        assert_eq!(driver.redirected().map(|it| (it.queues, it.frames)), Some((vec![1], 9)));
    }
}
