//! Events of live tracing: stalls when they end, and sockets when they, or the tracing, end.

use std::time::Duration;

use uncork_wire::Endpoint;

use crate::Histogram;

/// One event of the tracing. All times count from the start of the machine (CLOCK_MONOTONIC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes were held, and have left.
    Held(Held),
    /// The delayed-ACK timer sent an ACK that had nothing to piggyback on.
    AckTimer(AckTimer),
    /// A segment was retransmitted.
    Lost(Lost),
    /// All that is known of a socket at its end.
    Socket(Box<Socket>),
}

/// The two ends of a socket's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The socket's own end.
    pub local: Endpoint,
    /// The peer's end.
    pub remote: Endpoint,
}

/// A thread of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// Process id; 0 if no process was seen.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name (comm), if it was taken.
    pub name: String,
}

/// Why bytes were not sent when they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nagle's algorithm: a small segment is in flight.
    Nagle,
    /// TCP_CORK.
    Cork,
    /// MSG_MORE, or sendfile with more to come.
    More,
    /// The receiver's window is shut.
    WindowShut,
    /// The congestion window takes one segment, and that is in flight.
    LoneSegment,
}

/// The events that release held bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// An ACK arrived.
    Ack,
    /// The program wrote more.
    Write,
    /// A setsockopt call.
    Option,
    /// The kernel's probe timer, which ends a cork.
    Timer,
    /// The end of the connection, or of the tracing.
    End,
}

/// Bytes were held, and have left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Number of the socket, never reused.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// The thread that wrote last.
    pub writer: Who,
    /// Its inode, by which its descriptor can be found.
    pub inode: u64,
    /// Why they were held.
    pub why: Why,
    /// What released them.
    pub release: Release,
    /// Since when they were held.
    pub begin: Duration,
    /// Until when they were held.
    pub end: Duration,
    /// When the first write of the message was made.
    pub message_begin: Duration,
    /// Their offset in the sender's stream.
    pub offset: u64,
    /// Their number, in octets.
    pub bytes: u32,
    /// What was in flight when the hold began, in octets.
    pub outstanding_bytes: u32,
    /// How much of the same message had been sent before, in octets.
    pub before_bytes: u32,
    /// Largest segment, in octets.
    pub mss: u32,
    /// Whether TCP_NODELAY was in force when the hold ended.
    pub nodelay: bool,
    /// The kernel's minimum round-trip time.
    pub min_rtt: Duration,
    /// The calls that led to the write, innermost first, if they have been resolved.
    pub stack: Vec<String>,
}

/// The delayed-ACK timer expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckTimer {
    /// Number of the receiving socket.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// Its inode, by which its process can be found; 0 if no process has it.
    pub inode: u64,
    /// When it expired.
    pub at: Duration,
    /// How long the ACK had waited.
    pub held: Duration,
    /// Offset in the stream up to which it acknowledges.
    pub offset: u64,
    /// How much it acknowledges, in octets.
    pub bytes: u32,
    /// Data segments that the socket had received.
    pub segments_in: u32,
    /// Quick ACKs that it had left to send.
    pub quick_credits: u32,
    /// Whether the socket counted as interactive: such a socket delays every ACK, in the hope of a
    /// reply to piggyback it on.
    pub interactive: bool,
}

/// A segment was retransmitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Number of the socket.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// When it was retransmitted.
    pub at: Duration,
    /// How long after it was last sent.
    pub waited: Duration,
    /// Its length, in octets.
    pub bytes: u32,
    /// Whether the retransmission timeout had expired.
    pub timeout: bool,
    /// Whether the receiver had no room for it: it then probes whether the window is still shut.
    pub window_shut: bool,
}

/// The ways in which a socket came to be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A traced process opened it.
    Opened,
    /// A traced process accepted it.
    Accepted,
    /// A traced process already had it when tracing began.
    Found,
    /// The other end is traced, and this one is on the same host.
    Peer,
}

