//! Behaviour that must not be mistaken for a stall that it resembles.

use super::stalls::near;
use super::trace::{MSS, Trace, us};
use crate::Role::{Client, Server};
use crate::{Kind, Severity};

/// A beat of 200 ms is neither a corked write nor a slow reply.
#[test]
fn events_at_the_cork_timeouts_pace_are_events() {
    let mut trace = Trace::new(us(100));
    trace.data(Client, 120).rtt_later().data(Server, 90).after(us(40)).ack(Client);
    for n in 0..15 {
        trace.after(us(200_300 + n * 1_913 % 6_000)).data(Server, 30).after(us(40)).ack(Client);
    }
    assert_eq!(trace.findings().len(), 0);
}

/// There was no request, so whatever the beat is, nothing waits for the next one. The other end may
/// be the client as well, if the server never sends anything.
#[test]
fn heartbeats_are_no_replies() {
    let beats = |by: crate::Role, pace: fn(u64) -> u64| {
        let mut trace = Trace::new(us(100));
        for n in 0..15 {
            trace.data(by, 1_024).rtt_later().ack(by.other()).after(us(pace(n)));
        }
        trace.findings()
    };
    for by in [Server, Client] {
        let findings = beats(by, |n| 200_300 + n * 1_913 % 6_000);
        assert!(findings.is_empty(), "{by:?}: {findings:#?}");
        // As regular as a kernel's timer.
        let findings = beats(by, |n| 203_100 + (n + 1) % 2 * 1_600);
        assert!(findings.is_empty(), "{by:?}: {findings:#?}");
    }
}

/// A segment with the FIN is never held, so it says nothing about TCP_NODELAY.
#[test]
fn a_last_segment_with_the_fin_is_no_sign_of_nodelay() {
    for (fin, nagle) in [(true, crate::InForce::Unknown), (false, crate::InForce::Off)] {
        let mut trace = Trace::new(us(100));
        trace.data(Client, 120).rtt_later().after(us(200));
        trace.data(Server, 150).after(us(20)).last(Server, 300, fin).after(us(60)).ack(Client);
        assert_eq!(trace.report().connections[0].server.nagle, nagle);
    }
}

/// On the wire it looks like Nagle's algorithm, but for the PSH flag; and TCP_NODELAY would not help.
#[test]
fn what_msg_more_holds_is_not_blamed_on_nagle() {
    let tails = |more: bool, before: u32| {
        let mut trace = Trace::new(us(100));
        for _ in 0..10 {
            trace.data(Client, 120).rtt_later().after(us(300));
            trace.more(Server, before).after(us(40_000)).ack(Client).rtt_later().after(us(50));
            if more {
                trace.more(Server, 300)
            } else {
                trace.data(Server, 300)
            };
            trace.after(us(60)).ack(Client).after(us(500));
        }
        trace
    };
    for before in [MSS, 200] {
        let report = tails(true, before).report();
        assert_eq!(report.connections[0].server.nagle, crate::InForce::Unknown);
        let finding = tails(true, before).only(Kind::CorkTimeout);
        assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Server), Some(Client)));
        assert!(finding.evidence.contains("MSG_MORE"), "{}", finding.evidence);
        assert!(finding.remedies.iter().all(|remedy| !remedy.line.contains("TCP_NODELAY")));
        near(finding.lost, 10 * 40_150);
    }
    tails(false, MSS).only(Kind::Runt);
    tails(false, 200).only(Kind::NagleDelayedAck);
}

/// Lines of a log, which are never answered, come a round trip later, and nothing waits for them.
#[test]
fn a_stream_that_nobody_answers_loses_no_time_to_round_trips() {
    for (answered, findings) in [(false, 0), (true, 1)] {
        let mut trace = Trace::new(us(20_000));
        for _ in 0..50 {
            trace.data(Client, 80).rtt_later().after(us(30)).ack(Server).after(us(40));
            trace.data(Client, 240).rtt_later().after(us(30)).ack(Server).after(us(4_000));
        }
        if answered {
            trace.data(Server, 20);
        }
        assert_eq!(trace.findings().len(), findings);
    }
}

/// Two people typing to each other: what one writes is no late reply to the other.
#[test]
fn a_conversation_has_no_slow_program() {
    let mut trace = Trace::new(us(100));
    for n in 0..80_u64 {
        let by = if n * 7_919 % 13 < 6 { Client } else { Server };
        trace.data(by, 40).rtt_later().after(us(50)).ack(by.other());
        trace.after(us(10_000 + n * 6_151 % 40_000));
    }
    assert_eq!(trace.findings().len(), 0);
}

