//! The doctor's report: the types that the table, the JSON and the page are made from.
//!
//! `docs/doctor.schema.json` describes the JSON; a change of these shapes changes
//! [`SCHEMA_VERSION`].

use std::time::Duration;

use serde::{Serialize, Serializer};
use uncork_wire::Endpoint;

/// Version of the JSON. Raised when a field changes its meaning or goes away, not when one is
/// added.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was looked at.
    pub summary: Summary,
    /// How the sockets were polled, if they were not traced. What was found is then a lower bound, and
    /// requests and messages are not counted.
    pub sampling: Option<Sampling>,
    /// The command that was watched, and how it ended.
    pub command: Option<Command>,
    /// The reservations that the rest of the report is subject to, each a sentence.
    pub notes: Vec<String>,
    /// One entry for each connection that has a finding, worst first; all of them if asked.
    pub connections: Vec<Connection>,
}

/// The polling of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Sampling {
    /// Number of polls.
    pub looks: u64,
    /// Typical time from one poll to the next, in milliseconds.
    #[serde(rename = "typical_ms", serialize_with = "milliseconds")]
    pub typical: Duration,
    /// Longest time from one poll to the next, in milliseconds.
    #[serde(rename = "longest_ms", serialize_with = "milliseconds")]
    pub longest: Duration,
}

/// A command, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Command {
    /// Its name and arguments, with blanks between.
    pub line: String,
    /// Its exit status; none if a signal ended it, or if it was still running.
    pub status: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
}

/// The totals of what was seen.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// TCP segments that were understood (a segment train counts once).
    pub segments: u64,
    /// Octets of data in them.
    pub payload_bytes: u64,
    /// Frames that are not TCP.
    pub not_tcp: u64,
    /// Frames too short for their headers (a short snap length).
    pub cut_short: u64,
    /// Frames or options that contradict themselves.
    pub malformed: u64,
    /// Time from the first to the last segment, in milliseconds.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    /// Connections seen.
    pub connections: u64,
    /// Connections with at least one finding that is not harmless.
    pub connections_with_findings: u64,
    /// Harmless findings; they are listed with their connections only on request.
    pub harmless: u64,
    /// Stalls of all connections.
    pub stalls: u64,
    /// Time that they cost, in milliseconds.
    #[serde(rename = "lost_ms", serialize_with = "milliseconds")]
    pub lost: Duration,
    /// Time that requests took, in milliseconds: never less than what was lost.
    #[serde(rename = "request_ms", serialize_with = "milliseconds")]
    pub request_time: Duration,
}

/// One connection.
#[derive(Debug, Clone, Serialize)]
pub struct Connection {
    /// The end that opened it, or that seems to have.
    pub client: Party,
    /// The end that accepted it, or that seems to have.
    pub server: Party,
    /// When its first segment was seen, in seconds since 1970.
    pub first_seen: f64,
    /// Time from its first to its last segment, in milliseconds.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    /// Whether its handshake was seen.
    pub handshake_seen: bool,
    /// Shortest round trip, from client to server and back, in milliseconds.
    #[serde(rename = "rtt_ms", serialize_with = "some_milliseconds")]
    pub rtt: Option<Duration>,
    /// Requests that were answered.
    pub requests: u64,
    /// Time from each request's first octet to its reply's last, added up, in milliseconds. Lost time
    /// is always within it: of a request without a reply, the time until its own last octet counts.
    #[serde(rename = "request_ms", serialize_with = "milliseconds")]
    pub request_time: Duration,
    /// Stalls that TCP is to blame for.
    pub stalls: u64,
    /// What they cost, in milliseconds.
    #[serde(rename = "lost_ms", serialize_with = "milliseconds")]
    pub lost: Duration,
    /// What was found, worst first.
    pub findings: Vec<Finding>,
}

