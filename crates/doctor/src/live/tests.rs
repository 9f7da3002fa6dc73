//! Reports from events as they were recorded on loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::report::{Finding, Kind, What};
use crate::{Histogram, InForce};

const CLIENT: u16 = 50_084;
const SERVER: u16 = 7524;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn end(port: u16) -> Endpoint {
    Endpoint { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port }
}

fn ends(local: u16, remote: u16) -> Ends {
    Ends { local: end(local), remote: end(remote) }
}

fn who(pid: u32, name: &str) -> Who {
    Who { pid, tid: pid + 1, name: name.to_owned() }
}

/// Returns a hold of the server's second write, from `begin` on, until the ACK that comes after `took`.
fn held(begin: Duration, took: Duration) -> Held {
    Held {
        socket: 4097,
        ends: ends(SERVER, CLIENT),
        writer: who(30651, "python3"),
        inode: 4_837_744,
        why: Why::Nagle,
        release: Release::Ack,
        begin,
        end: begin + took,
        message_begin: begin - us(30),
        offset: 700,
        bytes: 200,
        outstanding_bytes: 100,
        before_bytes: 100,
        mss: 32_768,
        nodelay: false,
        min_rtt: us(10),
        stack: Vec::new(),
    }
}

fn ack_timer(at: Duration, held: Duration) -> AckTimer {
    AckTimer {
        socket: 0,
        ends: ends(CLIENT, SERVER),
        inode: 4_838_692,
        at,
        held,
        offset: 700,
        bytes: 100,
        segments_in: 5,
        quick_credits: 12,
        interactive: true,
    }
}

fn socket(origin: Origin) -> Socket {
    let (local, remote) = match origin {
        Origin::Opened => (CLIENT, SERVER),
        _ => (SERVER, CLIENT),
    };
    Socket {
        socket: 4097,
        ends: ends(local, remote),
        origin,
        owner: who(30651, "python3"),
        writer: Who { name: String::new(), ..who(30651, "") },
        inode: 4_837_744,
        fd: Some(4),
        since: us(1_000_000),
        until: us(3_000_000),
        segments_out: 16,
        segments_in: 8,
        bytes_out: 2400,
        bytes_in: 24,
        retransmissions: 0,
        window_limited: Duration::ZERO,
        busy: us(316_000),
        options: Options::default(),
        writing: Writing {
            writes: 16,
            bytes: 2400,
            messages: 8,
            message_writes: 16,
            message_segments: 16,
            message_bytes: 2400,
            typical_bytes: 300,
            typical_segments: 2,
            time: us(172),
        },
        turns: times(&[us(20); 8]),
        turn_time: us(160),
        waits: Histogram::new(),
        wait_time: Duration::ZERO,
        short_holds: (0, Duration::ZERO),
        queue: Queue::default(),
        srtt: us(18_000),
        min_rtt: us(10),
        mss: 32_768,
        ack_timers: 0,
        awaited_acks: 0,
        awaited_ack_time: Duration::ZERO,
    }
}

fn times(times: &[Duration]) -> Histogram {
    let mut histogram = Histogram::new();
    times.iter().for_each(|time| histogram.record(*time));
    histogram
}

fn report(events: impl IntoIterator<Item = Event>) -> Report {
    report_of(Settings::default(), events)
}

fn report_of(settings: Settings, events: impl IntoIterator<Item = Event>) -> Report {
    let mut live = Live::new(settings, Duration::ZERO);
    live.listening(SERVER);
    events.into_iter().for_each(|event| live.event(event));
    live.finish()
}

fn only(report: &Report) -> &Finding {
    assert_eq!(report.connections.len(), 1, "{report:?}");
    let findings = &report.connections[0].findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    &findings[0]
}

