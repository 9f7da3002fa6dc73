//! Echo, discard and chargen; several at once; and a recording of it all.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::thread;

use uncork_netns::testing::is_skipped;

use crate::common::{output, stdout, uncork};
use crate::place::{OURS, Place, octets};

/// Sends, ends its own direction, and reads on until the other one ends.
fn echo(place: &Place, address: &str, count: usize) {
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
    let mut doctor = uncork();
    let report = output(doctor.args(["doctor", "--json", "--pcap"]).arg(&file));
    assert_eq!(report.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_str(&stdout(&report)).unwrap();
    let summary = &report["summary"];
    assert_eq!(
        (summary["connections"].as_u64(), summary["malformed"].as_u64()),
        (Some(2), Some(0))
    );
    // There and back.
    assert_eq!(summary["payload_bytes"], 2_000_000, "{report:#}");
}
