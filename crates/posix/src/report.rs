//! What a process reports about itself: at its end (`--stats`) or when asked (`uncork status`).
//!
//! The same types are written by the library, read by `uncork`, and documented in the manual.
//! Times are nanoseconds and say so in their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the JSON written by the library and by `uncork run --stats=FILE`.
pub const SCHEMA: u32 = 1;

/// The report of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Process id, in the process's own pid namespace.
    pub pid: u32,
    /// `comm` of the process.
    pub program: String,
    /// The settings in force, by the name of the option (hold, scope, bound, spin …).
    pub settings: BTreeMap<String, String>,
    /// Settings that were not understood; each is a sentence.
    pub ignored: Vec<String>,
    /// The sockets, closed ones first, in the order of closing; then the open ones by fd.
    pub sockets: Vec<SocketReport>,
    /// Number of closed sockets beyond the first 4,096, which are not listed.
    pub sockets_not_listed: u64,
    /// Where the process's sockets are, if it was started with `--stack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackReport>,
}

/// The sockets of a process that was started with `--stack`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackReport {
    /// Number of listeners that were on the stack, too.
    pub listening: u64,
    /// Number of connections that were accepted on the stack.
    pub accepted: u64,
    /// Number of connections that the program made on the stack.
    pub connected: u64,
    /// Number of sockets that stayed with the kernel, or became its, by reason.
    pub kernel: BTreeMap<String, u64>,
    /// Address of the stack's guardian. It is a secret: it stays in memory.
    #[serde(skip)]
    pub guardian: Option<String>,
    /// Sockets that are open.
    pub sockets: Vec<StackSocket>,
}

impl StackReport {
    /// Returns whether the report mentions any socket.
    #[must_use]
    pub fn is_anything(&self) -> bool {
        self.listening + self.accepted + self.connected > 0 || !self.kernel.is_empty()
    }

    /// Lists what was on the stack, and why the rest was not, most frequent first: a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut kernel: Vec<_> = self.kernel.iter().collect();
        kernel.sort_by_key(|(_, sockets)| core::cmp::Reverse(**sockets));
        let with_kernel =
            kernel.iter().map(|(why, sockets)| format!("{sockets} with the kernel: {why}"));
        core::iter::once(self.sentence()).chain(with_kernel).collect()
    }

    /// Returns what was on the stack, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let some = |count: u64, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        format!(
            "on the stack: {}, {} accepted, {} made",
            some(self.listening, "listener", "listeners"),
            some(self.accepted, "connection", "connections"),
            self.connected,
        )
    }
}

/// Where one socket is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackSocket {
    /// File descriptor.
    pub fd: i32,
    /// Peer's address, `address:port`, where it is known: the kernel knows none for sockets on the stack.
    pub peer: Option<String>,
    /// `stack`, `kernel`, or `undecided`.
    pub place: String,
    /// The reason why it is there.
    pub why: String,
}

/// The report of one TCP socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// File descriptor.
    pub fd: i32,
    /// Peer's address, `address:port`, where it was known.
    pub peer: Option<String>,
    /// `helped`, or why the socket is passed through (see the manual's list).
    pub state: String,
    /// Whether it was open when the report was made.
    pub open: bool,
    /// Bytes that waited for their push at that moment.
    pub held_bytes: u64,
    /// The latest decision, for `uncork status`: why something is held, or was sent.
    pub why: String,
    /// Writes that the program made.
    pub writes: u64,
    /// Bytes that the program wrote.
    pub bytes: u64,
    /// Bursts (logical packets) that were pushed, by any cause.
    pub pushes: u64,
    /// Writes that left together with an earlier one: packets that were not sent.
    pub packets_saved: u64,
    /// Writes that were sent without holding because the rhythm predicted that they were the last.
    pub predicted: u64,
    /// Pushes by their cause (`read`, `epoll_wait`, `timer`, `turn` …).
    pub pushed_by: BTreeMap<String, u64>,
    /// Writes passed through, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Time from the first held byte to the push, where it was measured (`--stats`).
    pub held: Option<HeldTime>,
}

/// The state of a listener.
pub(crate) const LISTENS: &str = "passed: listens";

impl SocketReport {
    /// Returns whether it is a listener, on which nothing is ever written.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.state == LISTENS
    }
}

/// Distribution of the time for which bytes were held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldTime {
    /// Number of pushes that were timed.
    pub samples: u64,
    /// Median, to 1/8 of its value.
    pub p50_ns: u64,
    /// 99th percentile, to 1/8 of its value.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}
