//! What a process tells about itself: at its end (`--stats`) or when asked (`uncork status`).
//!
//! The same shapes are written by the library, read by `uncork`, and documented in the manual.
//! Times are nanoseconds and say so in their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the JSON written by the library and by `uncork run --stats=FILE`.
pub const SCHEMA: u32 = 1;

/// One process.
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
    /// Settings that were not understood, each a sentence.
    pub ignored: Vec<String>,
    /// The sockets, closed ones first, in the order of closing; then the open ones by fd.
    pub sockets: Vec<SocketReport>,
    /// Sockets beyond the first 4,096 closed ones are only counted.
    pub sockets_not_listed: u64,
    /// Where its sockets are, if it was started with `--stack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackReport>,
}

/// The sockets of a process that was started with `--stack`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackReport {
    /// Listeners that were on the stack, too.
    pub listening: u64,
    /// Connections that were accepted on the stack.
    pub accepted: u64,
    /// Connections that the program made on the stack.
    pub connected: u64,
    /// Sockets that stayed with the kernel, or became its, by why.
    pub kernel: BTreeMap<String, u64>,
    /// Where the guardian of the stack is to be found. That is a secret: it stays in memory.
    #[serde(skip)]
    pub guardian: Option<String>,
    /// Those that are open.
    pub sockets: Vec<StackSocket>,
}

impl StackReport {
    /// Whether it speaks of any socket.
    #[must_use]
    pub fn is_anything(&self) -> bool {
        self.listening + self.accepted + self.connected > 0 || !self.kernel.is_empty()
    }

    /// What was on the stack, and why the rest was not, what holds for most first: a line each, for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut kernel: Vec<_> = self.kernel.iter().collect();
        kernel.sort_by_key(|(_, sockets)| core::cmp::Reverse(**sockets));
        let with_kernel =
            kernel.iter().map(|(why, sockets)| format!("{sockets} with the kernel: {why}"));
        core::iter::once(self.sentence()).chain(with_kernel).collect()
    }

    /// What was on the stack.
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
    /// Other end, `address:port`, where it is known: of those on the stack the kernel knows none.
    pub peer: Option<String>,
    /// `stack`, `kernel`, or `undecided`.
    pub place: String,
    /// Why it is there.
    pub why: String,
}

/// One TCP socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// File descriptor.
    pub fd: i32,
    /// Other end, `address:port`, where it was known.
    pub peer: Option<String>,
    /// `helped`, or why the socket is passed through (see the manual's list).
    pub state: String,
    /// Still open when the report was made.
    pub open: bool,
    /// Bytes waiting for their push at this moment.
    pub held_bytes: u64,
    /// The last thing that was decided, for `uncork status`: why it is held, or was sent.
    pub why: String,
    /// Writes that the program made.
    pub writes: u64,
    /// Bytes that the program wrote.
    pub bytes: u64,
    /// Bursts (logical packets) that were pushed, by whatever cause.
    pub pushes: u64,
    /// Writes that left together with an earlier one: packets that were not sent.
    pub packets_saved: u64,
    /// Writes that were sent without holding because the rhythm said that they were the last.
    pub predicted: u64,
    /// Pushes by what caused them (`read`, `epoll_wait`, `timer`, `turn` …).
    pub pushed_by: BTreeMap<String, u64>,
    /// Writes passed through, by reason.
    pub passed: BTreeMap<String, u64>,
    /// Time from the first held byte to the push, where it was measured (`--stats`).
    pub held: Option<HeldTime>,
}

/// Distribution of the time held.
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
