//! One descriptor that becomes readable when frames or completions are there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const FRAMES: u64 = 0;
const COMPLETIONS: u64 = 1;
const RETRY: u64 = 2;

/// How long frames wait that the kernel did not take (a full queue below, no memory for now).
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How often it is looked whether a device that is down is still there.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// An epoll set over the packet socket.
///
/// That frames are there is a state of the socket, and told as one. That some have left is an event:
/// as a state, the socket is "writable" whenever one slot is empty, which is nearly always. An event
/// stays in the set until it is fetched ([`drain`](Self::drain)), and the ring has to be looked at
/// after that, not before.
#[derive(Debug)]
pub(super) struct Wakeup {
    set: Epoll,
    /// A second descriptor of the socket: a set holds each only once.
    _socket: OwnedFd,
    retry: TimerFd,
}

/// What was fetched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drained {
    /// The device is down, or gone.
    pub(super) error: bool,
    /// It is later ([`Wakeup::retry_soon`], [`Wakeup::look_later`]).
    pub(super) retry: bool,
}

impl Wakeup {
    pub(super) fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let second = socket.try_clone_to_owned()?;
        let retry = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        set.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, FRAMES))?;
        let sent = EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        set.add(&second, EpollEvent::new(sent, COMPLETIONS))?;
        set.add(&retry, EpollEvent::new(EpollFlags::EPOLLIN, RETRY))?;
        Ok(Self { set, _socket: second, retry })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.set.0.as_fd()
    }

    /// Wakes a little later, as nothing else will.
    pub(super) fn retry_soon(&self) -> io::Result<()> {
        self.wake_after(RETRY_AFTER)
    }

    /// Wakes to see what has become of a device that is down.
    pub(super) fn look_later(&self) -> io::Result<()> {
        self.wake_after(LOOK_AFTER)
    }

    fn wake_after(&self, time: Duration) -> io::Result<()> {
        let then = Expiration::OneShot(TimeSpec::from(time));
        Ok(self.retry.set(then, TimerSetTimeFlags::empty())?)
    }

    /// Fetches the events that there are.
    pub(super) fn drain(&self) -> io::Result<Drained> {
        let mut events = [EpollEvent::empty(); 3];
        let count = match self.set.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut drained = Drained::default();
        for event in &events[..count] {
            drained.error |= event.events().contains(EpollFlags::EPOLLERR);
            if event.data() == RETRY {
                // Disarmed, it is no longer readable.
                self.retry.unset()?;
                drained.retry = true;
            }
        }
        Ok(drained)
    }
}
