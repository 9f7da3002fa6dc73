//! One descriptor that becomes readable when frames or completions are there.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use uncork_high::{Timer, copy, high};

const FRAMES: u64 = 0;
const COMPLETIONS: u64 = 1;
const RETRY: u64 = 2;

/// How long frames wait that the kernel did not take (a full queue below, no memory for now).
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How long what has left a device may go unseen where nobody tells of it: a small part of what such a
/// device holds (three quarters of a millisecond, see uncork-stack).
const GLANCE_AFTER: Duration = Duration::from_micros(100);

/// How often it is looked whether a device that is down is still there.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// Sleeps in a row for which nobody has needed the set, after which it no longer looks at the socket.
const RESTS_AFTER: u32 = 64;
/// Turns that have found nothing between two questions to the socket for more than its ring says, where nobody waits for
/// its events.
const TURNS_WITHOUT_EVENTS: u64 = 32;

/// An epoll set over a packet socket or one of AF_XDP.
///
/// That frames are there is a state of the socket, and told as one. That some have left is an event:
/// as a state, the socket is "writable" whenever one slot is empty, which is nearly always. An event
/// stays in the set until it is fetched ([`drain`](Self::drain)), and the ring has to be looked at
/// after that, not before.
///
/// A set that looks at the socket has the kernel tell it of every frame that leaves, whoever sleeps or not
/// (sock_def_write_space): three percent of what a small answer costs. So it rests while nobody waits for
/// completions, from the beginning on: a server that tries before it sleeps may never wait for any, nor sleep.
#[derive(Debug)]
pub(crate) struct Wakeup {
    set: Epoll,
    /// Two more descriptors of the socket: a set holds each only once.
    frames: OwnedFd,
    completions: OwnedFd,
    retry: Timer,
    /// The timer runs, or has run out and nobody has noticed.
    timed: Cell<bool>,
    /// Sleeps without it since it was needed.
    unneeded: Cell<u32>,
}

/// What was fetched.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drained {
    /// The device is down, or gone.
    pub(crate) error: bool,
    /// It is later ([`Wakeup::retry_soon`], [`Wakeup::look_later`]).
    pub(crate) retry: bool,
}

impl Wakeup {
    pub(crate) fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let set = Epoll(high(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?.0));
        let frames = copy(socket)?;
        let completions = copy(socket)?;
        let retry = Timer::new()?;
        set.add(&retry, EpollEvent::new(EpollFlags::EPOLLIN, RETRY))?;
        let unneeded = Cell::new(RESTS_AFTER);
        Ok(Self { set, frames, completions, retry, timed: Cell::new(false), unneeded })
    }

    fn look_at_socket(&self) -> io::Result<()> {
        let add = |socket: &OwnedFd, events, name| match self
            .set
            .add(socket, EpollEvent::new(events, name))
        {
            Err(nix::Error::EEXIST) => Ok(()),
            result => result,
        };
        add(&self.frames, EpollFlags::EPOLLIN, FRAMES)?;
        // What has left meanwhile is told at once.
        add(&self.completions, EpollFlags::EPOLLOUT | EpollFlags::EPOLLET, COMPLETIONS)?;
        Ok(())
    }

    /// Whether it looks at nothing, as nobody has needed it for long.
    fn rests(&self) -> bool {
        self.unneeded.get() >= RESTS_AFTER
    }

    /// Whether it is time for [`Wakeup::drain`], behind so many turns that have found nothing.
    pub(crate) fn is_worth_asking(&self, idle_turns: u64) -> bool {
        let is_early = idle_turns.is_power_of_two() && !self.rests();
        is_early || idle_turns.is_multiple_of(TURNS_WITHOUT_EVENTS)
    }

    /// All of its own.
    pub(crate) fn descriptors(&self) -> [RawFd; 4] {
        let [set, retry] = [self.set.0.as_raw_fd(), self.retry.as_raw_fd()];
        [set, self.frames.as_raw_fd(), self.completions.as_raw_fd(), retry]
    }

    /// The set, which looks at the socket until [`Wakeup::spare`] was called often enough.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        if !self.rests() || self.look_at_socket().is_ok() {
            self.unneeded.set(0);
        } else {
            // Without the memory for that, looking again soon has to do.
            let _ = self.retry_soon();
        }
        self.set.0.as_fd()
    }

    /// Somebody is about to sleep who does not need it.
    pub(crate) fn spare(&self) {
        if self.rests() {
            return;
        }
        self.unneeded.set(self.unneeded.get() + 1);
        if self.rests() {
            // They are in there.
            let _ = self.set.delete(&self.frames);
            let _ = self.set.delete(&self.completions);
        }
    }

    /// Wakes a little later, as nothing else will.
    pub(crate) fn retry_soon(&self) -> io::Result<()> {
        self.wake_after(RETRY_AFTER)
    }

    /// Wakes to look for what has left a device that does not tell (zero copy).
    pub(crate) fn look_soon(&self) -> io::Result<()> {
        self.wake_after(GLANCE_AFTER)
    }

    /// Wakes to see what has become of a device that is down.
    pub(crate) fn look_later(&self) -> io::Result<()> {
        self.wake_after(LOOK_AFTER)
    }

    fn wake_after(&self, time: Duration) -> io::Result<()> {
        self.timed.set(true);
        self.retry.set(time)
    }

    /// Fetches the events that there are.
    pub(crate) fn drain(&self) -> io::Result<Drained> {
        let mut drained = Drained::default();
        if self.rests() {
            drained.error = self.is_in_error()?;
            if !self.timed.get() {
                return Ok(drained);
            }
        }
        let mut events = [EpollEvent::empty(); 3];
        let count = match self.set.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            drained.error |= event.events().contains(EpollFlags::EPOLLERR);
            if event.data() == RETRY {
                // Disarmed, it is no longer readable.
                self.retry.unset()?;
                self.timed.set(false);
                drained.retry = true;
            }
        }
        Ok(drained)
    }

    /// What the socket itself says: the set does not look at it.
    fn is_in_error(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(self.frames.as_fd(), PollFlags::empty())];
        match poll(&mut asked, PollTimeout::ZERO) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR)))
    }
}