/// A subscription, a monitor: its first message is no slow reply either.
#[test]
fn the_first_of_many_events_is_no_slow_reply() {
    let events = |n: u64, then_asks: bool| {
        let mut trace = Trace::new(us(100));
        trace.data(Client, 40).rtt_later().data(Server, 20).after(us(40)).ack(Client);
        for n in 0..n {
            trace.after(us(150_000 + n * 3_333)).data(Server, 90).after(us(40)).ack(Client);
        }
        if then_asks {
            trace.after(us(100)).data(Client, 40).rtt_later().data(Server, 20);
        }
        trace
    };
    assert_eq!(events(5, false).findings().len(), 0);
    // But they count in a reply that has an end, and one that pauses only once.
    assert_eq!(events(5, true).only(Kind::Application).count, 1);
    let finding = events(1, false).only(Kind::Application);
    assert_eq!(finding.examples[0].events.last().unwrap().bytes, 90);
}

/// What was written shortly after the late ACK was held by it as well: those ACKs are not idle.
#[test]
fn a_late_ack_is_told_once_whatever_came_behind_it() {
    let mut trace = Trace::new(us(500));
    for n in 0..18 {
        trace.data(Client, 50).rtt_later().after(us(100));
        trace.data(Server, 100).after(us(41_000)).ack(Client).rtt_later();
        trace.after(us(if n % 9 == 4 { 3_500 } else { 100 })).data(Server, 400).after(us(60));
    }
    let report = trace.report();
    let findings = &report.connections[0].findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].count, 18, "{findings:#?}");
    // Where nothing was held, the number is that of the ACKs that nothing waited for.
    let mut trace = Trace::new(us(500));
    for n in 0..12 {
        trace.data(Client, 50).rtt_later().after(us(100));
        trace.data(Server, 100).after(us(41_000)).ack(Client).rtt_later().after(us(100));
        if n % 2 == 0 {
            trace.data(Server, 400).after(us(60));
        }
        trace.after(us(300_000));
    }
    let report = trace.report();
    let idle = &report.connections[0].findings[1];
    assert_eq!((idle.kind, idle.count), (Kind::DelayedAck, 6));
    assert!(idle.evidence.starts_with("6 ACKs of the client"), "{}", idle.evidence);
}

/// A capture without times shows no message that was sent at once.
#[test]
fn a_clock_that_stands_still_tells_nothing_of_messages() {
    let replies = |between: u64| {
        let mut trace = Trace::in_the_middle(us(0));
        for _ in 0..40 {
            trace.data(Client, 40).data(Client, 20).data(Client, 20).data(Client, 20);
            trace.after(us(between)).data(Server, 40);
        }
        trace
    };
    assert_eq!(replies(0).findings().len(), 0);
    replies(1).only(Kind::TinyPackets);
}

/// A client that sends a few octets at once, whenever the server has, confirms what it gets: pongs,
/// receipts. One that sends more asks again.
#[test]
fn confirmations_are_no_requests() {
    for (bytes, findings) in [(10, 0), (120, 1)] {
        let mut trace = Trace::new(us(10_000));
        trace.data(Client, 200).rtt_later().after(us(300)).data(Server, 150);
        for _ in 0..20 {
            trace.after(us(60)).data(Client, bytes).rtt_later().ack(Server);
            trace.after(us(140_000)).data(Server, 80);
        }
        let found = trace.findings();
        assert_eq!(found.len(), findings, "{bytes}: {found:#?}");
    }
}

