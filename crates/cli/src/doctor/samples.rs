//! Reports as the doctor makes them, of every kind, for tests of their presentation.

use std::net::SocketAddr;
use std::time::Duration;

use uncork_doctor::Role::{Client, Server};
use uncork_doctor::remedy::{Context, remedies};
use uncork_doctor::{
    Command, Connection, Doctor, Example, Finding, Histogram, InForce, Kind, Party, Process, Push,
    Report, Role, SCHEMA_VERSION, Sampling, Seen, Settings, Severity, Spread, Summary, Uncork,
    What,
};
use uncork_wire::tcp::Flags;
use uncork_wire::{Segment, SeqNumber};

pub(crate) const KINDS: [Kind; 11] = [
    Kind::NagleDelayedAck,
    Kind::DelayedAck,
    Kind::QuickAckExhausted,
    Kind::CorkTimeout,
    Kind::TinyPackets,
    Kind::Runt,
    Kind::NoDelayNotInForce,
    Kind::SenderQueue,
    Kind::ZeroWindow,
    Kind::Retransmission,
    Kind::Application,
];

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn party(endpoint: &str, process: Option<(&str, u32, i32)>) -> Party {
    let process = process.map(|(name, pid, fd)| Process {
        pid,
        tid: Some(pid),
        name: name.to_owned(),
        fd: Some(fd),
        ..Process::default()
    });
    Party {
        endpoint: endpoint.parse::<SocketAddr>().unwrap().into(),
        process,
        data_segments: 1440,
        payload_bytes: 64_800,
        messages: 120,
        segments_per_message: 2,
        message_bytes: 540,
        mss: Some(1448),
        nagle: InForce::On,
        uncork: None,
        ack_delay: Histogram::default().spread(),
    }
}

/// `(µs, by, what, octets, offset)`
type Event = (u64, Role, What, u32, u32);

fn example((begin, end): (u64, u64), events: &[Event]) -> Example {
    let seen =
        |&(at, by, what, bytes, offset): &Event| Seen { at: us(at), by, what, bytes, offset };
    Example { begin: us(begin), end: us(end), events: events.iter().map(seen).collect() }
}

fn pictures(kind: Kind) -> Vec<Example> {
    use What::*;
    match kind {
        Kind::NagleDelayedAck | Kind::NoDelayNotInForce => vec![
            example(
                (812_082, 853_301),
                &[
                    (812_031, Client, Write, 45, 4_100),
                    (812_040, Client, Data, 45, 4_100),
                    (812_082, Client, Write, 495, 4_145),
                    (812_090, Client, Read, 0, 0),
                    (812_101, Server, Read, 45, 4_100),
                    (853_214, Server, AckTimer, 0, 0),
                    (853_240, Server, Ack, 0, 4_145),
                    (853_301, Client, Data, 495, 4_145),
                    (853_360, Server, Read, 495, 4_145),
                    (853_402, Server, Write, 120, 900),
                    (853_410, Server, Data, 120, 900),
                    (853_470, Client, Ack, 0, 1_020),
                ],
            ),
            example(
                (100, 40_900),
                &[
                    (40, Client, Data, 45, 0),
                    (40_800, Server, Ack, 0, 45),
                    (40_900, Client, Data, 9, 45),
                ],
            ),
        ],
        Kind::DelayedAck => vec![example(
            (5_020, 45_400),
            &[
                (5_000, Client, Data, 1448, 0),
                (45_400, Server, Ack, 0, 1448),
                (45_455, Client, Data, 1448, 1448),
                (45_530, Server, Ack, 0, 2896),
            ],
        )],
        Kind::QuickAckExhausted => vec![example(
            (100_050, 140_110),
            &[
                (80_000, Client, Data, 1024, 15_360),
                (80_055, Server, Ack, 0, 16_384),
                (100_050, Client, Data, 1024, 16_384),
                (140_110, Server, Ack, 0, 17_408),
                (140_160, Client, Data, 1024, 17_408),
                (180_222, Server, Ack, 0, 18_432),
            ],
        )],
        _ => more_pictures(kind),
    }
}