#[test]
fn nagle_and_the_ack_that_it_waited_for_are_named_in_whatever_order_they_come() {
    let begin = us(1_500_000);
    let hold = || Event::Held(held(begin, us(43_870)));
    let ack = || Event::AckTimer(ack_timer(begin + us(43_800), us(43_810)));
    let socket = || Event::Socket(Box::new(socket(Origin::Accepted)));
    for events in [[ack(), hold(), socket()], [hold(), ack(), socket()]] {
        let report = report(events);
        let finding = only(&report);
        assert_eq!((finding.kind, finding.count), (Kind::NagleDelayedAck, 1));
        assert_eq!(finding.bytes_held_by, Some(Role::Server));
        assert_eq!(finding.ack_held_by, Some(Role::Client));
        assert_eq!(finding.lost, us(43_870));
        assert!(!finding.remedies.is_empty());
        let seen: Vec<_> =
            finding.examples[0].events.iter().map(|seen| (seen.by, seen.what)).collect();
        assert_eq!(seen.last(), Some(&(Role::Server, What::Data)));
        assert!(seen.contains(&(Role::Client, What::AckTimer)), "{seen:?}");
        assert_eq!(finding.examples[0].begin, us(500_000));
        let server = &report.connections[0].server;
        assert_eq!(server.nagle, InForce::On);
        let process = server.process.as_ref().unwrap();
        assert_eq!((process.pid, process.fd, process.name.as_str()), (30651, Some(4), "python3"));
    }
}

#[test]
fn a_far_end_is_known_to_delay_its_ack_by_the_time_it_took() {
    let hold = |took| (0..4).map(move |n| Event::Held(held(us(1_500_000 + n * 100_000), took)));
    let near = report(hold(us(1_200)));
    assert_eq!(only(&near).ack_held_by, None, "a mere round trip");
    let late = report(hold(us(40_500)));
    assert_eq!(only(&late).ack_held_by, Some(Role::Client));
    // Two short holds are no pattern.
    assert!(report(hold(us(1_200)).take(2)).connections.is_empty());
}

/// The writes of an end that is not traced are not counted from the first one on.
#[test]
fn an_end_that_is_not_traced_is_told_by_its_segments() {
    let told = |origin, typical_segments| {
        let mut socket = socket(origin);
        socket.writing.typical_segments = typical_segments;
        let holds = (0..4).map(|n| Event::Held(held(us(1_500_000 + n * 100_000), us(40_500))));
        only(&report(holds.chain([Event::Socket(Box::new(socket))]))).evidence.clone()
    };
    let traced = told(Origin::Accepted, 2);
    assert!(traced.ends_with("It makes 2 writes for a message of 300 octets."), "{traced}");
    let other = told(Origin::Peer, 2);
    assert!(other.ends_with(" Its messages come in 2 segments."), "{other}");
    assert!(told(Origin::Peer, 1).ends_with("that ACK was delayed."));
}

/// What is known of a process whose sockets are closed when it is asked.
#[test]
fn a_process_with_a_socket_that_has_sent_is_known_to_have_written() {
    let mut live = Live::new(Settings::default(), Duration::ZERO);
    live.event(Event::Socket(Box::new(Socket { owner: who(7, "a"), ..socket(Origin::Accepted) })));
    let silent = Socket { bytes_out: 0, owner: who(8, "b"), ..socket(Origin::Opened) };
    live.event(Event::Socket(Box::new(silent)));
    assert!(live.has_written(7) && !live.has_written(8));
}

#[test]
fn what_the_program_lets_go_of_itself_is_no_stall() {
    for (why, release) in [
        (Why::Cork, Release::Option),
        (Why::Cork, Release::Write),
        (Why::Nagle, Release::Write),
        (Why::Nagle, Release::End),
    ] {
        let held = Held { why, release, ..held(us(1_500_000), us(60_000)) };
        let report = report([Event::Held(held)]);
        assert!(report.connections.is_empty(), "{why:?} {release:?}");
    }
}

#[test]
fn a_corked_tail_is_named_when_the_timer_sends_it() {
    let held = Held {
        why: Why::Cork,
        release: Release::Timer,
        outstanding_bytes: 0,
        ..held(us(1_500_000), us(207_790))
    };
    let report = report([Event::Held(held)]);
    let finding = only(&report);
    assert_eq!((finding.kind, finding.lost), (Kind::CorkTimeout, us(207_790)));
    assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Role::Server), None));
}

