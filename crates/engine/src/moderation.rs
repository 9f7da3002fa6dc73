//! Moderation: how often frames are taken in when many come, as network cards moderate their interrupts (`rx-usecs` and
//! `adaptive-rx` of ethtool(8)).
//!
//! A program that is quicker than those who ask it is woken for every few of their requests, answers these, and sleeps
//! again; most of what that costs is waking, sleeping and system calls. So frames that come soon after others wait in
//! their ring until there are some more, for as long as that changes little for the other ends: by what the last
//! milliseconds have shown ([`Requests`]) for no more than a quarter of the time for which they keep an answer before they ask again, and
//! only if [`ENOUGH`] requests are likely to have come by then. A single connection, or a few of them, are not delayed; bulk is
//! nothing that anybody answers, and does not count.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use uncork_high::Timer;
use uncork_packet::Instant;
use uncork_stack::Requests;

/// How often it is reckoned anew.
const PERIOD: Duration = Duration::from_millis(2);
/// Requests that a delay must be likely to gather.
const ENOUGH: u128 = 4;
/// A delay's part of the time from an answer to the next request, at the most.
const PART: u32 = 4;
/// A shorter one gathers little, and takes a timer, too.
const SHORTEST: Duration = Duration::from_micros(10);

/// When frames are taken in next.
#[derive(Debug)]
pub(crate) struct Moderation {
    /// No delay is longer; zero: there is none.
    longest: Duration,
    /// When it was reckoned last.
    reckoned: Instant,
    /// What frames may wait for others now.
    delay: Duration,
    /// They do until then.
    until: Instant,
    /// What wakes a sleeper then, once there has been one, and what it is set to.
    timer: Option<Timer>,
    set: Instant,
}

impl Moderation {
    /// Without any delay.
    pub(crate) fn off() -> Self {
        Self {
            longest: Duration::ZERO,
            reckoned: Instant::ZERO,
            delay: Duration::ZERO,
            until: Instant::ZERO,
            timer: None,
            set: Instant::ZERO,
        }
    }

    /// Frames wait for so long at the most.
    pub(crate) fn limit(&mut self, longest: Duration) {
        *self = Self { longest, timer: self.timer.take(), ..Self::off() };
    }

    /// Whether there is a delay at present.
    pub(crate) fn is_on(&self) -> bool {
        !self.delay.is_zero()
    }

    /// Whether frames are to wait.
    #[inline]
    pub(crate) fn holds(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Some have been taken in: the next ones may wait.
    #[inline]
    pub(crate) fn took(&mut self, now: Instant) {
        if !self.delay.is_zero() {
            self.until = now + self.delay;
        }
    }

    /// Whether it is time to reckon.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.longest.is_zero() && now.since(self.reckoned) >= PERIOD
    }

    /// These have come since the last time.
    pub(crate) fn reckon(&mut self, now: Instant, requests: &Requests) {
        let passed = now.since(self.reckoned);
        self.reckoned = now;
        let most = requests.mean_wait().map_or(Duration::ZERO, |wait| wait / PART);
        let delay = most.min(self.longest);
        let gathers =
            u128::from(requests.number()) * delay.as_nanos() >= ENOUGH * passed.as_nanos();
        self.delay = if gathers && delay >= SHORTEST { delay } else { Duration::ZERO };
    }

    /// What wakes a sleeper in place of the frames that wait; none if they do not, or no timer can be had.
    pub(crate) fn wakes(&mut self, now: Instant) -> Option<BorrowedFd<'_>> {
        if !self.holds(now) {
            return None;
        }
        if self.timer.is_none() {
            self.timer = Timer::new().ok();
        }
        let timer = self.timer.as_ref()?;
        if self.set != self.until {
            timer.set(self.until.since(now)).ok()?;
            self.set = self.until;
        }
        Some(timer.as_fd())
    }

    /// The timer's, which a program around this knows nothing of.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.timer.as_ref().map(Timer::as_raw_fd)
    }
}
