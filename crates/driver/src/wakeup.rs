//! A descriptor that becomes readable when frames or completions can be fetched.

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

/// Interval after which frames are offered again that the kernel did not take (a full queue below, no memory for now).
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How long completions may go unnoticed on a device that raises no event for them: a small part of what such a
/// device holds (three quarters of a millisecond, see uncork-stack).
const GLANCE_AFTER: Duration = Duration::from_micros(100);

/// Interval at which a device that is down is checked for being gone.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// Number of sleeps in a row that did not need the set, after which it no longer watches the socket.
const RESTS_AFTER: u32 = 64;
/// Idle turns between two questions to the socket for more than its ring says, where nobody waits for
/// its events.
const TURNS_WITHOUT_EVENTS: u64 = 32;

/// An epoll set over a packet socket or an AF_XDP socket.
///
/// Received frames are watched level-triggered. Completions are watched edge-triggered:
/// level-triggered, the socket is "writable" whenever one slot is empty, which is nearly always. An event
/// stays in the set until it is fetched ([`drain`](Self::drain)), and the ring has to be looked at
/// after that, not before.
///
/// While the set watches the socket, the kernel notifies it of every frame that leaves, whether a thread sleeps or not
/// (sock_def_write_space): three percent of the cost of a small answer. So it rests while nobody waits for
/// completions, from the start: a server that polls before it sleeps may never wait for any, nor sleep.
#[derive(Debug)]
pub(crate) struct Wakeup {
    set: Epoll,
    /// Two more descriptors of the socket: an epoll set holds each only once.
    frames: OwnedFd,
    completions: OwnedFd,
    retry: Timer,
    /// Whether the timer runs, or has expired and was not noticed.
    timed: Cell<bool>,
    /// Number of sleeps without the set since it was last needed.
    unneeded: Cell<u32>,
}

/// What [`Wakeup::drain`] has fetched.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drained {
    /// Whether the device is down, or gone.
    pub(crate) error: bool,
    /// Whether the timer has expired ([`Wakeup::retry_soon`], [`Wakeup::look_later`]).
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
        // Completions from before this raise an event at once.
        add(&self.completions, EpollFlags::EPOLLOUT | EpollFlags::EPOLLET, COMPLETIONS)?;
        Ok(())
    }

    /// Whether the set watches nothing, as nobody has needed it for long.
    fn rests(&self) -> bool {
        self.unneeded.get() >= RESTS_AFTER
    }

    /// Whether [`Wakeup::drain`] is due after this many idle turns.
    pub(crate) fn is_worth_asking(&self, idle_turns: u64) -> bool {
        let is_early = idle_turns.is_power_of_two() && !self.rests();
        is_early || idle_turns.is_multiple_of(TURNS_WITHOUT_EVENTS)
    }

    /// Returns all of its descriptors.
    pub(crate) fn descriptors(&self) -> [RawFd; 4] {
        let [set, retry] = [self.set.0.as_raw_fd(), self.retry.as_raw_fd()];
        [set, self.frames.as_raw_fd(), self.completions.as_raw_fd(), retry]
    }

    /// Returns the set, which watches the socket until [`Wakeup::spare`] was called often enough.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        if !self.rests() || self.look_at_socket().is_ok() {
            self.unneeded.set(0);
        } else {
            // If there is no memory for that, a retry soon has to do.
            let _ = self.retry_soon();
        }
        self.set.0.as_fd()
    }

    /// Notes that a thread is about to sleep that does not need the set.
    pub(crate) fn spare(&self) {
        if self.rests() {
            return;
        }
        self.unneeded.set(self.unneeded.get() + 1);
        if self.rests() {
            // Both are in the set.
            let _ = self.set.delete(&self.frames);
            let _ = self.set.delete(&self.completions);
        }
    }

    /// Wakes a little later, as nothing else will.
    pub(crate) fn retry_soon(&self) -> io::Result<()> {
        self.wake_after(RETRY_AFTER)
    }

    /// Wakes to look for completions of a device that raises no events for them (zero copy).
    pub(crate) fn look_soon(&self) -> io::Result<()> {
        self.wake_after(GLANCE_AFTER)
    }

    /// Wakes to check a device that is down.
    pub(crate) fn look_later(&self) -> io::Result<()> {
        self.wake_after(LOOK_AFTER)
    }

    fn wake_after(&self, time: Duration) -> io::Result<()> {
        self.timed.set(true);
        self.retry.set(time)
    }

    /// Fetches the pending events.
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

    /// Asks the socket itself, which the set does not watch.
    fn is_in_error(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(self.frames.as_fd(), PollFlags::empty())];
        match poll(&mut asked, PollTimeout::ZERO) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR)))
    }
}

/// Sets the send buffer so that a whole ring, of `bytes` octets, may be in flight. The kernel wakes a thread that
/// waits for completions only while less than half of the buffer is in flight (sock_writeable).
pub(crate) fn allow_in_flight(fd: BorrowedFd<'_>, bytes: usize) {
    // The kernel doubles the value that it is given.
    let bytes = bytes.saturating_mul(2).min(usize::try_from(i32::MAX / 2).unwrap_or(0));
    // Without CAP_NET_ADMIN net.core.wmem_max is the bound. A socket at its bound reports it, and the
    // frames that it did not take are offered again.
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

    /// A socket, which an epoll set watches like any other, with or without something to read.
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
