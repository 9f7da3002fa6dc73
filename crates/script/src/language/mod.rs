//! What a script says: see docs/PACKETDRILL.md, which this follows.

mod field;
mod parse;
mod segment;
mod words;

use std::time::Duration;

use nix::errno::Errno;

pub use field::Field;
pub(crate) use segment::length;
pub use segment::{Offered, Segment, Stamp};

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This project's stack.
    Ours,
    /// The kernel of this machine.
    Kernel,
}

/// What is not understood of a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Badly {
    /// Which line, from 1.
    pub line: usize,
    /// What about it.
    pub message: String,
}

/// How the host is to be before anything happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Files in `/proc/sys/net/ipv4`, and what is in them.
    pub sysctls: Vec<(String, String)>,
    /// A token bucket in front of the wire: bits a second, and octets that it holds.
    pub link: Option<(u64, u32)>,
    /// Quick ACKs are counted as Linux did before commit 059217c18be6.
    pub old_quick_acks: bool,
}

/// A script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What it shows: its first line.
    pub title: String,
    /// Who alone it is for, and why.
    pub only: Option<(Side, String)>,
    /// What the host is like.
    pub setup: Setup,
    /// What happens.
    pub lines: Vec<Line>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it is written, from 1.
    pub number: usize,
    /// Who alone does so.
    pub side: Option<Side>,
    /// How long after what was before it.
    pub after: Duration,
    /// What.
    pub step: Step,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The peer sends.
    Inject(Segment),
    /// The host must send.
    Expect(Segment),
    /// The program calls, and must be told this.
    Call(Call, Wanted),
    /// Time passes in which nothing may be sent.
    Nothing,
}

/// What a call must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// So many octets, or zero for done.
    Done(usize),
    /// A time, as exactly as the host is.
    Time(Duration),
    /// This error.
    Failed(Errno),
}

/// A socket call. Sockets have a letter for a name, as connections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// listen(2) at port 80, after bind(2).
    Listen {
        /// Its second argument.
        backlog: i32,
    },
    /// close(2) of what listens.
    CloseListener,
    /// accept(2).
    Accept(char),
    /// connect(2) to where the connection of this name is.
    Connect(char),
    /// send(2).
    Send {
        /// On which socket.
        socket: char,
        /// How much.
        bytes: usize,
        /// With MSG_MORE, MSG_EOR or neither.
        flags: i32,
    },
    /// recv(2).
    Recv {
        /// On which socket.
        socket: char,
        /// How much at most.
        bytes: usize,
    },
    /// shutdown(2), with its second argument.
    Shutdown(char, i32),
    /// close(2).
    Close(char),
    /// SO_ERROR is asked for: fails with it.
    Error(char),
    /// A field of TCP_INFO is asked for.
    Info(char, Field),
    /// setsockopt(2).
    Set(char, Choice),
}

/// An option, and what it is set to.
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
