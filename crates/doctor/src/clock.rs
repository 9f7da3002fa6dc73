//! Steps of the clock that a capture's times come from: it was set by hand or by NTP. The hour that
//! was added is not an hour that anything waited.
//!
//! A backward step is plain to see. A forward step looks like an hour of silence, but the
//! connections' own clocks (the timestamps option, RFC 7323) know better.

use std::time::Duration;

use crate::direction::Direction;
use crate::verdict::words::count;

/// Frames of several interfaces and receive queues are reordered by less than this.
const BACK: Duration = Duration::from_secs(1);
/// A shorter silence may be a link that was down and kept its frames, and their timestamps.
const FORTH: Duration = Duration::from_secs(10);
/// Less than [`FORTH`], whatever the fractions of a second are.
const SHORTLY_SECONDS: u64 = 8;
/// A pause that is this long, and has this many ticks, tells how fast a connection's clock ticks.
const LEARNT: (Duration, u32) = (Duration::from_millis(20), 4);
/// RFC 7323 §5.4: at least one tick a second.
const SLOWEST: Duration = Duration::from_secs(1);

/// Reads the times of a capture as if its clock had never been set.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// What backward steps took away, and is added again.
    added: Duration,
    /// What forward steps had added, and is taken away again.
    taken: Duration,
    last: Duration,
    /// Whether all connections were silent, or the clock was set.
    suspect: bool,
    /// Whether it was ever set.
    set: bool,
    back: Steps,
    forth: Steps,
}

#[derive(Debug, Default)]
struct Steps {
    count: u64,
    largest: Duration,
}

impl Clock {
    /// Returns the time of a segment, corrected for the steps so far.
    #[inline]
    pub(crate) fn read(&mut self, at: Duration) -> Duration {
        // The usual case: a little later than the one before, by a clock that was never set.
        if !self.set && at >= self.last && at.as_secs() <= self.last.as_secs() + SHORTLY_SECONDS {
            self.last = at;
            return at;
        }
        self.read_oddly(at)
    }

    fn read_oddly(&mut self, at: Duration) -> Duration {
        let mut now = at.saturating_add(self.added).saturating_sub(self.taken);
        if now.saturating_add(BACK) < self.last {
            let step = self.last.saturating_sub(now);
            self.added += step;
            self.set = true;
            self.back.record(step);
            self.suspect = false;
            now = self.last;
        }
        if !self.last.is_zero() && now.saturating_sub(self.last) >= FORTH {
            self.suspect = true;
        }
        self.last = self.last.max(now);
        now
    }

    /// Returns whether there was a silence that [`check`](Self::check) has not explained yet.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Returns the time of a segment whose direction is known: after a silence, that direction's
    /// own clock tells how long it was.
    pub(crate) fn check(
        &mut self,
        now: Duration,
        direction: &Direction,
        timestamp: Option<u32>,
    ) -> Duration {
        let Some(seen) = direction.last_data.map(|last| now.saturating_sub(last)) else {
            return now;
        };
        let Some(passed) = timestamp.and_then(|value| passed(direction, value)) else { return now };
        if seen < FORTH {
            return now;
        }
        let step = seen.saturating_sub(passed.at_most);
        if step >= FORTH && passed.at_most < seen / 2 {
            self.taken += step;
            self.set = true;
            self.forth.record(step);
            self.suspect = false;
            self.last = now.saturating_sub(step);
            return self.last;
        }
        self.suspect = !passed.is_exact;
        now
    }

    /// Returns what was done to the times, in sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        let told = |steps: &Steps, way, how| {
            let size = steps.largest.as_secs_f64();
            let most = if steps.count == 1 { "by" } else { "by up to" };
            let times = if steps.count == 1 {
                "once".to_owned()
            } else {
                count(steps.count, "time", "times")
            };
            (steps.count > 0).then(|| {
                format!("The capture's clock jumped {way} {times}, {most} {size:.1} s{how}.")
            })
        };
        let back = ": times are counted on from there as if it had not, so later ones are not \
                    those of the capture";
        let forth = ", as the timestamps inside the connections show (it was set, or the machine \
                     slept): nobody is taken to have waited for that";
        let notes = [told(&self.back, "back", back), told(&self.forth, "forward", forth)];
        notes.into_iter().flatten().collect()
    }
}

impl Steps {
    fn record(&mut self, step: Duration) {
        self.count += 1;
        self.largest = self.largest.max(step);
    }
}

/// How much time has passed by a connection's own clock.
struct Passed {
    at_most: Duration,
    /// Whether it is known how fast that clock ticks.
    is_exact: bool,
}

/// Returns how much time has passed since the last data of this direction.
fn passed(direction: &Direction, value: u32) -> Option<Passed> {
    let ticks = ticks(direction, value)?;
    match direction.tick_hertz {
        // A clock that was never seen to tick tells nothing.
        0 => (ticks > 0).then(|| Passed { at_most: SLOWEST * ticks, is_exact: false }),
        hertz => {
            let at_most = Duration::from_secs_f64(f64::from(ticks) / f64::from(hertz));
            Some(Passed { at_most, is_exact: true })
        }
    }
}

/// Returns by how many ticks the clock has moved; the value of a reordered segment lies in the past.
fn ticks(direction: &Direction, value: u32) -> Option<u32> {
    let ticks = value.wrapping_sub(direction.last_timestamp?);
    (ticks < 1 << 31).then_some(ticks)
}

/// Learns from new data after a pause how fast a direction's clock ticks.
pub(crate) fn learn(direction: &mut Direction, pause: Duration, timestamp: Option<u32>) {
    let (least, least_ticks) = LEARNT;
    if pause < least {
        return;
    }
    let Some(ticks) = timestamp.and_then(|value| ticks(direction, value)) else { return };
    let hertz = f64::from(ticks) / pause.as_secs_f64();
    if ticks >= least_ticks && hertz <= f64::from(u16::MAX) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 65,535
        let hertz = hertz.round() as u16;
        direction.tick_hertz = hertz.max(1);
    }
}