fn more_pictures(kind: Kind) -> Vec<Example> {
    use What::*;
    match kind {
        Kind::CorkTimeout => vec![example(
            (9_100, 212_400),
            &[
                (8_000, Client, Data, 210, 0),
                (9_050, Server, Data, 1448, 0),
                (9_060, Server, Data, 1448, 1448),
                (9_110, Client, Ack, 0, 2896),
                (212_400, Server, Data, 312, 2896),
                (212_460, Client, Ack, 0, 3208),
            ],
        )],
        Kind::Runt => vec![example(
            (1_010, 41_500),
            &[
                (1_000, Server, Data, 1448, 0),
                (1_004, Server, Data, 1448, 1448),
                (1_008, Server, Data, 1448, 2896),
                (1_080, Client, Ack, 0, 2896),
                (41_440, Client, Ack, 0, 4344),
                (41_500, Server, Data, 177, 4344),
            ],
        )],
        Kind::ZeroWindow => vec![example(
            (20_100, 145_900),
            &[
                (20_000, Client, Data, 65_160, 200_000),
                (20_100, Server, WindowShut, 0, 265_160),
                (145_850, Server, WindowOpen, 0, 265_160),
                (145_900, Client, Data, 28_960, 265_160),
            ],
        )],
        Kind::Retransmission => vec![example(
            (3_000, 207_300),
            &[
                (2_990, Client, Data, 1448, 0),
                (3_000, Client, Data, 300, 1448),
                (3_090, Server, Ack, 0, 1448),
                (207_300, Client, Again, 300, 1448),
                (207_390, Server, Ack, 0, 1748),
                (207_800, Server, Data, 80, 0),
                (207_850, Client, Fin, 0, 1748),
                (207_900, Server, Reset, 0, 80),
            ],
        )],
        Kind::Application => vec![example(
            (400, 88_000),
            &[
                (300, Client, Syn, 0, 0),
                (330, Server, Syn, 0, 0),
                (360, Client, Data, 210, 0),
                (400, Server, Ack, 0, 210),
                (88_000, Server, Data, 1200, 0),
                (88_050, Client, Ack, 0, 1200),
            ],
        )],
        _ => Vec::new(),
    }
}

/// Returns how long each took: `(times, µs)`, spread a little.
fn distribution(kind: Kind) -> &'static [(u64, u64)] {
    match kind {
        Kind::NagleDelayedAck | Kind::NoDelayNotInForce => {
            &[(110, 41_100), (8, 43_900), (2, 205_000)]
        }
        Kind::DelayedAck => &[(40, 40_380)],
        Kind::QuickAckExhausted => &[(83, 40_060)],
        Kind::CorkTimeout => &[(17, 203_000)],
        Kind::Runt => &[(30, 40_490), (12, 1_100)],
        Kind::SenderQueue => &[(300, 9_500), (80, 14_000)],
        Kind::ZeroWindow => &[(3, 125_800), (2, 18_000)],
        Kind::Retransmission => &[(2, 204_300), (1, 409_000), (5, 1_900)],
        Kind::Application => &[(9, 87_600), (4, 140_000)],
        Kind::TinyPackets => &[],
    }
}

fn evidence(kind: Kind) -> &'static str {
    match kind {
        Kind::NagleDelayedAck => {
            "120 small segments of the client waited for an ACK that the server delayed (205 ms \
             at most), and left right behind it; its messages come in 2 segments."
        }
        Kind::DelayedAck => {
            "40 ACKs of the server came late (40.4 ms at most), with nothing to ride on; the \
             client had to wait for 40 of them."
        }
        Kind::QuickAckExhausted => {
            "The server's first 16 ACKs were quick and the 83 since took 40.1 ms (median): its \
             quick-ACK credits are spent."
        }
        Kind::CorkTimeout => {
            "17 short segments of the server left with nothing in flight before and no ACK to \
             wait for, 203 ms after what came before: the time that a kernel leaves what is held \
             by TCP_CORK or MSG_MORE."
        }
        Kind::TinyPackets => {
            "The client sent 1440 segments where 120 would have done: on average 12 a \
             message, and 95 % of what went over the wire was headers."
        }
        Kind::Runt => {
            "42 short segments behind full ones of 1448 octets waited for an ACK (40.5 ms at \
             most): what is left of a message of about 4521 octets once it is cut into segments."
        }
        Kind::NoDelayNotInForce => {
            "The client's program set TCP_NODELAY on fd 7 and it was refused (EINVAL): Nagle's \
             algorithm held 120 segments."
        }
        Kind::SenderQueue => {
            "With up to 131072 octets of the client in flight, its ACKs took 9.5 ms (median) \
             where the path alone takes 0.050 ms: the rest is spent in a queue of its own making."
        }
        Kind::ZeroWindow => {
            "The server shut its receive window 5 times (126 ms at most), and the client went on \
             as soon as it opened: the program there does not read fast enough."
        }
        Kind::Retransmission => {
            "The client sent data again 8 times, the longest only after a timeout: 1.9 ms after \
             it was sent first (median), 409 ms at most."
        }
        Kind::Application => {
            "The server's program took 87.6 ms before it wrote 13 replies (140 ms at most), with \
             no byte and no ACK held by anybody: this is not TCP."
        }
    }
}

