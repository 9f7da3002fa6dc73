//! What is asked of the process around the stack: waiting, as the program's own libc waits; threads; the kernel's sockets.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;

use crate::handing::HandedOver;
use crate::listening::Accepted;
use crate::parts::Part;

/// How a period of trying before the sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// An attempt has succeeded.
    Done,
    /// Signals with handlers have come, and the handlers have run.
    Interrupted,
    /// Nothing has come: the thread is to sleep.
    Nothing,
}

/// The process around the stack.
pub trait Outside: Sync {
    /// Does ppoll(2) through libc: signals may interrupt it, and the thread may be cancelled in it.
    ///
    /// # Errors
    ///
    /// As the call has them.
    fn poll(&self, fds: &mut [libc::pollfd], limit: Option<Duration>) -> Result<usize, Errno>;

    /// Does epoll_pwait2(2) through libc in the same way.
    ///
    /// # Errors
    ///
    /// As the call has them; ENOSYS where the kernel has no such call.
    fn wait(
        &self,
        set: RawFd,
        into: &mut [libc::epoll_event],
        limit: Option<Duration>,
    ) -> Result<usize, Errno>;

    /// Blocks these signals in the calling thread, and no others; returns those that were blocked.
    fn block(&self, signals: &libc::sigset_t) -> libc::sigset_t;

    /// Returns what a kernel epoll set has ready now.
    ///
    /// # Errors
    ///
    /// As epoll_wait(2) has them.
    fn look_into_set(&self, set: RawFd, into: &mut [libc::epoll_event]) -> Result<usize, Errno>;

    /// Does epoll_ctl(2) on a kernel epoll set.
    ///
    /// # Errors
    ///
    /// As the call has them.
    fn control(
        &self,
        set: RawFd,
        operation: i32,
        fd: RawFd,
        event: Option<libc::epoll_event>,
    ) -> Result<(), Errno>;

    /// Enters a descriptor of our own into a kernel epoll set, to be told with `data` when it can be read. If it is
    /// `one_of_many`, an event wakes the sleepers of one such set only (EPOLLEXCLUSIVE), where the kernel can do that.
    ///
    /// # Errors
    ///
    /// As epoll_ctl(2) has them.
    fn enter(&self, set: RawFd, fd: RawFd, data: u64, one_of_many: bool) -> Result<(), Errno>;

    /// Lets the calling thread be cancelled in [`Outside::poll`] and [`Outside::wait`] only. Returns whether that is new, so
    /// that [`Outside::let_go`] ends it.
    fn keep_whole(&self) -> bool;

    /// Lets the calling thread be cancelled anywhere again.
    fn let_go(&self);

    /// Returns whether waits try for a while before they sleep.
    fn tries(&self) -> bool;

    /// Calls `attempt` until it returns true, for as long as that is better than sleeping and at most for `limit`.
    fn try_for_a_while(&self, limit: Option<Duration>, attempt: &mut dyn FnMut() -> bool) -> Tried;

    /// Learns how long a wait that did not end while it was tried took, from its beginning to its answer.
    fn learn(&self, waited: Duration);

    /// Notes that the signal handlers that have run so far leave the calling thread waiting.
    fn goes_on_waiting(&self);

    /// Returns whether signal handlers have run since [`Outside::goes_on_waiting`], or since the program made its call.
    fn was_interrupted(&self) -> bool;

    /// Sets the eventfd that a signal handler makes readable if it runs while this thread is about to sleep; none: it is
    /// not about to.
    fn wake_by(&self, bell: Option<RawFd>);

    /// Returns whether signal handlers that have run since then end a call on a socket: those that were not
    /// installed with SA_RESTART do, or any if the call has a time limit (signal(7)).
    fn ends_calls(&self, limited: bool) -> bool;

    /// Ends all that is on the stack ([`crate::Sockets::end`]), as a signal ends the process. Called by a keeper.
    fn end(&self);