/// The ways in which TCP_NODELAY was asked for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Astray {
    /// At this level instead of IPPROTO_TCP: its name, and what option 1 is there.
    Level(&'static str),
    /// With a value shorter than an int, which the kernel refuses.
    Short {
        /// Length of the value.
        octets: u32,
    },
    /// On the listening socket, when the connection had been accepted already.
    Listener,
    /// On a socket that is not TCP's.
    NotTcp,
}

/// The socket options that a program asked for, and got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// When it last set TCP_NODELAY.
    pub nodelay_on: Option<Duration>,
    /// When it last cleared TCP_NODELAY.
    pub nodelay_off: Option<Duration>,
    /// How often it asked for either.
    pub nodelay_calls: u32,
    /// How it asked for TCP_NODELAY in vain, or its process did on another socket.
    pub nodelay_astray: Option<Astray>,
    /// How often it set or cleared TCP_CORK.
    pub cork_calls: u32,
    /// How often it set TCP_QUICKACK.
    pub quickack_calls: u32,
    /// Whether TCP_NODELAY was in force at the end.
    pub nodelay: bool,
    /// Whether TCP_CORK was in force at the end.
    pub cork: bool,
}

/// Writes and messages of a socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writing {
    /// Calls that wrote.
    pub writes: u64,
    /// Octets that they wrote.
    pub bytes: u64,
    /// Messages: runs of writes until something was read or the program paused.
    pub messages: u64,
    /// Writes that made up these messages.
    pub message_writes: u64,
    /// Segments in which these messages were sent.
    pub message_segments: u64,
    /// Length of these messages, in octets.
    pub message_bytes: u64,
    /// Length of a typical message, in octets.
    pub typical_bytes: u32,
    /// Segments of a typical message.
    pub typical_segments: u32,
    /// Time from the first to the last write, of all messages.
    pub time: Duration,
}

/// The queue below the sender, sampled whenever a write found no room on the path although the
/// receiver had some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Number of samples.
    pub samples: u64,
    /// Mean of the smoothed round-trip time in the samples.
    pub mean_rtt: Duration,
    /// Longest smoothed round-trip time in the samples.
    pub longest_rtt: Duration,
    /// Most octets that were written and not acknowledged.
    pub most_bytes: u32,
}

/// All that is known of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Its number.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// How it came to be traced.
    pub origin: Origin,
    /// The process that it belongs to.
    pub owner: Who,
    /// The last thread that wrote to it.
    pub writer: Who,
    /// Its inode; 0 if no process has it any more.
    pub inode: u64,
    /// Its descriptor, if known.
    pub fd: Option<i32>,
    /// Since when it was traced.
    pub since: Duration,
    /// Until when it was traced.
    pub until: Duration,
    /// Data segments that it sent.
    pub segments_out: u32,
    /// Data segments that it received.
    pub segments_in: u32,
    /// Octets that it sent.
    pub bytes_out: u64,
    /// Octets that it received.
    pub bytes_in: u64,
    /// Segments that it retransmitted.
    pub retransmissions: u32,
    /// How long it had data to send and was limited by the receiver's window.
    pub window_limited: Duration,
    /// How long it had data in flight.
    pub busy: Duration,
    /// The options that were asked for and granted.
    pub options: Options,
    /// Its writes.
    pub writing: Writing,
    /// Times from received data to the first write of the answer: the program's own time.
    pub turns: Histogram,
    /// Sum of `turns`.
    pub turn_time: Duration,
    /// Times from the first write of a message to the last segment of the answer.
    pub waits: Histogram,
    /// Sum of `waits`.
    pub wait_time: Duration,
    /// How often bytes were held for less than a millisecond, and for how long in all.
    pub short_holds: (u64, Duration),
    /// The queue below it.
    pub queue: Queue,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// The kernel's minimum round-trip time.
    pub min_rtt: Duration,
    /// Largest segment, in octets.
    pub mss: u32,
    /// ACKs that the delayed-ACK timer sent.
    pub ack_timers: u32,
    /// ACKs that the timer sent while an answer was awaited, and that the next data followed at
    /// once: the other end had waited for them.
    pub awaited_acks: u32,
    /// How long these ACKs had been held.
    pub awaited_ack_time: Duration,
}
