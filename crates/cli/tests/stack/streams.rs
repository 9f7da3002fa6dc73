//! Echo, discard and chargen; several connections at once; and a capture of them all.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use uncork_capture::Capture;
use uncork_netns::testing::is_skipped;
use uncork_wire::tcp::Flags;
use uncork_wire::{SeqNumber, read_frame};

use crate::common::{output, stdout, uncork};
use crate::stack::place::{OURS, Place, octets};

/// Sends, ends its own direction, and reads on until the other direction ends.
pub(crate) fn echo(place: &Place, address: &str, count: usize) {
    let mut stream = place.connect(address, 7);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(&octets(count)).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == octets(count), "{} of {count} octets came back, or others", back.len());
}

#[test]
fn echo_gives_back_all_after_the_client_has_ended_its_direction() {
    if is_skipped("echo_gives_back_all_after_the_client_has_ended_its_direction") {
        return;
    }
    for place in [Place::veth("stecho"), Place::tap("stecho-t"), Place::xdp("stecho-x")] {
        let server = place.serve("echo");
        for address in OURS {
            for count in [0, 1, 5_000_000] {
                echo(&place, address, count);
            }
        }
        server.stop();
    }
}

#[test]
fn two_clients_at_once_each_get_their_own() {
    if is_skipped("two_clients_at_once_each_get_their_own") {
        return;
    }
    let place = Place::veth("sttwo");
    let server = place.serve("echo");
    thread::scope(|scope| {
        for address in OURS {
            scope.spawn(|| echo(&place, address, 20_000_000));
        }
    });
    server.stop();
}

#[test]
fn discard_says_nothing_and_chargen_does_not_stop() {
    if is_skipped("discard_says_nothing_and_chargen_does_not_stop") {
        return;
    }
    let place = Place::veth("stchar");
    let server = place.serve("discard");
    let mut stream = place.connect(OURS[1], 9);
    stream.write_all(&octets(3_000_000)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back.is_empty());
    server.stop();

    let server = place.serve("chargen --port 1900");
    let mut stream = place.connect(OURS[0], 1900);
    let mut lines = vec![0; 5_000_000];
    stream.read_exact(&mut lines).unwrap();
    for (line, text) in lines.chunks_exact(74).enumerate() {
        let expected = |column: usize| u8::try_from((line + column) % 95 + 32).unwrap();
        assert!(text[..72].iter().zip(0..).all(|(&octet, column)| octet == expected(column)));
        assert_eq!(&text[72..], b"\r\n");
    }
    drop(stream);
    server.stop();
}

#[test]
fn what_passed_is_in_a_capture_that_the_doctor_reads() {
    if is_skipped("what_passed_is_in_a_capture_that_the_doctor_reads") {
        return;
    }
    let place = Place::veth("strec");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.pcapng");
    let server = place.serve(&format!("echo --record {}", file.display()));
    echo(&place, OURS[0], 0);
    echo(&place, OURS[1], 1_000_000);
    server.stop();
    // Both directions of each connection. Retransmissions change nothing.
    let mut streams = recorded(&file);
    streams.sort_by_key(Vec::len);
    assert!(
        streams == [vec![], vec![], octets(1_000_000), octets(1_000_000)],
        "{:?} octets are in the capture, or others",
        streams.iter().map(Vec::len).collect::<Vec<_>>()
    );

    // An echo shuts its window while its client does not read, and a kernel probes while the echo
    // does not run: on a busy machine the doctor rightly reports that.
    let mut doctor = uncork();
    let report = output(doctor.args(["doctor", "--json", "--pcap"]).arg(&file));
    assert!(matches!(report.status.code(), Some(0 | 1)), "{report:?}");
    let report: serde_json::Value = serde_json::from_str(&stdout(&report)).unwrap();
    let summary = &report["summary"];
    assert_eq!(
        (summary["connections"].as_u64(), summary["malformed"].as_u64()),
        (Some(2), Some(0))
    );
    assert!(summary["payload_bytes"].as_u64() >= Some(2_000_000), "{report:#}");
}

#[test]
fn a_recording_that_breaks_off_is_told_at_once_and_disturbs_nobody() {
    if is_skipped("a_recording_that_breaks_off_is_told_at_once_and_disturbs_nobody") {
        return;
    }
    let place = Place::veth("strfu");
    let mut server = place.serve("echo --record /dev/full");
    let full = "uncork: /dev/full: No space left on device (os error 28)";
    assert_eq!(
        server.complains(),
        format!("{full}: the recording ends here, and nothing else does")
    );
    echo(&place, OURS[0], 100_000);
    server.signal(Signal::SIGINT);
    assert_eq!(server.end().code(), Some(1));
    assert_eq!(
        server.complaint(),
        "uncork: the recording /dev/full broke off: No space left on device (os error 28)\n"
    );
}

/// Returns what each end of each connection in a capture has sent after its SYN, in no order.
fn recorded(file: &Path) -> Vec<Vec<u8>> {
    let mut capture = Capture::open(File::open(file).unwrap()).unwrap();
    let mut streams: HashMap<_, Pieces> = HashMap::new();
    while let Some(frame) = capture.next_frame().unwrap() {
        assert_eq!(frame.bytes.len(), frame.wire_bytes, "frames are recorded whole");
        let Ok(segment) = read_frame(frame.link, frame.bytes, frame.wire_bytes) else {
            continue;
        };
        let between = (segment.source, segment.destination);
        if segment.flags.has(Flags::SYN) {
            let pieces = Pieces { first: segment.seq + 1, pieces: Vec::new() };
            streams.entry(between).or_insert(pieces);
        }
        let stream = streams.get_mut(&between).unwrap(); // Its SYN comes first.
        let payload = &frame.bytes[frame.bytes.len() - segment.payload_bytes as usize..];
        stream.add(segment.seq, payload);
    }
    streams.into_values().map(Pieces::join).collect()
}

/// One direction of a connection as captured: with gaps that are filled later, and duplicates.
struct Pieces {
    first: SeqNumber,
    pieces: Vec<(usize, Vec<u8>)>,
}

impl Pieces {
    fn add(&mut self, seq: SeqNumber, payload: &[u8]) {
        if !payload.is_empty() {
            self.pieces.push((usize::try_from(seq - self.first).unwrap(), payload.to_vec()));
        }
    }

    fn join(mut self) -> Vec<u8> {
        self.pieces.sort_by_key(|&(from, _)| from);
        let mut octets: Vec<u8> = Vec::new();
        for (from, payload) in self.pieces {
            assert!(from <= octets.len(), "nobody sent {} to {from}", octets.len());
            let known = (octets.len() - from).min(payload.len());
            assert_eq!(octets[from..from + known], payload[..known], "other octets at {from}");
            octets.extend_from_slice(&payload[known..]);
        }
        octets
    }
}