fn finding(kind: Kind, client: &Party, server: &Party) -> Finding {
    let mut times = Histogram::new();
    let mut lost = Duration::ZERO;
    for &(count, length) in distribution(kind) {
        for each in 0..count {
            let time = us(length + each * length / 900);
            times.record(time);
            lost += time;
        }
    }
    let sender = match kind {
        Kind::CorkTimeout | Kind::Runt | Kind::Application => Server,
        _ => Client,
    };
    let (bytes_held_by, ack_held_by) = match kind {
        Kind::TinyPackets
        | Kind::Application
        | Kind::CorkTimeout
        | Kind::SenderQueue
        | Kind::ZeroWindow
        | Kind::Retransmission => (Some(sender), None),
        _ => (Some(sender), Some(sender.other())),
    };
    let waste = matches!(kind, Kind::TinyPackets | Kind::SenderQueue);
    let context = Context { client, server, sender, bytes_held_by, ack_held_by };
    Finding {
        kind,
        severity: if waste { Severity::Waste } else { Severity::LostTime },
        count: if kind == Kind::TinyPackets { 120 } else { times.len() },
        lost: if waste { Duration::ZERO } else { lost },
        each: times.spread(),
        histogram: times.buckets(),
        bytes_held_by,
        ack_held_by,
        evidence: evidence(kind).to_owned(),
        remedies: remedies(kind, &context),
        examples: pictures(kind),
    }
}

pub(crate) fn connection(client: Party, server: Party, kinds: &[Kind]) -> Connection {
    let mut findings: Vec<_> = kinds.iter().map(|&kind| finding(kind, &client, &server)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.lost)));
    let of_tcp = |f: &&Finding| f.severity == Severity::LostTime && f.kind != Kind::Application;
    let lost = findings.iter().filter(of_tcp).map(|finding| finding.lost).sum::<Duration>();
    Connection {
        first_seen: 1_790_000_000.25,
        duration: us(8_812_345),
        handshake_seen: true,
        rtt: Some(us(52)),
        requests: 120,
        request_time: us(8_400_000).max(lost),
        stalls: findings.iter().filter(of_tcp).map(|finding| finding.count).sum(),
        lost,
        findings,
        client,
        server,
    }
}

pub(crate) fn report(mut connections: Vec<Connection>) -> Report {
    connections.sort_by_key(|connection| std::cmp::Reverse(connection.lost));
    let ill = |c: &&Connection| c.findings.iter().any(|f| f.severity > Severity::Harmless);
    let seen = 12.max(connections.len() as u64);
    let summary = Summary {
        segments: 184_023,
        payload_bytes: 92_811_004,
        not_tcp: 312,
        cut_short: 0,
        malformed: 0,
        duration: us(61_300_000),
        connections: if connections.is_empty() { 0 } else { seen },
        connections_with_findings: connections.iter().filter(ill).count() as u64,
        harmless: 3,
        stalls: connections.iter().map(|connection| connection.stalls).sum(),
        lost: connections.iter().map(|connection| connection.lost).sum(),
        request_time: connections.iter().map(|connection| connection.request_time).sum(),
    };
    of(summary, connections)
}

fn of(summary: Summary, connections: Vec<Connection>) -> Report {
    let (sampling, command, notes) = (None, None, Vec::new());
    Report { schema_version: SCHEMA_VERSION, summary, sampling, command, notes, connections }
}

/// Returns a report made without privilege: of a command that runs under uncork, and was polled.
pub(crate) fn looked_at() -> Report {
    let process = Some(("probe", 4711, 7));
    let (client, server) = (party("10.0.0.1:40000", process), party("10.0.0.2:80", None));
    let mut report = report(vec![connection(client, server, &[Kind::NagleDelayedAck])]);
    report.connections[0].requests = 0;
    report.connections[0].request_time = Duration::ZERO;
    report.sampling = Some(Sampling { looks: 4_812, typical: us(1_070), longest: us(9_300) });
    report.command =
        Some(Command { line: "./probe --once".to_owned(), status: Some(3), signal: None });
    report.notes = vec!["The sockets were not traced but looked at.".to_owned()];
    report.connections[0].client.uncork = Some(Uncork {
        hold: "kernel".to_owned(),
        state: "helped".to_owned(),
        writes: 12,
        bytes: 96,
        pushes: 4,
        packets_saved: 8,
        pushed_by: vec![Push { call: "read".to_owned(), count: 4 }],
        held: Some(Spread { count: 4, p50: us(40), p99: us(90), max: us(90) }),
        complete: true,
    });
    report
}

/// Returns a report without connections.
pub(crate) fn empty() -> Report {
    let summary = Summary { not_tcp: 7, ..Summary::default() };
    of(summary, Vec::new())
}

