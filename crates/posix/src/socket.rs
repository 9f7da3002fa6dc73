//! The record of one TCP socket.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use std::sync::Mutex;

use uncork_bias::Biased;
use uncork_cork::Cork;

use crate::gather::Gathered;
use crate::ledger::Ledger;

/// Facts about a socket, one bit each.
pub mod flag {
    /// The program asked for TCP_NODELAY.
    pub const ASKED_NODELAY: u32 = 1 << 0;
    /// We have set TCP_NODELAY although the program did not ask for it.
    pub const FORCED_NODELAY: u32 = 1 << 1;
    /// The timer has pushed within the open burst.
    pub const TIMED_OUT: u32 = 1 << 2;
    /// A write has succeeded: the socket is connected.
    pub const CONNECTED: u32 = 1 << 3;
    /// Other descriptors or processes may write to it: its bytes are never kept in the process.
    pub const SHARED: u32 = 1 << 4;
    /// What was gathered did not fit into the kernel's buffer: writes wait until it does.
    pub const BACKLOG: u32 = 1 << 5;

    /// Small writes are gathered in the process, unless another flag prevents it.
    pub const GATHERS: u32 = 1 << 6;
    /// [`super::Socket::late_error`] is set.
    pub const LATE_ERROR: u32 = 1 << 7;

    /// A send that was not held has been made: from now on Nagle could delay the next one.
    pub const SENT: u32 = 1 << 8;

    /// [`super::Socket::full_bytes`] is that of this connection.
    pub const SEGMENT_KNOWN: u32 = 1 << 9;

    /// Bytes may be in its buffer, or on their way from there by the timer: whatever else enters the kernel takes the buffer's
    /// lock first.
    pub const GATHERED: u32 = 1 << 12;
    /// It is in more than one epoll set.
    pub const MANY_SETS: u32 = 1 << 10;
    /// The timer has a duplicate of its descriptor.
    pub const ORPHANED: u32 = 1 << 11;

    /// Another process may have the socket, too: it was there at a fork, was passed on, or came from outside.
    pub const ELSEWHERE: u32 = 1 << 13;

    /// A blocking read waits for more than one byte (SO_RCVLOWAT).
    pub const LOW_WATER: u32 = 1 << 14;

    /// The socket listens.
    pub const LISTENER: u32 = 1 << 16;
    /// The program sets TCP_CORK itself.
    pub const CORKS_ITSELF: u32 = 1 << 17;
    /// The program sends with MSG_MORE itself.
    pub const USES_MORE: u32 = 1 << 18;
    /// stdio writes to it without our knowing.
    pub const STDIO: u32 = 1 << 19;
    /// A protocol runs on it (kTLS): records, not bytes.
    pub const ULP: u32 = 1 << 20;
    /// The socket is shut down for writing.
    pub const SHUT: u32 = 1 << 21;
    /// The program wants the socket to stay on the kernel, whatever else applies (SOCK_KERNEL).
    pub const KERNELS: u32 = 1 << 15;
    /// `--scope nodelay`, and the program has not set TCP_NODELAY.
    pub const OUT_OF_SCOPE: u32 = 1 << 22;
    /// `--hold off`.
    pub const HOLD_OFF: u32 = 1 << 23;
    /// Nothing is held any more, on any socket ([`crate::Posix::stop_holding`]). Not a reason in reports, which tell what was.
    pub const OVER: u32 = 1 << 24;
    /// All flags with which writes are passed through.
    pub const PASSED: u32 = 0xffff << 16;

    /// Why a socket is passed through, by its flag; the most important first.
    pub(crate) const REASONS: [(u32, &str); 8] = [
        (HOLD_OFF, "hold is off"),
        (LISTENER, "listens"),
        (CORKS_ITSELF, "corks itself (TCP_CORK)"),
        (USES_MORE, "corks itself (MSG_MORE)"),
        (STDIO, "stdio on the socket"),
        (ULP, "upper-layer protocol (kTLS)"),
        (SHUT, "shut down for writing"),
        (OUT_OF_SCOPE, "no TCP_NODELAY (scope nodelay)"),
    ];

    /// Returns the index in [`REASONS`] of the reason for a socket with these flags.
    pub(crate) fn reason_number(flags: u32) -> Option<usize> {
        REASONS.iter().position(|(bit, _)| flags & bit != 0)
    }

    /// Returns why a socket with these flags is passed through.
    pub fn reason(flags: u32) -> Option<&'static str> {
        reason_number(flags).map(|number| REASONS[number].1)
    }
}