/// Whatever is in a ring may be under way at once: so many octets. The kernel counts what is, and wakes whoever
/// waits for completions only while that is less than half of what it allows (sock_writeable).
pub(crate) fn allow_in_flight(fd: BorrowedFd<'_>, bytes: usize) {
    // The kernel doubles what it is told.
    let bytes = bytes.saturating_mul(2).min(usize::try_from(i32::MAX / 2).unwrap_or(0));
    // Without CAP_NET_ADMIN it is what net.core.wmem_max allows. A socket that is at its bound says
    // so, and what it did not take is offered again.
    if setsockopt(&fd, sockopt::SndBufForce, &bytes).is_err() {
        let _ = setsockopt(&fd, sockopt::SndBuf, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd as _, BorrowedFd};
    use std::thread;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::{LOOK_AFTER, RESTS_AFTER, Wakeup};

    /// A socket, which is told of like any other, with something to be read or not.
    fn socket(has_something: bool) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        if has_something {
            socket.send_to(b"a frame", socket.local_addr()?)?;
        }
        Ok(socket)
    }

    fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut asked = [PollFd::new(fd, PollFlags::POLLIN)];
        Ok(poll(&mut asked, PollTimeout::ZERO)? > 0)
    }

    #[test]
    fn it_rests_from_the_beginning_until_somebody_sleeps_on_it() -> io::Result<()> {
        let socket = socket(true)?;
        let wakeup = Wakeup::new(socket.as_fd())?;
        assert!(!is_readable(wakeup.set.0.as_fd())?);
        assert!(!wakeup.is_worth_asking(1) && wakeup.is_worth_asking(32));
        assert!(is_readable(wakeup.fd())?);
        assert!(wakeup.is_worth_asking(1));
        (0..RESTS_AFTER).for_each(|_| wakeup.spare());
        assert!(!is_readable(wakeup.set.0.as_fd())?);
        assert!(is_readable(wakeup.fd())?);
        Ok(())
    }

    #[test]
    fn who_does_not_sleep_is_told_that_it_is_later_though_it_rests() -> io::Result<()> {
        let socket = socket(false)?;
        let wakeup = Wakeup::new(socket.as_fd())?;
        wakeup.look_later()?;
        assert!(!wakeup.drain()?.retry);
        thread::sleep(LOOK_AFTER * 2);
        assert!(wakeup.drain()?.retry);
        assert!(!wakeup.drain()?.retry);
        Ok(())
    }
}
