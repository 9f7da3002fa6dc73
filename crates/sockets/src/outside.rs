//! What is asked of the process around it: waiting, as the program's own libc waits, and a thread.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;

use crate::handing::HandedOver;
use crate::listening::Accepted;
use crate::parts::Part;

/// How a spell of trying ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// It has succeeded.
    Done,
    /// Signals with handlers have come, and the handlers have run.
    Interrupted,
    /// Nothing has come: sleep.
    Nothing,
}

/// The process around it.
pub trait Outside: Sync {
    /// ppoll(2), made by libc: signals may interrupt it, and a thread be cancelled in it.
    ///
    /// # Errors
    ///
    /// As the call has them.
    fn poll(&self, fds: &mut [libc::pollfd], limit: Option<Duration>) -> Result<usize, Errno>;

    /// epoll_pwait2(2), made by libc in the same way.
    ///
    /// # Errors
    ///
    /// As the call has them; ENOSYS where there is none.
    fn wait(
        &self,
        set: RawFd,
        into: &mut [libc::epoll_event],
        limit: Option<Duration>,
    ) -> Result<usize, Errno>;

    /// From now on the calling thread has these signals blocked, and no others; gives those that were.
    fn block(&self, signals: &libc::sigset_t) -> libc::sigset_t;

    /// What an epoll set of the kernel's has ready now.
    ///
    /// # Errors
    ///
    /// As epoll_wait(2) has them.
    fn look_into_set(&self, set: RawFd, into: &mut [libc::epoll_event]) -> Result<usize, Errno>;

    /// Enters a descriptor of our own into an epoll set of the kernel's, to be told with `data` when it can
    /// be read. Of the sets in which it is `one_of_many` one wakes who sleeps there (EPOLLEXCLUSIVE), where the kernel can do that.
    ///
    /// # Errors
    ///
    /// As epoll_ctl(2) has them.
    fn enter(&self, set: RawFd, fd: RawFd, data: u64, one_of_many: bool) -> Result<(), Errno>;

    /// The calling thread is not cancelled from now on but in [`Outside::poll`] and [`Outside::wait`]; whether that is
    /// new, so that [`Outside::let_go`] ends it.
    fn keep_whole(&self) -> bool;

    /// It may be again.
    fn let_go(&self);

    /// Whether waits try for a while before they sleep.
    fn tries(&self) -> bool;

    /// Calls `attempt` until it says that it has succeeded, for as long as that is better than sleeping
    /// and at most for `limit`.
    fn try_for_a_while(&self, limit: Option<Duration>, attempt: &mut dyn FnMut() -> bool) -> Tried;

    /// How long a wait was that has not ended while it was tried, from its beginning to its answer.
    fn learn(&self, waited: Duration);

    /// Handlers of signals that have run so far leave the calling thread waiting.
    fn goes_on_waiting(&self);

    /// Whether handlers have run since, or since the program made its call.
    fn was_interrupted(&self) -> bool;

    /// A handler that runs while this thread is about to sleep makes this descriptor, an eventfd, readable; none: the
    /// thread does not sleep.
    fn wake_by(&self, bell: Option<RawFd>);

    /// Whether handlers that have run since then end a call on a socket: those that were not
    /// installed with SA_RESTART do, or any if the call has a time limit (signal(7)).
    fn ends_calls(&self, limited: bool) -> bool;

    /// The process ends by a signal: ends all that is on the stack ([`crate::Sockets::end`]). Called by a keeper.
    fn end(&self);

    /// Ends the process by this signal, whose default is that. Called by a keeper, and does not return for long.
    fn end_process(&self, signal: i32);

    /// Ends the process as its last thread's end does, if no thread of the program's is left. Called by a keeper.
    fn end_if_alone(&self) {}

    /// The calling thread has left the stack, and signal handlers had come meanwhile
    /// ([`crate::note_interruption`]): they may run now.
    fn left(&self);

    /// A new descriptor that stands for a connection of the stack: the kernel sees a TCP socket.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn stand_in(&self, flags: i32, ipv6: bool) -> Result<RawFd, Errno>;

    /// accept4(2) of the kernel's listener, as the program has set it: without waiting, if it is non-blocking.
    ///
    /// # Errors
    ///
    /// As the call has them.
    fn accept(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno>;

    /// The same without waiting, on a listener that is a blocking one.
    ///
    /// # Errors
    ///
    /// As the call has them; EBUSY while another process is at it.
    fn accept_at_once(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno>;

    /// Children have asked for connections: calls [`crate::Sockets::answer_children`], and does what has to be done
    /// with what has become the kernel's.
    fn answer_children(&self);

    /// Puts a new kernel's socket behind these descriptors, instead of the one that stands for all; their flags
    /// (FD_CLOEXEC) stay.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn give_own(&self, fds: &[RawFd], ipv6: bool) -> Result<(), Errno>;

    /// Whether there is a descriptor left for what comes from the privileged half.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn has_room(&self) -> Result<(), Errno>;

    /// The connection of `fd` is about to become the kernel's: children that have the same socket of the kernel's behind it
    /// see that.
    fn begin(&self, fd: RawFd);

    /// Puts a connection of the kernel's behind these descriptors. Their flags stay (FD_CLOEXEC), and so do options that the
    /// kernel alone knows of, unless what was there was one that `stands` for all; of such a one of its own this gives the number
    /// (SO_COOKIE).
    ///
    /// # Errors
    ///
    /// EBADF: one of them is closed.
    fn put(&self, fds: &[RawFd], connection: OwnedFd, stands: bool) -> Result<Option<u64>, Errno>;

    /// The kernel has not taken the connection of these descriptors: calls go to what is behind them.
    fn lose(&self, fds: &[RawFd]);

    /// A place where a connection of the kernel's can be left to children ([`Outside::leave`]).
    ///
    /// # Errors
    ///
    /// EMFILE and its kin, or that so many descriptors are not to be taken from the program.
    fn mailbox(&self) -> Result<OwnedFd, Errno>;

    /// Leaves it there for whoever has that, too: a connection that stands behind a child's `fd`, or none, as it is lost.
    fn leave(&self, mailbox: BorrowedFd<'_>, fd: RawFd, connection: Option<RawFd>);

    /// Runs [`crate::Sockets::keep`] in a thread of its own that gets none of the program's signals.
    fn start_keeper(&self, part: Part) -> bool;

    /// Calls [`crate::Sockets::tell`] in a thread of its own that gets none of the program's signals.
    fn start_telling(&self, to: OwnedFd);

    /// A connection is the kernel's now: its socket is to be what the program has made of the stack's. Nobody else
    /// gets on with these descriptors meanwhile.
    fn settle(&self, handed: &HandedOver);
}
