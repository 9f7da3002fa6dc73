use super::trace::{MSS, Trace, us};
use crate::Role::{Client, Server};
use crate::{Kind, Severity};

const ROUND_TRIPS: [u64; 4] = [50, 1_000, 20_000, 80_000];

pub(super) fn near(time: std::time::Duration, expected_us: u64) {
    let off = time.abs_diff(us(expected_us));
    assert!(off <= us(expected_us / 10 + 1_000), "{time:?} is not about {expected_us} µs");
}

/// Write, write, read, with Nagle's algorithm at the client and delayed ACKs at the server.
#[test]
fn nagle_and_delayed_ack_are_named_with_both_holders() {
    for rtt in ROUND_TRIPS {
        let mut trace = Trace::new(us(rtt));
        for _ in 0..10 {
            trace.data(Client, 120).rtt_later().after(us(40_000));
            trace.ack(Server).after(us(30));
            trace.data(Client, 300).rtt_later().after(us(200));
            trace.data(Server, 800).after(us(60)).ack(Client).after(us(500));
        }
        let finding = trace.only(Kind::NagleDelayedAck);
        assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Client), Some(Server)));
        assert_eq!(finding.count, 10);
        near(finding.lost, 10 * (rtt + 40_000));
    }
}

/// The other way round: the reply is made of two writes.
#[test]
fn a_reply_in_two_writes_is_the_servers_hold() {
    for rtt in ROUND_TRIPS {
        let mut trace = Trace::new(us(rtt));
        for _ in 0..10 {
            trace.data(Client, 120).rtt_later().after(us(300));
            trace.data(Server, 150).after(us(40_000));
            trace.ack(Client).rtt_later().after(us(50));
            trace.data(Server, 700).after(us(60));
        }
        let finding = trace.only(Kind::NagleDelayedAck);
        assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Server), Some(Client)));
        near(finding.lost, 10 * (rtt + 40_000));
    }
}

#[test]
fn a_healthy_exchange_has_no_finding() {
    for rtt in ROUND_TRIPS {
        let mut trace = Trace::new(us(rtt));
        for n in 0..50 {
            trace.data(Client, 120).rtt_later().after(us(300));
            trace.data(Server, 20 * MSS).after(us(40));
            trace.data(Server, 700).after(us(40));
            trace.ack(Client).after(us(7_000 * (n % 9)));
        }
        assert_eq!(trace.findings().len(), 0);
    }
}

/// The last reply's ACK is late while the client thinks: nothing waits for it.
#[test]
fn a_late_ack_that_nobody_waits_for_is_harmless() {
    let mut trace = Trace::new(us(100));
    for _ in 0..10 {
        trace.data(Client, 120).rtt_later().after(us(300));
        trace.data(Server, 700).after(us(40_000)).ack(Client).after(us(300_000));
    }
    let report = trace.report();
    let finding = &report.connections[0].findings[0];
    assert_eq!(finding.kind, Kind::DelayedAck);
    assert_eq!(finding.severity, Severity::Harmless);
    assert_eq!(report.summary.connections_with_findings, 0);
}

/// The reference run: one kibioctet every 100 ms, never an answer.
#[test]
fn spent_quick_ack_credits_are_told_from_the_order_of_acks() {
    let mut trace = Trace::new(us(100));
    for n in 0..60 {
        trace.data(Server, 1024).after(us(if n < 16 { 30 } else { 40_000 }));
        trace.ack(Client).after(us(60_000));
    }
    let report = trace.report();
    let finding = &report.connections[0].findings[0];
    assert_eq!(finding.kind, Kind::QuickAckExhausted);
    assert_eq!(finding.severity, Severity::Harmless);
    assert!(finding.evidence.contains("first 16 ACKs"), "{}", finding.evidence);
}