/// Options that the program has set, as their values do not show that they were set ([`Socket::chosen`]).
pub mod chosen {
    /// SO_SNDBUF.
    pub const SEND_BUFFER: u32 = 1 << 0;
    /// SO_RCVBUF.
    pub const RECEIVE_BUFFER: u32 = 1 << 1;
    /// TCP_MAXSEG.
    pub const MAX_SEGMENT: u32 = 1 << 2;
    /// TCP_CONGESTION.
    pub const CONGESTION: u32 = 1 << 3;
    /// TCP_QUICKACK.
    pub const QUICK_ACK: u32 = 1 << 4;
    /// TCP_SYNCNT.
    pub const SYN_RETRIES: u32 = 1 << 5;
    /// TCP_DEFER_ACCEPT.
    pub const DEFER_ACCEPT: u32 = 1 << 6;
    /// TCP_FASTOPEN_CONNECT.
    pub const FAST_OPEN: u32 = 1 << 7;
    /// TCP_FASTOPEN_NO_COOKIE.
    pub const NO_COOKIE: u32 = 1 << 8;
    /// SO_ZEROCOPY.
    pub const ZERO_COPY: u32 = 1 << 9;
    /// TCP_INQ.
    pub const INQ: u32 = 1 << 10;
    /// IP_RECVERR.
    pub const HARD_ERRORS: u32 = 1 << 11;
    /// IPV6_RECVERR.
    pub const HARD_ERRORS_V6: u32 = 1 << 12;
}

/// Where held bytes are ([`Socket::held`]).
pub mod held {
    /// In the kernel, under MSG_MORE.
    pub const KERNEL: u8 = 1;
    /// In [`super::Socket::gathered`].
    pub const USER: u8 = 2;
}

/// The record of one TCP socket. All threads share it; all of it but the gathered bytes and the ledger is atomic, and a race
/// between two threads on one socket costs a packet at worst.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Socket {
    /// The packed [`Cork`].
    cork: AtomicU64,
    /// Number of writes by the program.
    pub writes: AtomicU64,
    /// Number of bytes that the program wrote.
    pub bytes: AtomicU64,
    /// When the hold began (ns of the monotonic clock).
    pub since: AtomicU64,
    /// Since when the timer has found that the connection takes nothing (ns of the monotonic clock); zero if it takes something.
    pub stalled: AtomicU64,
    /// When the timer tries again to send what the connection did not take (ns of the monotonic clock).
    pub again: AtomicU64,
    /// Bits of [`flag`].
    flags: AtomicU32,
    /// Bits of [`held`].
    pub held: AtomicU8,
    /// The latest decision, as the number of a [`crate::Call`].
    pub why: AtomicU8,
    /// Number of threads other than the writer that are pushing right now; closing waits for them.
    pub visitors: AtomicU32,
    /// An error that came after its write had succeeded, to be reported by the next call.
    late_error: AtomicI32,
    /// Number of gathered bytes that make a full segment or buffer.
    pub full_bytes: AtomicU32,
    /// The epoll set that it was last added to, plus one; 0 if none.
    pub epoll: AtomicI32,
    /// The listener that it was accepted from, plus one; 0 if none.
    pub listener: AtomicI32,
    /// Bits of [`chosen`], set before it was connected or listened.
    pub chosen: AtomicU32,
    /// An option that was set before then and that only the kernel knows: its level in the upper half, its name in the lower.
    pub kernels_option: AtomicU32,
    /// Number of bursts that ended.
    pub bursts: AtomicU64,
    /// Number of writes sent unheld because the rhythm predicted that they were the last.
    pub predicted: AtomicU64,
    /// SO_COOKIE as the program read it before its connection became the kernel's in another socket; zero if it is this one's.
    pub cookie: AtomicU64,
    /// Bytes held in the process.
    pub gathered: Biased<Gathered>,
    /// What `--stats` counts beyond the above.
    pub ledger: Mutex<Option<Box<Ledger>>>,
}

impl Socket {
    /// Forgets everything, for a new socket under the same number.
    pub fn reset(&self, flags: u32) {
        self.cork.store(0, Relaxed);
        self.since.store(0, Relaxed);
        self.stalled.store(0, Relaxed);
        self.again.store(0, Relaxed);
        self.flags.store(flags, Relaxed);
        self.held.store(0, Relaxed);
        self.why.store(0, Relaxed);
        self.epoll.store(0, Relaxed);
        self.listener.store(0, Relaxed);
        self.late_error.store(0, Relaxed);
        self.chosen.store(0, Relaxed);
        self.kernels_option.store(0, Relaxed);
        self.full_bytes.store(0, Relaxed);
        self.writes.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.bursts.store(0, Relaxed);
        self.predicted.store(0, Relaxed);
        self.cookie.store(0, Relaxed);
    }