#[test]
fn a_short_rest_behind_full_segments_is_a_runt() {
    let held = Held { before_bytes: 2 * 1448, mss: 1448, ..held(us(1_500_000), us(40_100)) };
    assert_eq!(only(&report([Event::Held(held)])).kind, Kind::Runt);
}

#[test]
fn a_late_ack_that_nobody_waits_for_is_harmless() {
    let acks = || (1..5).map(|n| Event::AckTimer(ack_timer(us(1_500_000 * n), us(43_800))));
    assert!(report(acks()).connections.is_empty());
    let settings = Settings { every_connection: true, ..Settings::default() };
    let report = report_of(settings, acks());
    let finding = only(&report);
    assert_eq!((finding.kind, finding.severity), (Kind::DelayedAck, Severity::Harmless));
    assert_eq!((finding.count, finding.lost), (4, Duration::ZERO));
    assert_eq!(report.summary.connections_with_findings, 0);
}

#[test]
fn spent_credits_are_told_from_the_first_late_ack() {
    let acks = (1..5).map(|n| {
        let timer = ack_timer(us(1_500_000 * n), us(43_800));
        Event::AckTimer(AckTimer { segments_in: 17, quick_credits: 0, interactive: false, ..timer })
    });
    let settings = Settings { every_connection: true, ..Settings::default() };
    assert_eq!(only(&report_of(settings, acks)).kind, Kind::QuickAckExhausted);
}

#[test]
fn data_right_behind_our_late_acks_was_held_at_the_far_end() {
    let client = Socket {
        awaited_acks: 9,
        awaited_ack_time: us(396_000),
        waits: times(&[us(44_000); 9]),
        wait_time: us(396_100),
        ..socket(Origin::Opened)
    };
    let report = report([Event::Socket(Box::new(client))]);
    let finding = only(&report);
    assert_eq!((finding.kind, finding.count), (Kind::NagleDelayedAck, 9));
    assert_eq!(finding.bytes_held_by, Some(Role::Server));
    assert_eq!(finding.ack_held_by, Some(Role::Client));
    assert_eq!(finding.lost, us(396_000));
    assert_eq!(report.connections[0].requests, 9);
}

#[test]
fn no_more_is_lost_than_the_requests_took_of_which_the_last_has_no_reply_yet() {
    let client = Socket {
        awaited_acks: 9,
        awaited_ack_time: us(396_000),
        waits: times(&[us(44_000); 8]),
        wait_time: us(352_100),
        ..socket(Origin::Opened)
    };
    let report = report([Event::Socket(Box::new(client))]);
    assert_eq!(only(&report).lost, us(396_000));
    assert_eq!(report.connections[0].request_time, us(396_000));
}

#[test]
fn a_slow_program_is_not_tcp() {
    let server = Socket {
        turns: times(&[us(50_500); 20]),
        turn_time: us(1_010_000),
        ..socket(Origin::Accepted)
    };
    let report = report([Event::Socket(Box::new(server))]);
    let finding = only(&report);
    assert_eq!((finding.kind, finding.count), (Kind::Application, 20));
    assert_eq!((finding.bytes_held_by, finding.ack_held_by), (Some(Role::Server), None));
    let off = finding.lost.as_secs_f64() / 1.01 - 1.0;
    assert!(off.abs() < 0.02, "{:?}", finding.lost);
    assert_eq!((report.summary.stalls, report.summary.lost), (0, Duration::ZERO));
}

#[test]
fn a_single_slow_reply_is_told_in_the_singular() {
    for (count, sentence) in
        [(1, "1 reply took 50.2 ms, where"), (2, "2 replies took 50.2 ms (median, 50.")]
    {
        let client = Socket {
            waits: times(&vec![us(50_200); count]),
            wait_time: us(50_200) * u32::try_from(count).unwrap(),
            ..socket(Origin::Opened)
        };
        let report = report([Event::Socket(Box::new(client))]);
        let evidence = &only(&report).evidence;
        assert!(evidence.starts_with(sentence), "{evidence}");
    }
}