#[test]
fn a_corked_tail_is_told_from_a_program_that_sleeps() {
    let replies = |end: fn(u64, u64) -> u64, full: bool| {
        let mut trace = Trace::new(us(100));
        for n in 0..12 {
            trace.data(Client, 120 + 13 * n as u32).rtt_later().after(us(100 + 371 * n));
            if full {
                trace.data(Server, 2 * MSS).after(us(30)).ack(Client);
            }
            let now = u64::try_from(trace.now.as_micros()).unwrap();
            trace.now = us(end(now, n));
            trace.data(Server, 90).after(us(60)).ack(Client).after(us(5_000));
        }
        trace
    };
    // The next tick but one of a kernel at 250 Hz, plus the time that sending takes.
    let corked = |now, n| (now + 200_000) / 4_000 * 4_000 + 4_000 + n % 3 * 30;
    let sleeping = |now, n| now + 200_100 + 10 * n;
    let working = |now, n| now + 200_000 + n * n * 7_919 % 9_000;
    let finding = replies(corked, true).only(Kind::CorkTimeout);
    assert_eq!(finding.bytes_held_by, Some(Server));
    near(finding.lost, 12 * 202_000);
    replies(corked, false).only(Kind::CorkTimeout);
    replies(sleeping, false).only(Kind::Application);
    replies(working, false).only(Kind::Application);
    replies(working, true).only(Kind::Application);
}

/// A client that asks again at once has each of its replies as late as the one before, by a timer or by a sleep. A
/// sleep that ends late ends at a tick, in a virtual machine.
#[test]
fn a_corked_reply_is_told_from_a_sleep_where_the_client_asks_again_at_once() {
    let replies = |end: fn(u64, u64) -> u64| {
        let mut trace = Trace::new(us(30));
        trace.after(us(916));
        for n in 0..20 {
            trace.after(us(60 + n * 7 % 30)).data(Client, 40).after(us(8)).ack(Server);
            let now = u64::try_from(trace.now.as_micros()).unwrap();
            trace.now = us(end(now, n));
            trace.data(Server, 90).after(us(20)).ack(Client);
        }
        trace
    };
    let corked = replies(|now, n| (now + 204_000).next_multiple_of(4_000) + n % 3 * 20);
    corked.only(Kind::CorkTimeout);
    let sleeping = replies(|now, n| match now + 200_150 + n % 5 * 12 {
        wake if n < 3 => wake.next_multiple_of(4_000),
        wake => wake,
    });
    let finding = sleeping.only(Kind::Application);
    assert_eq!(finding.count, 20);
}

#[test]
fn a_slow_program_is_not_tcp() {
    let mut trace = Trace::new(us(20_000));
    for n in 0..10 {
        trace.data(Client, 120).rtt_later().after(us(50_000 + 3_000 * n));
        trace.data(Server, 700).after(us(40)).ack(Client).after(us(1_000));
    }
    let finding = trace.only(Kind::Application);
    near(finding.lost, 10 * 63_500);
}

#[test]
fn a_shut_window_is_the_reading_programs_fault() {
    let mut trace = Trace::new(us(100));
    for _ in 0..5 {
        trace.data(Client, 30_000).rtt_later().window(Server, 0);
        trace.after(us(150_000)).window(Server, 500).after(us(40));
    }
    trace.data(Client, 30_000).rtt_later().ack(Server);
    let finding = trace.only(Kind::ZeroWindow);
    assert_eq!(finding.bytes_held_by, Some(Client));
    near(finding.lost, 5 * 150_000);
}

/// A buffer of 8 KiB, of which 4 KiB are read every 20 ms: its window is never shut, and never has room for all.
#[test]
fn a_window_that_is_nearly_shut_is_the_reading_programs_fault() {
    let uploads = |then: u64| {
        let mut trace = Trace::new(us(50));
        trace.window(Server, 64).after(us(1_000));
        for _ in 0..5 {
            trace.data(Client, 8_192).after(us(20_000)).window(Server, 32).after(us(30));
            trace.data(Client, 4_096).after(us(20_000)).window(Server, 32).after(us(30));
            trace.data(Client, 4_000).after(us(20_000)).window(Server, 32);
            trace.after(us(20_000)).window(Server, 64).after(us(then)).data(Server, 1);
            trace.after(us(30)).ack(Client).after(us(1_000));
        }
        trace
    };
    let report = uploads(100).report();
    let findings = &report.connections[0].findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = &findings[0];
    assert_eq!((finding.kind, finding.severity), (Kind::ZeroWindow, Severity::LostTime));
    assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Client), Some(Server)));
    near(finding.lost, 5 * 80_000);
    // Once it has read all, the time is the program's own.
    let findings = uploads(300_000).findings();
    let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::ZeroWindow, Kind::Application]);
    near(findings[0].lost, 5 * 80_000);
    near(findings[1].lost, 5 * 300_000);
}

