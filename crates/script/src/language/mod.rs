//! The language of scripts, as docs/PACKETDRILL.md describes it.

mod field;
mod parse;
mod segment;
mod words;

use std::time::Duration;

use nix::errno::Errno;

pub use field::Field;
pub(crate) use segment::length;
pub use segment::{Offered, Segment, Stamp};

/// The host that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This project's stack.
    Ours,
    /// The kernel of this machine.
    Kernel,
}

/// A syntax error in a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Badly {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Setup of the host before the first event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Files in `/proc/sys/net/ipv4`, and their values.
    pub sysctls: Vec<(String, String)>,
    /// A token bucket before the wire: bits a second, and its capacity in octets.
    pub link: Option<(u64, u32)>,
    /// Whether quick ACKs are counted as in Linux before commit 059217c18be6.
    pub old_quick_acks: bool,
}

/// A parsed script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its title, the first line.
    pub title: String,
    /// The only host that it is for, if so, and why.
    pub only: Option<(Side, String)>,
    /// Setup of the host.
    pub setup: Setup,
    /// The events.
    pub lines: Vec<Line>,
}

/// One event of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of its line, from 1.
    pub number: usize,
    /// The only host that it is for, if so.
    pub side: Option<Side>,
    /// Time after the event before it.
    pub after: Duration,
    /// The event itself.
    pub step: Step,
}

/// Kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The peer sends a segment.
    Inject(Segment),
    /// The host must send a segment.
    Expect(Segment),
    /// The program makes a call, which must have this result.
    Call(Call, Wanted),
    /// Time passes, in which the host must not send.
    Nothing,
}

/// Expected result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Success, with this many octets, or zero for other calls.
    Done(usize),
    /// A time, within the host's tolerance.
    Time(Duration),
    /// Failure with this error.
    Failed(Errno),
}

/// A socket call. Sockets are named by letters, as connections are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// listen(2) at port 80, after bind(2).
    Listen {
        /// Backlog.
        backlog: i32,
    },
    /// close(2) of the listener.
    CloseListener,
    /// accept(2).
    Accept(char),
    /// connect(2) to the peer's end of the connection of this name.
    Connect(char),
    /// send(2).
    Send {
        /// Name of the socket.
        socket: char,
        /// Number of octets.
        bytes: usize,
        /// MSG_MORE, MSG_EOR or neither.
        flags: i32,
    },
    /// recv(2).
    Recv {
        /// Name of the socket.
        socket: char,
        /// Most octets.
        bytes: usize,
    },
    /// shutdown(2), with its second argument.
    Shutdown(char, i32),
    /// close(2).
    Close(char),
    /// getsockopt(2) of SO_ERROR: fails with that error.
    Error(char),
    /// getsockopt(2) of TCP_INFO: a field of it.
    Info(char, Field),
    /// setsockopt(2).
    Set(char, Choice),
}

/// An option and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// SO_KEEPALIVE with its three settings: seconds, seconds, probes.
    KeepAlive(u32, u32, u32),
    /// TCP_USER_TIMEOUT.
    UserTimeout(Duration),
    /// SO_LINGER, in seconds.
    Linger(u16),
    /// SO_RCVBUF.
    ReceiveBuffer(u32),
}