/// One end of a connection.
#[derive(Debug, Clone, Serialize)]
pub struct Party {
    /// Address and port.
    #[serde(serialize_with = "display")]
    pub endpoint: Endpoint,
    /// Its process, where that was seen (live only).
    pub process: Option<Process>,
    /// Segments with data that it sent (a segment train counts once).
    pub data_segments: u64,
    /// Data that it sent, in octets.
    pub payload_bytes: u64,
    /// Messages: runs of data until the other end answered or the sender paused.
    pub messages: u64,
    /// Median number of segments in a message.
    pub segments_per_message: u32,
    /// Median length of a message, in octets.
    pub message_bytes: u32,
    /// Largest segment that it may send, in octets, if known.
    pub mss: Option<u32>,
    /// Whether Nagle's algorithm held its small segments back.
    pub nagle: InForce,
    /// What libuncork.so does for this socket, if the process runs under it and could be asked.
    pub uncork: Option<Uncork>,
    /// Longest and typical delay of its ACKs, in milliseconds.
    pub ack_delay: Spread,
}

/// A process and its descriptor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Thread that made the last call, if one was seen.
    pub tid: Option<u32>,
    /// Its name (comm).
    pub name: String,
    /// Its command line, quoted for a shell, if that was seen; one that is too long ends with "…".
    pub command: Option<String>,
    /// Whether no library can be preloaded into its program: that is static, of Go, or gains privileges.
    #[serde(skip)]
    pub beyond_preload: bool,
    /// Whether it is in another network namespace than who examines it.
    #[serde(skip)]
    pub elsewhere: bool,
    /// Descriptor of the socket, if known.
    pub fd: Option<i32>,
}

/// The work of libuncork.so for a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Uncork {
    /// Where it holds small writes: `kernel`, `user`, or `off`.
    pub hold: String,
    /// `helped`, or why the socket is passed through.
    pub state: String,
    /// Writes that the program made.
    pub writes: u64,
    /// What it wrote, in octets.
    pub bytes: u64,
    /// Logical packets in which these left.
    pub pushes: u64,
    /// Packets that were saved, since their bytes left with others.
    pub packets_saved: u64,
    /// What pushed them, where that was counted.
    pub pushed_by: Vec<Push>,
    /// How long bytes were held, where that was measured.
    pub held: Option<Spread>,
    /// Whether these are the final counts, told when the socket was closed or its process ended;
    /// otherwise more may have followed.
    pub complete: bool,
}

/// A cause that lets held bytes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Push {
    /// The call, or `timer`.
    pub call: String,
    /// How often.
    pub count: u64,
}

impl Uncork {
    /// Returns whether it gathers this socket's writes.
    #[must_use]
    pub fn helps(&self) -> bool {
        self.state.starts_with("helped")
    }
}

/// The state of an option, as far as it can be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InForce {
    /// It was, it seems: bytes waited for an ACK (as those sent with MSG_MORE do); or the kernel said so.
    On,
    /// It was not: small segments left without waiting for each other's ACK, or the kernel said so.
    Off,
    /// It was on at times and off at others.
    Changed,
    /// Nothing happened that would tell.
    Unknown,
}

/// Median and maximum of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    /// How many were measured.
    pub count: u64,
    /// Median: half were at most this long, in milliseconds.
    #[serde(rename = "p50_ms", serialize_with = "milliseconds")]
    pub p50: Duration,
    /// 99th percentile: one in a hundred was longer than this, in milliseconds.
    #[serde(rename = "p99_ms", serialize_with = "milliseconds")]
    pub p99: Duration,
    /// Maximum, in milliseconds.
    #[serde(rename = "max_ms", serialize_with = "milliseconds")]
    pub max: Duration,
}

/// A bucket of a distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Lower bound: none was shorter, in milliseconds.
    #[serde(rename = "from_ms", serialize_with = "milliseconds")]
    pub from: Duration,
    /// Upper bound: all were shorter than this, in milliseconds.
    #[serde(rename = "to_ms", serialize_with = "milliseconds")]
    pub to: Duration,
    /// Times in the bucket.
    pub count: u64,
}

