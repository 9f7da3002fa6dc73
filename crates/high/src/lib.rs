//! Descriptors that live long in a program that does not know of them, kept out of its way.
//!
//! A program may rely on getting the lowest free number, and may choose numbers itself: a shell's `exec 5<>file`
//! replaces whatever is there by dup2(2). So our descriptors get high numbers. Where the limit of descriptors
//! (RLIMIT_NOFILE) does not allow that, a descriptor keeps its number.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The lowest number for our own descriptors.
pub const HIGH: RawFd = 256;
/// The lowest number for a descriptor that is to be above those.
const HIGHER: RawFd = 512;
/// For limits below [`HIGH`]: still above what programs choose by themselves.
const LOWER: [RawFd; 3] = [128, 64, 32];

/// Moves an open file to a high number, closed on exec.
#[must_use]
pub fn high(fd: OwnedFd) -> OwnedFd {
    let numbers = [HIGH].into_iter().chain(LOWER);
    numbers.into_iter().find_map(|number| fcntl_dupfd_cloexec(&fd, number).ok()).unwrap_or(fd)
}

/// Moves an open file above those of [`high`]. When a process is killed the kernel closes the descriptors with
/// the highest numbers first.
#[must_use]
pub fn higher(fd: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(&fd, HIGHER).unwrap_or_else(|_| high(fd))
}

/// Duplicates a descriptor to a high number.
///
/// # Errors
///
/// EMFILE.
pub fn copy(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fcntl_dupfd_cloexec(fd, HIGH).or_else(|_| fd.try_clone_to_owned())
}

/// A non-blocking eventfd with a high number.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Creates one that is not readable.
    ///
    /// # Errors
    ///
    /// EMFILE and similar errors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(high(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // The counter is full only if nobody has read for a very long time.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A non-blocking timerfd of the monotonic clock with a high number.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates one that is not armed.
    ///
    /// # Errors
    ///
    /// EMFILE and similar errors.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(high(timerfd_create(TimerfdClockId::Monotonic, flags)?)))
    }

    /// Makes it readable once after `time`, and not before. Zero disarms it.
    ///
    /// # Errors
    ///
    /// If the program has closed it, or reused its number for something else.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Disarms it, which also makes it unreadable.
    ///
    /// # Errors
    ///
    /// As [`Timer::set`].
    pub fn unset(&self) -> io::Result<()> {
        self.set(Duration::ZERO)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    fn is_readable(fd: &impl AsFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut fds, Some(&limit)).unwrap() == 1
    }

    #[test]
    fn what_lives_long_is_out_of_the_way_and_closed_on_exec() {
        let low = || eventfd(0, EventfdFlags::empty()).unwrap();
        let moved =
            [(high(low()), HIGH), (higher(low()), HIGHER), (copy(low().as_fd()).unwrap(), HIGH)];
        for (fd, least) in &moved {
            assert!(fd.as_raw_fd() >= *least, "{fd:?} is below {least}");
            assert_eq!(fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
    }

    #[test]
    fn an_event_and_a_timer_are_readable_when_they_should() {
        let event = Event::new().unwrap();
        event.silence();
        assert!(!is_readable(&event));
        event.ring();
        assert!(is_readable(&event));
        event.silence();
        assert!(!is_readable(&event));
        let timer = Timer::new().unwrap();
        assert!(!is_readable(&timer));
        timer.set(Duration::from_nanos(1)).unwrap();
        assert!(is_readable(&timer));
        timer.unset().unwrap();
        assert!(!is_readable(&timer));
        assert!([event.as_raw_fd(), timer.as_raw_fd()].iter().all(|fd| *fd >= HIGH));
    }
}
