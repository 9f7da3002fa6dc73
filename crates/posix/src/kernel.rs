//! What this crate asks of the outside: its own system calls, its memory for sockets, its timer
//! thread. `preload` answers with Linux, the tests with a fake.

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
    /// The other end is gone.
    pub const EPIPE: Self = Self(32);
    /// The descriptor is no socket.
    pub const ENOTSOCK: Self = Self(88);
}

/// Whether reading from a descriptor may mean waiting for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, a directory, a device that never waits.
    Ready,
    /// A pipe, a socket, a terminal, an eventfd …
    Waits,
}

/// What is known of a descriptor, one byte each ([`Kernel::state`]).
pub mod state {
    /// Nothing, or not ours: the call goes straight on.
    pub const UNKNOWN: u8 = 0;
    /// Not ours, and known never to wait ([`super::Kind::Ready`]).
    pub const READY: u8 = 1;
    /// Not ours, and reading it may wait.
    pub const WAITS: u8 = 2;
    /// A TCP socket with a [`super::Socket`] record.
    pub const TCP: u8 = 3;
    /// A TCP socket on the user-space stack: none of this crate's.
    pub const STACK: u8 = 4;
    /// An epoll set with such members.
    pub const STACK_SET: u8 = 5;
    /// A TCP socket on the stack of the process that this one was forked from.
    pub const STACK_OF_PARENT: u8 = 6;
    /// One of the library's own, which the program is not to close.
    pub const OURS: u8 = 7;
}

/// One bit for each descriptor that may have something held: a hint for the timer, which alone
/// clears bits (so that setting one twice is free), in two levels.
#[derive(Debug)]
pub struct Held {
    /// Sockets with something held; the fast path of every read looks at it.
    pub count: &'static AtomicU32,
    /// One bit a descriptor.
    pub bits: &'static [AtomicU64],
    /// One bit a word of `bits`.
    pub summary: &'static [AtomicU64],
}

/// The outside.
pub trait Kernel {
    /// The state byte of a descriptor; `None` past the end of the table.
    fn state(&self, fd: i32) -> Option<&AtomicU8>;
    /// The record of a descriptor whose state is [`state::TCP`].
    fn socket(&self, fd: i32) -> Option<&Socket>;
    /// As [`Kernel::socket`], making room for it first.
    fn make_socket(&self, fd: i32) -> Option<&Socket>;
    /// The highest descriptor that was ever tracked.
    fn highest(&self) -> &AtomicI32;
    /// Which sockets have something held.
    fn held(&self) -> &Held;

    /// The calling thread's number for biased locks, if [`Kernel::barrier`] works here; at its end
    /// the thread calls `forget`, and has none from then on.
    fn thread(&self, forget: fn()) -> Thread;
    /// A barrier on every core that runs a thread of this process (membarrier(2)).
    fn barrier(&self);

    /// Keeps the program's signal handlers away from the calling thread, if there are any that can
    /// come at any time; gives what [`Kernel::let_handlers`] needs.
    fn keep_handlers_off(&self) -> Option<u64>;
    /// Lets them come again.
    fn let_handlers(&self, before: u64);

    /// Lets go of what the kernel holds, whatever Nagle says: sets TCP_NODELAY, which pushes.
    fn push(&self, fd: i32);
    /// send(2) with MSG_DONTWAIT | MSG_NOSIGNAL, and MSG_MORE if `more`.
    fn send(&self, fd: i32, bytes: &[u8], more: bool) -> Result<usize, Errno>;
    /// Waits until `fd` takes bytes again or has failed. `Ok(false)`: time ran out.
    fn wait_writable(&self, fd: i32, limit: Option<Duration>) -> Result<bool, Errno>;
    /// Makes room for `bytes` more in the socket's send buffer, if the system's limit allows.
    fn widen_send_buffer(&self, fd: i32, bytes: usize);
    /// Takes `fd` out of the epoll set `epfd`.
    fn unwatch(&self, epfd: i32, fd: i32);
    /// shutdown(2) for writing.
    fn shut_writing(&self, fd: i32);
    /// SO_SNDTIMEO, `None` when it is not set.
    fn send_timeout(&self, fd: i32) -> Option<Duration>;
    /// O_NONBLOCK.
    fn is_nonblocking(&self, fd: i32) -> bool;
    /// FD_CLOEXEC.
    fn closes_on_exec(&self, fd: i32) -> bool;
    /// Whether reading may wait.
    fn kind(&self, fd: i32) -> Kind;
    /// Whether `fd` is a TCP socket (SO_DOMAIN inet or inet6, SO_PROTOCOL tcp).
    fn is_tcp(&self, fd: i32) -> bool;
    /// The kernel's TCP_NODELAY.
    fn nodelay(&self, fd: i32) -> bool;
    /// TCP_MAXSEG: payload of a full segment, in bytes.
    fn max_segment(&self, fd: i32) -> u32;
    /// The other end.
    fn peer(&self, fd: i32) -> Option<SocketAddr>;
    /// An identity that descriptors of one open file share (st_ino of a socket).
    fn identity(&self, fd: i32) -> u64;
    /// A duplicate that programs do not stumble over: high and close-on-exec.
    fn duplicate(&self, fd: i32) -> Option<i32>;
    /// Closes a descriptor of [`Kernel::duplicate`].
    fn close(&self, fd: i32);
    /// CLOCK_MONOTONIC.
    fn now(&self) -> Instant;
    /// Gives the core to somebody else for a moment.
    fn give_way(&self);
    /// Makes the timer thread; false when that cannot be done.
    fn start_keeper(&self) -> bool;
    /// Wakes the timer thread from its sleep, whatever its alarm is set to.
    fn wake_keeper(&self);
    /// Has the timer thread wake at `at` of [`Kernel::now`], at once if that is past, in place of
    /// when it was to wake by an earlier call. False: it has no alarm.
    fn set_alarm(&self, at: Instant) -> bool;
    /// Writes a line of `--debug` to standard error.
    fn say(&self, line: &str);
    /// A socket was pushed while `AUTOCORK_DUMP_INTERVAL` is set: time to dump, perhaps.
    fn consider_dump(&self);
    /// Process id, not cached.
    fn pid(&self) -> u32;
}
