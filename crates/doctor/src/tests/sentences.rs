//! The sentences and pictures of a stall.

use super::trace::{MSS, Trace, us};
use crate::Kind;
use crate::Role::{Client, Server};

/// The number in the sentence is that of the messages that it is about.
#[test]
fn a_storm_among_single_segments_is_told_by_its_own_length() {
    let mut trace = Trace::new(us(50));
    for n in 0..40 {
        for _ in 0..if n % 3 == 0 { 12 } else { 1 } {
            trace.data(Client, 60).after(us(3));
        }
        trace.rtt_later().data(Server, 2).after(us(10));
    }
    let finding = trace.only(Kind::TinyPackets);
    assert!(
        finding.evidence.contains(": on average 12 a message, of 60 octets"),
        "{}",
        finding.evidence
    );
}

#[test]
fn a_single_stall_is_told_in_the_singular() {
    let mut trace = Trace::new(us(10_000));
    trace.data(Client, 500).after(us(220_000)).again(Client, 500);
    trace.rtt_later().data(Server, 100).after(us(50)).ack(Client);
    let told = trace.only(Kind::Retransmission).evidence;
    assert!(told.contains("again once, only after a timeout: 220 ms after it was sent first."));
    let mut trace = Trace::new(us(20_000));
    trace.data(Client, 120).rtt_later().after(us(50_000)).data(Server, 700);
    let told = trace.only(Kind::Application).evidence;
    assert!(told.contains("before it wrote 1 reply, with"), "{told}");
    let mut trace = Trace::new(us(100));
    trace.data(Client, 120).rtt_later().after(us(40_000)).ack(Server).after(us(30));
    trace.data(Client, 300).rtt_later().after(us(200)).data(Server, 800);
    let told = trace.only(Kind::NagleDelayedAck).evidence;
    assert!(told.contains("1 small segment of the client") && !told.contains("at most"), "{told}");
}

/// A loss that many segments follow: the picture still begins with what was lost.
#[test]
fn what_was_lost_is_in_the_picture_however_much_came_since() {
    let mut trace = Trace::new(us(20_000));
    trace.data(Client, 100).rtt_later().after(us(200));
    let sent_at = trace.now;
    for _ in 0..14 {
        trace.data(Server, MSS).after(us(10));
    }
    trace.after(us(20_300)).again_from(Server, 14 * MSS, MSS).after(us(50)).ack(Client);
    let finding = trace.only(Kind::Retransmission);
    let example = &finding.examples[0];
    let first = &example.events[0];
    let begin = sent_at - std::time::Duration::from_secs(1_700_000_000);
    assert_eq!((first.what, first.offset), (crate::What::Data, 0), "{example:#?}");
    assert_eq!((first.at, example.begin), (begin, begin));
}

/// The sentence accounts for all the stalls that are counted.
#[test]
fn a_hold_without_a_late_ack_is_told_beside_those_with_one() {
    let mut trace = Trace::new(us(10_000));
    for n in 0..4 {
        trace.data(Client, 120).rtt_later().after(us(if n == 0 { 30 } else { 40_000 }));
        trace.ack(Server).after(us(30)).data(Client, 300).rtt_later().after(us(200));
        trace.data(Server, 800).after(us(60)).ack(Client).after(us(500));
    }
    let finding = trace.only(Kind::NagleDelayedAck);
    assert_eq!(finding.count, 4);
    let told = &finding.evidence;
    assert!(told.starts_with("3 small segments"), "{told}");
    assert!(told.ends_with("1 more waited only for the path's round trip."), "{told}");
}