#[test]
fn an_option_set_too_late_or_taken_back_is_named() {
    let hold = || Event::Held(held(us(1_500_000), us(43_870)));
    let options = |on, off| Options {
        nodelay_on: on,
        nodelay_off: off,
        nodelay: off.is_none(),
        ..Options::default()
    };
    for (on, off, named) in [
        (Some(us(2_000_000)), None, true),
        (Some(us(1_100_000)), Some(us(1_200_000)), true),
        (None, None, false),
    ] {
        let socket = Socket { options: options(on, off), ..socket(Origin::Accepted) };
        let report = report([hold(), Event::Socket(Box::new(socket))]);
        let findings = &report.connections[0].findings;
        let found = findings.iter().any(|finding| finding.kind == Kind::NoDelayNotInForce);
        assert_eq!(found, named, "{on:?} {off:?}");
    }
}

#[test]
fn a_program_that_is_served_well_gets_no_finding() {
    let options = Options { nodelay: true, nodelay_on: Some(us(1)), ..Options::default() };
    let server = Socket { options, ..socket(Origin::Accepted) };
    let report = report([Event::Socket(Box::new(server))]);
    assert!(report.connections.is_empty(), "{report:?}");
    assert_eq!((report.summary.connections, report.summary.segments), (1, 24));
}

#[test]
fn connections_are_let_go_of_when_both_ends_had_the_time_to_be_told() {
    let mut live = Live::new(Settings::default(), Duration::ZERO);
    live.event(Event::Held(held(us(1_500_000), us(43_870))));
    live.event(Event::Socket(Box::new(socket(Origin::Accepted))));
    live.forget(us(2_999_999));
    assert_eq!(live.links.len(), 1);
    live.forget(us(3_000_000));
    assert!(live.links.is_empty());
    // The same ports again.
    live.event(Event::Socket(Box::new(Socket {
        since: us(4_000_000),
        ..socket(Origin::Accepted)
    })));
    live.event(Event::Socket(Box::new(Socket {
        since: us(5_000_000),
        ..socket(Origin::Accepted)
    })));
    assert_eq!(live.finish().summary.connections, 3);
}

#[test]
fn what_asks_for_a_shut_window_was_not_lost() {
    let lost = |at: u64, window_shut| {
        Event::Lost(Lost {
            socket: 4097,
            ends: ends(SERVER, CLIENT),
            at: us(at),
            waited: us(200_000),
            bytes: 1448,
            timeout: true,
            window_shut,
        })
    };
    let probes = report([lost(1_400_000, true), lost(1_800_000, true)]);
    assert_eq!(only(&probes).kind, Kind::ZeroWindow);
    assert_eq!(only(&probes).lost, us(400_000));
    // Two of the same moment are waited for once.
    let both = report([lost(1_400_000, false), lost(1_401_000, false)]);
    assert_eq!((only(&both).kind, only(&both).count), (Kind::Retransmission, 2));
    assert_eq!(only(&both).lost, us(201_000));
}

#[test]
fn nodelay_that_went_astray_is_told_with_where_it_went() {
    for (astray, said) in [
        (Astray::Level("SOL_SOCKET, where option 1 is SO_DEBUG"), "level SOL_SOCKET"),
        (Astray::Short { octets: 1 }, "a value of 1 octet"),
        (Astray::Listener, "on the listening socket"),
        (Astray::NotTcp, "not TCP's"),
    ] {
        let options = Options { nodelay_astray: Some(astray), ..Options::default() };
        let socket = Socket { options, ..socket(Origin::Accepted) };
        let hold = Event::Held(held(us(1_500_000), us(43_870)));
        let report = report([hold, Event::Socket(Box::new(socket))]);
        let findings = &report.connections[0].findings;
        let found = findings.iter().find(|finding| finding.kind == Kind::NoDelayNotInForce);
        assert!(found.unwrap().evidence.contains(said), "{found:?}");
    }
}