    /// Forgets what was gathered under the same number.
    pub fn reset_gathered(&self, barrier: impl FnOnce()) {
        match self.gathered.try_visit(barrier) {
            Some(mut gathered) => gathered.clear(),
            // A lock that was held by another thread of a forked parent is never released: do without.
            None => {
                self.set(flag::SHARED);
            }
        }
    }

    /// Returns the flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.flags.load(Relaxed)
    }

    /// Returns whether any of `bits` is set.
    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.flags() & bits != 0
    }

    /// Sets `bits`; returns whether any was clear before.
    #[inline]
    pub fn set(&self, bits: u32) -> bool {
        self.flags() & bits != bits && self.flags.fetch_or(bits, Relaxed) & bits != bits
    }

    /// Clears `bits`; returns whether any was set before.
    #[inline]
    pub fn clear(&self, bits: u32) -> bool {
        self.is(bits) && self.flags.fetch_and(!bits, Relaxed) & bits != 0
    }

    /// Holds another small write by the policy's short cut; false: ask the policy itself.
    #[inline]
    pub fn hold_another(&self, bytes: usize, limit_bytes: u32) -> bool {
        let held = Cork::hold_another(self.cork.load(Relaxed), bytes, limit_bytes);
        held.inspect(|bits| self.cork.store(*bits, Relaxed)).is_some()
    }

    /// Sends a write by the policy's short cut, as the only one of its burst; false: ask the policy itself.
    #[inline]
    pub fn send_only(&self) -> bool {
        let sent = Cork::send_only(self.cork.load(Relaxed));
        sent.inspect(|bits| self.cork.store(*bits, Relaxed)).is_some()
    }

    /// Ends such a burst; false: ask the policy itself.
    #[inline]
    pub fn end_only(&self) -> bool {
        let ended = Cork::end_only(self.cork.load(Relaxed));
        ended.inspect(|bits| self.cork.store(*bits, Relaxed)).is_some()
    }

    /// Keeps an error for the program's next call.
    pub fn set_late_error(&self, number: i32) {
        self.late_error.store(number, Relaxed);
        self.set(flag::LATE_ERROR);
    }

    /// Returns the late error; 0 if there is none.
    pub fn late_error(&self) -> i32 {
        if self.is(flag::LATE_ERROR) { self.late_error.load(Relaxed) } else { 0 }
    }

    /// Takes the late error; 0 if there is none.
    pub fn take_late_error(&self) -> i32 {
        if self.clear(flag::LATE_ERROR) { self.late_error.swap(0, Relaxed) } else { 0 }
    }

    /// Returns the policy's state.
    #[inline]
    pub fn cork(&self) -> Cork {
        Cork::from_bits(self.cork.load(Relaxed))
    }

    /// Stores the policy's state.
    #[inline]
    pub fn set_cork(&self, cork: Cork) {
        self.cork.store(cork.to_bits(), Relaxed);
    }
}

/// Adds to a counter that is read only for reports: a lost count is harmless, a locked instruction on every write would not be.
#[inline]
pub fn count(counter: &AtomicU64, add: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(add), Relaxed);
}

impl Socket {
    /// Makes a record from the bytes of another process's record ([`crate::published`]): only the counters. What that process has
    /// gathered stays its own.
    pub(crate) fn from_image(bytes: &[u8]) -> Self {
        use core::mem::offset_of;
        fn u64_at(bytes: &[u8], at: usize) -> u64 {
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
        }
        fn u32_at(bytes: &[u8], at: usize) -> u32 {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
        }
        Self {
            cork: u64_at(bytes, offset_of!(Self, cork)).into(),
            flags: u32_at(bytes, offset_of!(Self, flags)).into(),
            held: bytes.get(offset_of!(Self, held)).copied().unwrap_or(0).into(),
            why: bytes.get(offset_of!(Self, why)).copied().unwrap_or(0).into(),
            writes: u64_at(bytes, offset_of!(Self, writes)).into(),
            bytes: u64_at(bytes, offset_of!(Self, bytes)).into(),
            bursts: u64_at(bytes, offset_of!(Self, bursts)).into(),
            predicted: u64_at(bytes, offset_of!(Self, predicted)).into(),
            ..Self::default()
        }
    }
}
