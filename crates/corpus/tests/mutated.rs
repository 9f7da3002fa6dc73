//! Captures of real programs that were damaged afterwards: cut anywhere, with bits flipped, parts
//! missing, duplicated or out of order. Whatever is left goes all the way to a report: nothing
//! panics, nothing runs without end, and what cannot be read ends in one sentence.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proptest::prelude::*;
use uncork_capture::Capture;
use uncork_doctor::{Doctor, Settings};

/// Returns the captures, except the few large ones: there a change would hardly ever matter.
fn captures() -> &'static [(PathBuf, Vec<u8>)] {
    static CAPTURES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    CAPTURES.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
        let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut captures: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension != "json"))
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .filter(|(_, file)| file.len() < 30_000)
            .collect();
        captures.sort();
        assert!(captures.len() > 100, "only {} captures", captures.len());
        captures
    })
}

/// One kind of damage to a file. Places are shares of its length.
#[derive(Debug, Clone)]
enum Change {
    Flip(f64, u8),
    Set(f64, [u8; 4]),
    Remove(f64, usize),
    Repeat(f64, usize),
    Cut(f64),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0.0..1.0;
    prop_oneof![
        4 => (at.clone(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, 1 << bit)),
        2 => (at.clone(), any::<[u8; 4]>()).prop_map(|(at, octets)| Change::Set(at, octets)),
        1 => (at.clone(), 1usize..400).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        1 => (at.clone(), 1usize..400).prop_map(|(at, bytes)| Change::Repeat(at, bytes)),
        1 => at.prop_map(Change::Cut),
    ]
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place in a small file"
)]
fn place(share: f64, file: &[u8]) -> usize {
    (share * file.len() as f64) as usize
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    match *change {
        Change::Flip(share, bit) => {
            let at = place(share, file);
            file.iter_mut().skip(at).take(1).for_each(|octet| *octet ^= bit);
        }
        Change::Set(share, octets) => {
            let at = place(share, file);
            file.iter_mut().skip(at).zip(octets).for_each(|(octet, new)| *octet = new);
        }
        Change::Remove(share, bytes) => {
            let at = place(share, file);
            file.drain(at..file.len().min(at + bytes));
        }
        Change::Repeat(share, bytes) => {
            let at = place(share, file);
            let again = file[at..file.len().min(at + bytes)].to_vec();
            file.splice(at..at, again);
        }
        Change::Cut(share) => file.truncate(place(share, file)),
    }
}

/// Reads a file to its end or to a sentence, and has the doctor report on it.
fn check(file: &[u8]) -> Result<(), TestCaseError> {
    let is_sentence = |error: &uncork_capture::Error| {
        let text = error.to_string();
        !text.is_empty() && !text.contains('\n')
    };
    let mut capture = match Capture::open(file) {
        Ok(capture) => capture,
        Err(error) => {
            prop_assert!(is_sentence(&error), "{error}");
            return Ok(());
        }
    };
    let mut doctor = Doctor::new(Settings { every_connection: true, ..Settings::default() });
    let mut taken_bytes = 0;
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                // Each frame has its own record of twelve octets or more, so there is an end.
                taken_bytes += frame.bytes.len() + 12;
                prop_assert!(taken_bytes <= file.len());
                match uncork_wire::read_frame(frame.link, frame.bytes, frame.wire_bytes) {
                    Ok(segment) => doctor.segment(frame.time, &segment),
                    Err(why) => doctor.unread(why),
                }
            }
            Ok(None) => break,
            Err(error) => {
                prop_assert!(is_sentence(&error), "{error}");
                break;
            }
        }
    }
    let report = doctor.finish();
    let stalls: u64 = report.connections.iter().map(|connection| connection.stalls).sum();
    prop_assert_eq!(stalls, report.summary.stalls);
    let json = serde_json::to_string(&report);
    prop_assert!(json.is_ok(), "{json:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn a_damaged_capture_goes_all_the_way_to_a_report(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec(change(), 1..12),
    ) {
        let mut file = which.get(captures()).1.clone();
        for change in &changes {
            apply(&mut file, change);
        }
        check(&file)?;
    }
}

#[test]
fn a_capture_may_be_cut_at_any_octet() {
    // One of each format, whole.
    for name in ["slow-program-query-206ms-0.05ms.pcap", "format-ethernet-0.3ms-pcapng.pcapng"] {
        let (_, file) = captures().iter().find(|(path, _)| path.ends_with(name)).unwrap();
        for length in 0..file.len() {
            check(&file[..length])
                .unwrap_or_else(|error| panic!("{name}, {length} octets: {error}"));
        }
    }
}