#[test]
fn a_bulk_transfer_that_meets_the_window_now_and_then_is_well() {
    for (limited, named) in [(24_000, false), (900_000, true)] {
        let sender =
            Socket { window_limited: us(limited), busy: us(1_000_000), ..socket(Origin::Accepted) };
        let report = report([Event::Socket(Box::new(sender))]);
        let found: Vec<_> = report.connections.iter().flat_map(|c| &c.findings).collect();
        assert_eq!(found.iter().any(|f| f.kind == Kind::ZeroWindow), named, "{limited} µs");
    }
}

/// Two full segments, and a window of one: the second waits for the ACK of the first, with or
/// without Nagle's algorithm.
#[test]
fn a_window_of_one_segment_waits_for_the_late_ack() {
    let hold = |took| Held {
        why: Why::LoneSegment,
        mss: 1448,
        bytes: 1448,
        outstanding_bytes: 1448,
        before_bytes: 1448,
        nodelay: true,
        min_rtt: us(1_000),
        ..held(us(1_500_000), us(took))
    };
    let late = report([Event::Held(hold(41_000))]);
    let finding = only(&late);
    assert_eq!((finding.kind, finding.severity), (Kind::DelayedAck, Severity::LostTime));
    assert_eq!(
        (finding.bytes_held_by, finding.ack_held_by),
        (Some(Role::Server), Some(Role::Client))
    );
    assert_eq!((finding.count, finding.lost), (1, us(40_000)));
    assert!(report([Event::Held(hold(1_100))]).connections.is_empty(), "a mere round trip");
    let lost = Lost {
        socket: 4097,
        ends: ends(SERVER, CLIENT),
        at: us(1_720_000),
        waited: us(220_000),
        bytes: 1448,
        timeout: true,
        window_shut: false,
    };
    let report = report([Event::Lost(lost), Event::Held(hold(221_000))]);
    assert_eq!(only(&report).kind, Kind::Retransmission);
}

#[test]
fn spent_credits_are_told_beside_the_nagle_that_waited_for_them() {
    let events = |reader_wrote: u32| {
        let both = (0..5).flat_map(|n| {
            let begin = us(1_500_000 + n * 130_000);
            let timer = ack_timer(begin + us(41_000), us(41_010));
            let timer = AckTimer { segments_in: 17, quick_credits: 0, interactive: false, ..timer };
            [Event::AckTimer(timer), Event::Held(held(begin, us(41_050)))]
        });
        let reader = Socket {
            segments_out: reader_wrote,
            waits: Histogram::new(),
            ..socket(Origin::Opened)
        };
        report(both.chain([Event::Socket(Box::new(reader))]))
    };
    let one_way = events(0);
    let kinds: Vec<_> = one_way.connections[0].findings.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::NagleDelayedAck, Kind::QuickAckExhausted]);
    let spent = &one_way.connections[0].findings[1];
    assert_eq!((spent.bytes_held_by, spent.ack_held_by), (Some(Role::Server), Some(Role::Client)));
    assert_eq!((spent.count, spent.lost), (5, Duration::ZERO));
    assert_eq!(one_way.connections[0].lost, us(5 * 41_050));
    // An end that replies delays its ACKs to piggyback them on the reply.
    assert_eq!(only(&events(9)).kind, Kind::NagleDelayedAck);
}

/// What fills the window waits in the sender's own queue: the receiver has room again as soon as
/// something arrives.
#[test]
fn a_window_that_is_full_of_what_is_queued_is_not_shut() {
    let upload = |samples| {
        let queue =
            Queue { samples, mean_rtt: us(180_000), longest_rtt: us(300_000), most_bytes: 700_000 };
        let sender = Socket {
            window_limited: us(300_000),
            busy: us(420_000),
            min_rtt: us(1_000),
            queue,
            waits: times(&[us(420_000)]),
            wait_time: us(420_000),
            ..socket(Origin::Opened)
        };
        report([Event::Socket(Box::new(sender))])
    };
    let queued = upload(16);
    assert_eq!(only(&queued).kind, Kind::SenderQueue);
    assert_eq!(only(&queued).bytes_held_by, Some(Role::Client));
    assert_eq!(only(&upload(0)).kind, Kind::ZeroWindow);
}
