//! What this crate needs from outside: system calls, memory for sockets, the timer thread.
//! `preload` implements it on Linux, the tests with a fake.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};
use core::time::Duration;
use std::net::SocketAddr;

use uncork_bias::Thread;
use uncork_cork::Instant;

use crate::socket::Socket;

/// An error number as the kernel gives it (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The call would block.
    pub const EAGAIN: Self = Self(11);
    /// A signal came.
    pub const EINTR: Self = Self(4);
    /// The peer has closed the connection.
    pub const EPIPE: Self = Self(32);
    /// The descriptor is not a socket.
    pub const ENOTSOCK: Self = Self(88);
}

/// Whether reading from a descriptor may block until another party acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, a directory, a device that never blocks.
    Ready,
    /// A pipe, a socket, a terminal, an eventfd …
    Waits,
}

/// What is known of a descriptor, one byte each ([`Kernel::state`]).
pub mod state {
    /// Unknown, or not ours: the call goes straight on.
    pub const UNKNOWN: u8 = 0;
    /// Not ours, and known never to block ([`super::Kind::Ready`]).
    pub const READY: u8 = 1;
    /// Not ours, and reading from it may block.
    pub const WAITS: u8 = 2;
    /// A TCP socket with a [`super::Socket`] record.
    pub const TCP: u8 = 3;
    /// A TCP socket on the user-space stack: not handled by this crate.
    pub const STACK: u8 = 4;
    /// An epoll set with members that are on the user-space stack.
    pub const STACK_SET: u8 = 5;
    /// A TCP socket on the stack of the process that this one was forked from.
    pub const STACK_OF_PARENT: u8 = 6;
    /// A descriptor of the library's own, which the program must not close.
    pub const OURS: u8 = 7;
}

/// The set of descriptors that may have something held, one bit each, in two levels: a hint for the
/// timer, which alone clears bits (so that setting one twice is free).
#[derive(Debug)]
pub struct Held {
    /// Number of sockets with something held; the fast path of every read looks at it.
    pub count: &'static AtomicU32,
    /// One bit a descriptor.
    pub bits: &'static [AtomicU64],
    /// One bit for each word of `bits`.
    pub summary: &'static [AtomicU64],
}

/// The system as this crate sees it.
pub trait Kernel {
    /// Returns the state byte of a descriptor; `None` past the end of the table.
    fn state(&self, fd: i32) -> Option<&AtomicU8>;
    /// Returns the record of a descriptor whose state is [`state::TCP`].
    fn socket(&self, fd: i32) -> Option<&Socket>;
    /// As [`Kernel::socket`], but makes room for the record first.
    fn make_socket(&self, fd: i32) -> Option<&Socket>;
    /// Returns the highest descriptor that was ever tracked or classified.
    fn highest(&self) -> &AtomicI32;
    /// Returns the set of sockets that have something held.
    fn held(&self) -> &Held;

    /// Returns the calling thread's number for biased locks, if [`Kernel::barrier`] works here;
    /// when the thread ends it calls `forget`, and has no number from then on.
    fn thread(&self, forget: fn()) -> Thread;
    /// Makes a memory barrier on every core that runs a thread of this process (membarrier(2)).
    fn barrier(&self);

    /// Blocks the program's signal handlers in the calling thread, if there are any that can run at
    /// any time; returns what [`Kernel::let_handlers`] needs.
    fn keep_handlers_off(&self) -> Option<u64>;
    /// Unblocks the handlers again.
    fn let_handlers(&self, before: u64);

    /// Sends what the kernel holds, whatever Nagle says: sets TCP_NODELAY, which pushes.
    fn push(&self, fd: i32);
    /// Makes a send(2) with MSG_DONTWAIT | MSG_NOSIGNAL, and MSG_MORE if `more`.
    fn send(&self, fd: i32, bytes: &[u8], more: bool) -> Result<usize, Errno>;
    /// Waits until `fd` takes bytes again or has failed. `Ok(false)`: the limit has passed.
    fn wait_writable(&self, fd: i32, limit: Option<Duration>) -> Result<bool, Errno>;
    /// As [`Kernel::wait_writable`], as a blocking write of the program's waits: a thread that is cancelled ends here, and a
    /// signal whose handler ends calls gives EINTR, others do not. It waits for some milliseconds at most.
    fn wait_as_writer(&self, fd: i32) -> Result<(), Errno>;
    /// Makes room for `bytes` more in the socket's send buffer, if the system's limit allows it.
    fn widen_send_buffer(&self, fd: i32, bytes: usize);
    /// Removes `fd` from the epoll set `epfd`.
    fn unwatch(&self, epfd: i32, fd: i32);
    /// Returns whether close(2) discards what was sent, and resets the connection (SO_LINGER with a time of 0).
    fn discards(&self, fd: i32) -> bool;
    /// Closes `fd` so.
    fn discard(&self, fd: i32);
    /// Makes a shutdown(2) for writing.
    fn shut_writing(&self, fd: i32);
    /// Returns SO_SNDTIMEO; `None` if it is not set.
    fn send_timeout(&self, fd: i32) -> Option<Duration>;
    /// Returns whether O_NONBLOCK is set.
    fn is_nonblocking(&self, fd: i32) -> bool;
    /// Returns whether FD_CLOEXEC is set.
    fn closes_on_exec(&self, fd: i32) -> bool;
    /// Returns whether reading may block.
    fn kind(&self, fd: i32) -> Kind;
    /// Returns whether `fd` is a TCP socket (SO_DOMAIN inet or inet6, SO_PROTOCOL tcp).
    fn is_tcp(&self, fd: i32) -> bool;
    /// Returns the kernel's TCP_NODELAY.
    fn nodelay(&self, fd: i32) -> bool;
    /// Returns whether an upper-layer protocol (kTLS) runs on the socket (TCP_ULP).
    fn has_protocol(&self, fd: i32) -> bool;
    /// Returns SO_RCVLOWAT, in bytes.
    fn low_water(&self, fd: i32) -> u32;
    /// Returns TCP_MAXSEG: the payload of a full segment, in bytes.
    fn max_segment(&self, fd: i32) -> u32;
    /// Returns the peer's address.
    fn peer(&self, fd: i32) -> Option<SocketAddr>;
    /// Returns an identity that descriptors of one open file share (st_ino of a socket).
    fn identity(&self, fd: i32) -> u64;
    /// Makes a duplicate that does not get in the program's way: high and close-on-exec.
    fn duplicate(&self, fd: i32) -> Option<i32>;
    /// Closes a descriptor of [`Kernel::duplicate`].
    fn close(&self, fd: i32);
    /// Returns the time of CLOCK_MONOTONIC.
    fn now(&self) -> Instant;
    /// Yields the core to another thread for a moment.
    fn give_way(&self);
    /// Makes the timer thread; returns false if that cannot be done.
    fn start_keeper(&self) -> bool;
    /// Wakes the timer thread from its sleep, whatever its alarm is set to.
    fn wake_keeper(&self);
    /// Makes the timer thread wake at `at` of [`Kernel::now`], at once if that is past, instead of
    /// at the time that an earlier call has set. Returns false if it has no alarm.
    fn set_alarm(&self, at: Instant) -> bool;
    /// Writes a line of `--debug` to standard error.
    fn say(&self, line: &str);
    /// Tells that a socket was pushed while `AUTOCORK_DUMP_INTERVAL` is set: a dump may be due.
    fn consider_dump(&self);
    /// Returns the process id, not cached.
    fn pid(&self) -> u32;
}