/// A whole window is in flight, and an ACK takes its time; but the window is as wide as ever.
#[test]
fn a_window_that_stays_wide_is_not_shut() {
    let mut trace = Trace::new(us(400));
    for _ in 0..100 {
        trace.data(Client, 64_000).after(us(9_000)).ack(Server).after(us(20));
    }
    trace.only(Kind::SenderQueue);
}

#[test]
fn a_lost_tail_costs_its_timeout() {
    let mut trace = Trace::new(us(10_000));
    trace.data(Client, 500).after(us(220_000)).again(Client, 500);
    trace.rtt_later().data(Server, 100).after(us(50)).ack(Client);
    let finding = trace.only(Kind::Retransmission);
    assert_eq!(finding.count, 1);
    near(finding.lost, 220_000);
}

/// While data is missing, ACKs that acknowledge nothing new make room in the window: what waited for them
/// would have left with the flight that went through before.
#[test]
fn a_window_that_is_smaller_since_a_loss_is_waited_for_while_the_loss_is_mended_too() {
    let mut trace = Trace::new(us(80_000));
    let flight = |trace: &mut Trace, segments| {
        for _ in 0..segments {
            trace.more(Client, MSS);
        }
    };
    flight(&mut trace, 40);
    trace.rtt_later().ack(Server).after(us(20));
    flight(&mut trace, 20);
    // The first segment of the flight is lost.
    trace.rtt_later().ack_behind(Server, 20 * MSS).after(us(20));
    trace.again_from(Client, 20 * MSS, MSS);
    flight(&mut trace, 1);
    trace.after(us(60_000)).ack_behind(Server, 21 * MSS).after(us(20));
    flight(&mut trace, 5);
    trace.after(us(20_000)).ack(Server).after(us(10)).data(Server, 100).after(us(50)).ack(Client);
    let finding = trace.only(Kind::Retransmission);
    assert_eq!(finding.count, 1);
    near(finding.lost, 80_000 + 60_000);
}

/// A program that has nothing to send during loss recovery is not waiting.
#[test]
fn what_follows_no_ack_while_a_loss_is_mended_is_no_wait() {
    let mut trace = Trace::new(us(80_000));
    for _ in 0..40 {
        trace.more(Client, MSS);
    }
    trace.rtt_later().ack(Server).after(us(20));
    trace.more(Client, MSS).more(Client, MSS).more(Client, MSS).more(Client, MSS);
    trace.rtt_later().ack_behind(Server, 4 * MSS).after(us(20));
    trace.again_from(Client, 4 * MSS, MSS);
    trace.after(us(20_000)).ack_behind(Server, 4 * MSS).after(us(40_000)).more(Client, MSS);
    trace.after(us(20_000)).ack(Server).after(us(10)).data(Server, 100).after(us(50)).ack(Client);
    near(trace.only(Kind::Retransmission).lost, 80_000);
}

/// A probe was sent because the ACK took its time: the ACK that comes then answers the first sending.
#[test]
fn what_was_sent_again_for_nothing_is_no_loss() {
    let mut trace = Trace::new(us(1_000));
    trace.data(Client, 500);
    let sent = trace.echo_of(Server);
    trace.after(us(40_000)).again(Client, 500).after(us(200));
    trace.set_echo(Server, sent).ack(Server);
    trace.after(us(700)).data(Server, 100).after(us(50)).ack(Client);
    assert!(trace.findings().iter().all(|finding| finding.kind != Kind::Retransmission));
}