/// A client whose first words are no longer than what it says later asks the same again and again, however short
/// that is. Where it is not known what it does, its program's time is told and called harmless.
#[test]
fn a_short_request_is_a_request_where_nothing_came_that_it_could_confirm() {
    let pings = |mut trace: Trace, opening: u32| {
        trace.data(Client, opening).rtt_later().ack(Server).after(us(50_150)).data(Server, 7);
        for _ in 0..19 {
            trace.after(us(50)).data(Client, 14).rtt_later().ack(Server);
            trace.after(us(50_150)).data(Server, 7);
        }
        trace
    };
    let finding = pings(Trace::new(us(100)), 14).only(Kind::Application);
    assert_eq!(finding.count, 20);
    near(finding.lost, 20 * 50_150);
    for (trace, opening) in [(Trace::new(us(100)), 24), (Trace::in_the_middle(us(100)), 14)] {
        let report = pings(trace, opening).report();
        assert_eq!(report.summary.connections_with_findings, 0);
        let [finding] = report.connections[0].findings.as_slice() else { panic!("{report:#?}") };
        assert_eq!((finding.kind, finding.severity), (Kind::Application, Severity::Harmless));
        let told = &finding.evidence;
        assert!(told.contains("took 50.2 ms before it wrote 20 replies"), "{told}");
        assert!(told.contains("says 14 octets each time"), "{told}");
    }
}

/// A client that sends amid a stream of events waits for none of them; the next event is no reply to it. One
/// that waits for a reply to end, however often that pauses, and thinks for longer than that, does wait.
#[test]
fn what_is_said_amid_events_is_no_request() {
    for (thinks, findings) in [(23_000, 0), (90_000, 1)] {
        let mut trace = Trace::new(us(10_000));
        for n in 0..12 {
            trace.data(Client, 120).rtt_later().after(us(100)).ack(Server);
            for _ in 0..3 {
                trace.after(us(44_000)).data(Server, 80).after(us(30)).ack(Client);
            }
            trace.after(us(thinks + n % 3 * 700));
        }
        let found = trace.findings();
        assert_eq!(found.len(), findings, "{thinks}: {found:#?}");
    }
}

/// A beat shortly after the ACKs of the one before, captured where those leave: they have not yet
/// arrived when it is sent.
#[test]
fn an_ack_that_has_not_arrived_releases_nothing() {
    for (pause, kinds) in [(6_000, 0), (20_100, 1)] {
        let mut trace = Trace::new(us(20_000));
        // The server is 20 ms away from the capture point, the client next to it.
        trace.data(Client, 120).after(us(20_000)).ack(Server).after(us(100)).data(Server, 90);
        trace.after(us(30)).ack(Client);
        for _ in 0..12 {
            trace.after(us(300_000)).data(Client, 120).after(us(20_000)).data(Server, 90);
            trace.after(us(40_000)).ack(Client).after(us(pause)).data(Server, 90);
            trace.after(us(40)).ack(Client);
        }
        let mut found = trace.findings();
        found.retain(|finding| finding.kind == Kind::NagleDelayedAck);
        assert_eq!(found.len(), kinds, "{pause}: {found:#?}");
    }
}

/// After a loss, ACKs set the pace: a short last segment after full ones was not held by Nagle's
/// algorithm if it comes sooner than anything can come back.
#[test]
fn the_pace_of_acks_holds_no_runt() {
    let mut trace = Trace::new(us(20_000));
    trace.data(Client, 120).after(us(20_000)).ack(Server);
    for _ in 0..12 {
        trace.after(us(300_000)).data(Client, 120).after(us(20_000));
        trace.more(Server, MSS).more(Server, MSS).after(us(20)).ack(Client);
        trace.after(us(1_300)).data(Server, 700).after(us(20)).ack(Client);
    }
    let found = trace.findings();
    assert!(found.is_empty(), "{found:#?}");
}

/// A reordered segment fills a hole as a retransmission does, but by its sender's clock it left with
/// the segments that overtook it.
#[test]
fn what_was_overtaken_was_not_sent_again() {
    for (again, findings) in [(false, 0), (true, 1)] {
        let mut trace = Trace::new(us(20_000));
        trace.data(Client, 120).after(us(20_000)).ack(Server);
        for _ in 0..12 {
            trace.after(us(300_000)).data(Client, 120).after(us(20_000));
            // Two holes in one flight.
            trace.unseen(Server, MSS).more(Server, MSS).unseen(Server, MSS).more(Server, 2 * MSS);
            trace.data(Server, 700);
            let flight = trace.now;
            trace.after(us(if again { 20_000 } else { 8_000 }));
            let sent = if again { trace.now } else { flight };
            for back in [5 * MSS + 700, 3 * MSS + 700] {
                trace.again_sent_at(Server, back, MSS, sent);
            }
            trace.after(us(30)).ack(Client);
        }
        let found = trace.findings();
        assert_eq!(found.len(), findings, "{again}: {found:#?}");
        assert!(found.iter().all(|finding| finding.kind == Kind::Retransmission));
    }
}