/// The kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nagle's algorithm held bytes until an ACK that the other end had delayed.
    NagleDelayedAck,
    /// An ACK was delayed, with nothing to piggyback on.
    DelayedAck,
    /// ACKs were quick at first and late once the quick-ACK credits were spent.
    #[serde(rename = "quickack_exhausted")]
    QuickAckExhausted,
    /// A corked tail (TCP_CORK, MSG_MORE) was sent by the kernel's timeout of 200 ms; or one sent with
    /// MSG_MORE by the ACK of what was before it.
    CorkTimeout,
    /// Many tiny segments where few would do.
    TinyPackets,
    /// A short last segment was held after full ones.
    Runt,
    /// TCP_NODELAY was asked for and is not in force.
    #[serde(rename = "nodelay_not_in_force")]
    NoDelayNotInForce,
    /// Bytes queue below the sender's own TCP.
    SenderQueue,
    /// The receiver's window was shut.
    ZeroWindow,
    /// Segments were lost and retransmitted.
    Retransmission,
    /// The program took its time: not TCP's fault.
    Application,
}

/// The cost of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// An oddity that cost no waiting.
    Harmless,
    /// Packets and processor time were wasted, but no waiting could be measured.
    Waste,
    /// Time was lost waiting.
    LostTime,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The end that opened it.
    Client,
    /// The end that accepted it.
    Server,
}

impl Role {
    /// Returns the other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A finding about a connection.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The kind of trouble.
    pub kind: Kind,
    /// What it costs.
    pub severity: Severity,
    /// How often it happened.
    pub count: u64,
    /// Time that it cost, in milliseconds. For [`Kind::Application`] the program's own time, which
    /// is not part of the connection's sum.
    #[serde(rename = "lost_ms", serialize_with = "milliseconds")]
    pub lost: Duration,
    /// How long each took.
    pub each: Spread,
    /// The distribution of these times ([`crate::Histogram::buckets`]): the buckets that are not empty,
    /// shortest first.
    pub histogram: Vec<Bucket>,
    /// The end whose bytes it is about: that held them, sent tiny segments, or retransmitted.
    pub bytes_held_by: Option<Role>,
    /// The end that held the ACK, or shut the window.
    pub ack_held_by: Option<Role>,
    /// What was seen, in a sentence or two, with its numbers.
    pub evidence: String,
    /// What to do about it, best first.
    pub remedies: Vec<Remedy>,
    /// A few of the stalls, worst first.
    pub examples: Vec<Example>,
}

/// A way to cure a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// The end at which it is applied.
    pub at: Role,
    /// A command or a setting, one line.
    pub line: String,
    /// What it does, in a few words.
    pub why: String,
}

/// One stall, with what was seen around it: enough to draw it.
#[derive(Debug, Clone, Serialize)]
pub struct Example {
    /// When it began, in milliseconds after the connection's first segment.
    #[serde(rename = "begin_ms", serialize_with = "milliseconds")]
    pub begin: Duration,
    /// When it ended, in the same unit.
    #[serde(rename = "end_ms", serialize_with = "milliseconds")]
    pub end: Duration,
    /// What was seen from shortly before to shortly after, in order.
    pub events: Vec<Seen>,
}

/// An event that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// When it was seen, in milliseconds after the connection's first segment.
    #[serde(rename = "at_ms", serialize_with = "milliseconds")]
    pub at: Duration,
    /// The end that did it.
    pub by: Role,
    /// What it was.
    pub what: What,
    /// Length in octets, where it is about data.
    pub bytes: u32,
    /// Offset of its first octet in this direction's stream; for an ACK, of what is acknowledged.
    pub offset: u32,
}

/// The kinds of events that can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// SYN, or SYN and ACK.
    Syn,
    /// A segment with data.
    Data,
    /// A retransmitted segment with data.
    Again,
    /// An ACK without data.
    Ack,
    /// An ACK that shuts the window.
    WindowShut,
    /// An ACK that reopens the window.
    WindowOpen,
    /// A FIN: the end of a direction.
    Fin,
    /// A reset.
    Reset,
    /// A write call of the program (live only).
    Write,
    /// A read call of the program, which waits (live only).
    Read,
    /// The kernel's delayed-ACK timer (live only).
    AckTimer,
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // Whole microseconds: more digits than any clock in a capture deserves.
    #[allow(clippy::cast_precision_loss)] // 2⁵³ microseconds are three hundred years
    serializer.serialize_f64(time.as_micros() as f64 / 1000.0)
}

#[allow(clippy::ref_option)] // The signature that serde requires.
fn some_milliseconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => milliseconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

fn display<T: std::fmt::Display, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