    /// Ends the process by this signal's default action. Called by a keeper, and does not return for long.
    fn end_process(&self, signal: i32);

    /// Ends the process, as the end of its last thread does, if no thread of the program is left. Called by a keeper.
    fn end_if_alone(&self) {}

    /// Lets signal handlers run that have come while the calling thread was inside the stack
    /// ([`crate::note_interruption`]).
    fn left(&self);

    /// Returns a new descriptor that stands for a connection on the stack: to the kernel it is a TCP socket.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn stand_in(&self, flags: i32, ipv6: bool) -> Result<RawFd, Errno>;

    /// Does accept4(2) on the kernel's listener as the program has set it: without waiting, if it is non-blocking.
    ///
    /// # Errors
    ///
    /// As the call has them.
    fn accept(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno>;

    /// Does accept4(2) on a blocking listener of the kernel's without waiting.
    ///
    /// # Errors
    ///
    /// As the call has them; EBUSY while another process accepts so.
    fn accept_at_once(&self, listener: RawFd, flags: i32) -> Result<Accepted, Errno>;

    /// Returns whether accept(2) on a listener of the kernel's does not wait (O_NONBLOCK), as one of the processes that have it has
    /// set it last. What [`Outside::accept_at_once`] makes of it for a moment does not count.
    fn is_non_blocking(&self, listener: RawFd) -> bool;

    /// Calls [`crate::Sockets::answer_children`], as children have asked for connections, and does what has to be done
    /// with what has become the kernel's.
    fn answer_children(&self);

    /// Replaces the shared stand-in of these descriptors by a new kernel socket (dup2(2)); their flags (FD_CLOEXEC)
    /// stay.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn give_own(&self, fds: &[RawFd], ipv6: bool) -> Result<(), Errno>;

    /// Looks whether there is a descriptor left for what comes from the privileged half.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    fn has_room(&self) -> Result<(), Errno>;

    /// Marks the connection of `fd` as about to become the kernel's, for children that have the same kernel socket behind
    /// that descriptor.
    fn begin(&self, fd: RawFd);

    /// Replaces what is behind these descriptors by a kernel connection. Their flags (FD_CLOEXEC) stay, and so do
    /// options that the kernel alone knows, unless they had the shared stand-in (`stands`); of a socket of their own that was
    /// there, it returns the number (SO_COOKIE).
    ///
    /// # Errors
    ///
    /// EBADF: one of them is closed.
    fn put(&self, fds: &[RawFd], connection: OwnedFd, stands: bool) -> Result<Option<u64>, Errno>;

    /// Gives these descriptors up, as the kernel has not taken their connection: calls go to the socket that is behind them.
    fn lose(&self, fds: &[RawFd]);

    /// Keeps the program from closing one of the library's descriptors by close(2), as programs do that close everything that they
    /// do not know.
    fn protect(&self, fd: RawFd);

    /// Returns a new mailbox, in which a kernel connection can be left to children ([`Outside::leave`]).
    ///
    /// # Errors
    ///
    /// EMFILE and its kin, or that so many descriptors are not to be taken from the program.
    fn mailbox(&self) -> Result<OwnedFd, Errno>;

    /// Leaves a connection there for a child that has the mailbox, too, and puts it behind its `fd`; or none, as it is lost.
    fn leave(&self, mailbox: BorrowedFd<'_>, fd: RawFd, connection: Option<RawFd>);

    /// Runs [`crate::Sockets::keep`] in a thread of its own that gets none of the program's signals.
    fn start_keeper(&self, part: Part) -> bool;

    /// Calls [`crate::Sockets::tell`] in a thread of its own that gets none of the program's signals.
    fn start_telling(&self, to: OwnedFd);

    /// Makes a kernel socket, which has the connection now, what the program has made of the stack's. No other thread uses
    /// these descriptors meanwhile.
    fn settle(&self, handed: &HandedOver);
}
