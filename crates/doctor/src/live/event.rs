//! What live tracing tells: stalls when they end, and sockets when they, or the tracing, do.

use std::time::Duration;

use uncork_wire::Endpoint;

use crate::Histogram;

/// One thing that was told. All times are since the machine was started (CLOCK_MONOTONIC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes waited, and went.
    Held(Held),
    /// The kernel's timer sent an ACK that nothing else had taken along.
    AckTimer(AckTimer),
    /// A segment was sent again.
    Lost(Lost),
    /// All that is known of a socket.
    Socket(Box<Socket>),
}

/// The two ends of a socket's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The socket's own.
    pub local: Endpoint,
    /// The other one.
    pub remote: Endpoint,
}

/// A thread of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// Process id; 0 if nobody was seen.
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
    /// The receiver's window.
    WindowShut,
    /// The congestion window takes one segment, and that is in flight.
    LoneSegment,
}

/// What let go of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// An ACK.
    Ack,
    /// A later write.
    Write,
    /// setsockopt.
    Option,
    /// The kernel's probe timer, which ends a cork.
    Timer,
    /// The end of the connection, or of the tracing.
    End,
}

/// Bytes waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Number of the socket, never used twice.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// Who wrote last.
    pub writer: Who,
    /// Its inode, by which its descriptor can be found.
    pub inode: u64,
    /// Why they waited.
    pub why: Why,
    /// What let go.
    pub release: Release,
    /// Since when.
    pub begin: Duration,
    /// Until when.
    pub end: Duration,
    /// First write of the message.
    pub message_begin: Duration,
    /// Where in the sender's stream they are.
    pub offset: u64,
    /// How many, in octets.
    pub bytes: u32,
    /// What was in flight when they began to wait, in octets.
    pub outstanding_bytes: u32,
    /// What of the same message was sent before, in octets.
    pub before_bytes: u32,
    /// Largest segment, in octets.
    pub mss: u32,
    /// Whether TCP_NODELAY was in force when it ended.
    pub nodelay: bool,
    /// Smallest round trip that the kernel knows of.
    pub min_rtt: Duration,
    /// The calls that led to the write, innermost first, if somebody has named them.
    pub stack: Vec<String>,
}

/// The timer for delayed ACKs went off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckTimer {
    /// Number of the receiving socket.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// Its inode, by which its process can be found; 0 if no process has it.
    pub inode: u64,
    /// When.
    pub at: Duration,
    /// How long the ACK had waited.
    pub held: Duration,
    /// Up to where in the stream it acknowledges.
    pub offset: u64,
    /// How much it acknowledges, in octets.
    pub bytes: u32,
    /// Data segments that the socket had received.
    pub segments_in: u32,
    /// Quick ACKs that it had left to give.
    pub quick_credits: u32,
    /// Whether the socket counted as interactive: such a one delays every ACK, in the hope of a
    /// reply to take it along.
    pub interactive: bool,
}

/// A segment was sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Number of the socket.
    pub socket: u64,
    /// Its ends.
    pub ends: Ends,
    /// When.
    pub at: Duration,
    /// How long after it was sent the last time.
    pub waited: Duration,
    /// Its length, in octets.
    pub bytes: u32,
    /// Whether the retransmission timeout had run out.
    pub timeout: bool,
    /// Whether the receiver had no room for it: it asks whether its window is still shut.
    pub window_shut: bool,
}

/// How a socket came to be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A traced process opened it.
    Opened,
    /// A traced process accepted it.
    Accepted,
    /// A traced process had it when tracing began.
    Found,
    /// The other end is traced, and this one is on the same host.
    Peer,
}

/// How TCP_NODELAY was asked for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Astray {
    /// At this level instead of IPPROTO_TCP: its name, and what option 1 is there.
    Level(&'static str),
    /// With a value shorter than an int, which the kernel refuses.
    Short {
        /// Its length.
        octets: u32,
    },
    /// On the listening socket, when the connection was there already.
    Listener,
    /// On a socket that is not TCP's.
    NotTcp,
}

/// What a program asked of a socket, and got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// When it last set TCP_NODELAY.
    pub nodelay_on: Option<Duration>,
    /// When it last took it off.
    pub nodelay_off: Option<Duration>,
    /// How often it asked for either.
    pub nodelay_calls: u32,
    /// How it asked for TCP_NODELAY in vain, or its process did on another socket.
    pub nodelay_astray: Option<Astray>,
    /// How often it set or took off TCP_CORK.
    pub cork_calls: u32,
    /// How often it set TCP_QUICKACK.
    pub quickack_calls: u32,
    /// Whether TCP_NODELAY was in force in the end.
    pub nodelay: bool,
    /// Whether TCP_CORK was.
    pub cork: bool,
}

/// Writes and messages of a socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writing {
    /// Calls that wrote.
    pub writes: u64,
    /// What they wrote, in octets.
    pub bytes: u64,
    /// Messages: runs of writes until something was read or the program paused.
    pub messages: u64,
    /// Writes that these were made of.
    pub message_writes: u64,
    /// Segments that these were sent in.
    pub message_segments: u64,
    /// Their length, in octets.
    pub message_bytes: u64,
    /// Length of a typical one, in octets.
    pub typical_bytes: u32,
    /// Segments of a typical one.
    pub typical_segments: u32,
    /// From first to last write, of all messages.
    pub time: Duration,
}

/// The queue below the sender, looked at whenever a write found no room on the way, though the
/// receiver had some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// How often that was.
    pub samples: u64,
    /// Mean of the smoothed round trip then.
    pub mean_rtt: Duration,
    /// Longest.
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
    /// Whose it is.
    pub owner: Who,
    /// The last thread that wrote to it.
    pub writer: Who,
    /// Its inode; 0 if no process has it any more.
    pub inode: u64,
    /// Its descriptor, if known.
    pub fd: Option<i32>,
    /// Since when it was traced.
    pub since: Duration,
    /// Until when.
    pub until: Duration,
    /// Data segments that it sent.
    pub segments_out: u32,
    /// Data segments that it received.
    pub segments_in: u32,
    /// What it sent, in octets.
    pub bytes_out: u64,
    /// What it received, in octets.
    pub bytes_in: u64,
    /// Segments that it sent again.
    pub retransmissions: u32,
    /// How long it had something to send and the receiver's window was the limit.
    pub window_limited: Duration,
    /// How long it had something in flight.
    pub busy: Duration,
    /// Asked for and granted.
    pub options: Options,
    /// Its writes.
    pub writing: Writing,
    /// From what it received to the first write of the answer: the program's own time.
    pub turns: Histogram,
    /// Their sum.
    pub turn_time: Duration,
    /// From the first write of a message to the last segment of the answer.
    pub waits: Histogram,
    /// Their sum.
    pub wait_time: Duration,
    /// Times that bytes waited for less than a millisecond, and how long in all.
    pub short_holds: (u64, Duration),
    /// The queue that it made.
    pub queue: Queue,
    /// Smoothed round trip.
    pub srtt: Duration,
    /// Smallest round trip that the kernel knows of.
    pub min_rtt: Duration,
    /// Largest segment, in octets.
    pub mss: u32,
    /// ACKs that the timer for delayed ones sent.
    pub ack_timers: u32,
    /// ACKs that the timer sent while an answer was awaited, and that the next data came right
    /// behind of: the other end had waited for them.
    pub awaited_acks: u32,
    /// How long these had been held.
    pub awaited_ack_time: Duration,
}