#[test]
fn two_octets_a_segment_are_a_storm() {
    let mut trace = Trace::new(us(50));
    for _ in 0..20 {
        for _ in 0..15 {
            trace.data(Client, 2).after(us(3));
        }
        trace.rtt_later().data(Server, 2).after(us(10));
    }
    trace.only(Kind::TinyPackets);
}

#[test]
fn a_queue_of_the_senders_own_shows_in_the_round_trip() {
    let mut trace = Trace::new(us(400));
    for _ in 0..100 {
        trace.data(Client, 60_000).after(us(9_000)).ack(Server);
    }
    let finding = trace.only(Kind::SenderQueue);
    assert_eq!(finding.bytes_held_by, Some(Client));
}

/// What has arrived at the capture point has passed every queue: what is late there is its own host's ACK.
#[test]
fn a_receiver_that_is_busy_is_no_queue_of_the_senders() {
    let mut trace = Trace::new(us(4_000));
    for _ in 0..100 {
        trace.data(Server, 60_000).after(us(5_000)).ack(Client).after(us(200));
    }
    let findings = trace.findings();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Paced writes that follow each other's ACK by chance must not look like a hold.
#[test]
fn a_program_that_paces_itself_is_not_held() {
    let mut trace = Trace::new(us(100));
    for n in 0..200 {
        trace.data(Client, 120).after(us(40_100)).ack(Server).after(us(n * 777 % 60_000 + 1));
    }
    assert_eq!(trace.findings().len(), 0);
}

/// `tcpdump -i any` sees a segment on each device that it crosses.
#[test]
fn a_segment_captured_twice_is_not_sent_twice() {
    let mut trace = Trace::new(us(100));
    for _ in 0..10 {
        trace.data(Client, 120).after(us(15)).again(Client, 120);
        trace.rtt_later().data(Server, 80).after(us(15)).again(Server, 80).after(us(900));
    }
    assert_eq!(trace.findings().len(), 0);
}

/// The client computes for about as long as the server delays its ACK, and nothing holds it.
#[test]
fn a_pause_as_long_as_a_delayed_ack_is_no_hold() {
    let mut trace = Trace::new(us(60));
    for n in 0..25 {
        trace.data(Client, 20).after(us(40_000 + n * 173 % 4_000)).ack(Server);
        trace.after(us(1_600 + n * 731 % 2_900)).data(Client, 20).rtt_later();
        trace.data(Server, 20).after(us(100));
    }
    assert_eq!(trace.findings().len(), 0);
}

/// Several receive queues may show an ACK before what it acknowledges.
#[test]
fn an_ack_that_is_captured_before_its_data_is_no_retransmission() {
    let mut trace = Trace::new(us(60));
    for _ in 0..20 {
        trace.data(Client, 120).rtt_later().after(us(200));
        trace.ack_ahead(Client, 700).after(us(20)).data(Server, 700).after(us(900_000));
    }
    assert_eq!(trace.findings().len(), 0);
}

/// Events that a server pushes as they occur are no slow replies.
#[test]
fn a_stream_of_events_is_not_a_slow_program() {
    let mut trace = Trace::new(us(100));
    trace.data(Client, 120).rtt_later().data(Server, 90).after(us(40)).ack(Client);
    for _ in 0..40 {
        trace.after(us(250_000)).data(Server, 90).after(us(40)).ack(Client);
    }
    assert_eq!(trace.findings().len(), 0);
}

/// An ACK of data that the capture lacks says nothing about the data that it has.
#[test]
fn what_is_late_across_a_gap_of_the_capture_is_not_judged() {
    let mut trace = Trace::new(us(100));
    for _ in 0..10 {
        trace.data(Client, 120).rtt_later().data(Server, MSS).after(us(40)).ack(Client);
        trace.data(Server, MSS).after(us(45_000)).unseen(Server, MSS).ack(Client);
        trace.after(us(50)).data(Server, MSS).after(us(40)).ack(Client).after(us(900));
    }
    let report = trace.report();
    let connection = &report.connections[0];
    assert!(connection.findings.is_empty(), "{:#?}", connection.findings);
    assert!(connection.client.ack_delay.max < us(1_000), "{:?}", connection.client.ack_delay);
}