/// Returns a report of connections without a finding.
pub(crate) fn healthy() -> Report {
    let mut report = report(Vec::new());
    report.summary.connections = 12;
    report
}

/// Returns three connections, as one evening with a capture might look.
pub(crate) fn evening() -> Report {
    let redis = party("10.0.0.2:6379", Some(("redis-server", 812, 12)));
    let probe = party("10.0.0.1:40000", Some(("probe", 4711, 7)));
    let nginx = party("10.0.0.3:80", None);
    let web = party("192.168.17.44:51512", None);
    let (six, database) = (
        party("[2001:db8:85a3:8d3:1319:8a2e:370:7348]:49152", None),
        party("[2001:db8:85a3:8d3::5432]:5432", None),
    );
    report(vec![
        connection(probe, redis, &[Kind::NagleDelayedAck, Kind::TinyPackets]),
        connection(web, nginx, &[Kind::CorkTimeout]),
        connection(six, database, &[Kind::Retransmission, Kind::Application]),
    ])
}

/// Returns one connection for each kind.
pub(crate) fn every_kind() -> Report {
    let each = KINDS.iter().enumerate().map(|(index, &kind)| {
        let client = party(&format!("10.0.0.1:{}", 40_000 + index), Some(("python3", 4711, 7)));
        connection(client, party("10.0.0.2:8080", None), &[kind])
    });
    report(each.collect())
}

/// Returns a report of a slow program, and nothing else.
pub(crate) fn slow_program() -> Report {
    let (client, server) = (party("10.0.0.1:40000", None), party("10.0.0.2:80", None));
    report(vec![connection(client, server, &[Kind::Application])])
}

/// Returns the doctor's own report of a client that writes twice for each request, and whose second
/// write waits for an ACK that is 40 ms late.
pub(crate) fn by_the_doctor() -> Report {
    let mut doctor = Doctor::new(Settings::default());
    let mut now = Duration::from_secs(1_790_000_000);
    let ends = ["[fd00::1]:40000", "[fd00::2]:6379"].map(|end| end.parse::<SocketAddr>().unwrap());
    let mut next = [SeqNumber(1_000), SeqNumber(77)];
    let mut send = |after_us: u64, by: usize, flags: Flags, payload_bytes: u32| {
        now += us(after_us);
        let syn = flags.has(Flags::SYN);
        let segment = Segment {
            source: ends[by].into(),
            destination: ends[1 - by].into(),
            seq: next[by],
            ack: flags.has(Flags::ACK).then_some(next[1 - by]),
            flags,
            window: 500,
            payload_bytes,
            mss: syn.then_some(1440),
            window_scale: syn.then_some(7),
            timestamps: None,
            sack: None,
            sack_permitted: syn,
            congestion_experienced: false,
            option_lies: false,
        };
        next[by] += payload_bytes + u32::from(syn);
        doctor.segment(now, &segment);
    };
    let data = Flags(Flags::ACK.0 | Flags::PSH.0);
    send(0, 0, Flags::SYN, 0);
    send(50, 1, Flags(Flags::SYN.0 | Flags::ACK.0), 0);
    send(20, 0, Flags::ACK, 0);
    for _ in 0..20 {
        send(30, 0, data, 45);
        send(40_060, 1, Flags::ACK, 0);
        send(15, 0, data, 495);
        send(60, 1, data, 120);
    }
    doctor.finish()
}

/// Returns the report of a machine with very many connections, over IPv6.
pub(crate) fn many() -> Report {
    let each = (0..500).map(|index| {
        let client = party(&format!("[2001:db8::{index:x}]:{}", 32_768 + index), None);
        let kinds: &[Kind] = match index % 5 {
            0 => &[Kind::Retransmission],
            1 => &[Kind::CorkTimeout, Kind::Application],
            _ => &[Kind::NagleDelayedAck],
        };
        connection(client, party("[2001:db8:ffff::1]:6379", None), kinds)
    });
    report(each.collect())
}

/// Returns names and sentences that try to be markup, or to control a terminal.
pub(crate) fn hostile() -> Report {
    let evil = "</pre><script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>";
    let client = party("10.0.0.1:40000", Some((evil, 1, 3)));
    let server = party("10.0.0.2:80", Some(("\x1b[2J\"'&<b>", 2, 4)));
    let mut connection = connection(client, server, &[Kind::NagleDelayedAck]);
    for finding in &mut connection.findings {
        finding.evidence = format!("{evil} \x1b]0;x\x07");
        for remedy in &mut finding.remedies {
            remedy.line = format!("{evil}; {}", remedy.line);
            remedy.why = evil.to_owned();
        }
    }
    report(vec![connection])
}
