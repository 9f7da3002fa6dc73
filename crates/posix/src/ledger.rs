//! What `--stats` counts for each socket, beyond the counters that are always kept.

use crate::kernel::Kernel;
use crate::report::HeldTime;
use crate::socket::{Socket, flag};
use crate::{Call, Posix};

/// Number of buckets of the time held: eight to an octave, from 8 ns to 2⁴⁰ ns.
const BUCKETS: usize = 8 * 38;

/// One socket's statistics.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) pushed_by: [u32; Call::ALL.len()],
    /// Writes passed through, by [`flag::REASONS`], then those for which the socket gives no reason. A write may come
    /// from a signal handler that has interrupted malloc(3): nothing here grows.
    passed: [u64; flag::REASONS.len() + 1],
    pub(crate) autocork: Option<Box<crate::reporting::AutocorkDump>>,
    held: [u32; BUCKETS],
    held_max_ns: u64,
    /// When the current hold began (ns), 0 if nothing is held.
    held_from_ns: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            pushed_by: [0; Call::ALL.len()],
            passed: [0; flag::REASONS.len() + 1],
            autocork: None,
            held: [0; BUCKETS],
            held_max_ns: 0,
            held_from_ns: 0,
        }
    }
}

/// Returns the bucket of a duration: its exponent and three bits of its mantissa.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let exponent = 63 - ns.leading_zeros() as usize;
    ((exponent - 3) * 8 + (ns >> (exponent - 3)) as usize % 8).min(BUCKETS - 1)
}

/// Returns the largest duration of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let exponent = bucket / 8;
    ((8 + bucket as u64 % 8 + 1) << exponent) - 1
}

impl Ledger {
    /// Iterates over the reasons for which writes were passed through, with their numbers.
    pub(crate) fn passed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let reasons = flag::REASONS.iter().map(|(_, reason)| *reason);
        let reasons = reasons.chain(["flags or control data of its own"]);
        reasons.zip(self.passed).filter(|(_, number)| *number != 0)
    }

    pub(crate) fn begin_hold(&mut self, now_ns: u64) {
        if self.held_from_ns == 0 {
            self.held_from_ns = now_ns;
        }
    }

    /// Ends the hold; returns its length, if one was open.
    pub(crate) fn end_hold(&mut self, now_ns: u64) -> Option<u64> {
        let from = core::mem::take(&mut self.held_from_ns);
        (from != 0).then(|| {
            let ns = now_ns.saturating_sub(from);
            self.held[bucket(ns)] += 1;
            self.held_max_ns = self.held_max_ns.max(ns);
            ns
        })
    }

    fn quantile(&self, samples: u64, share: f64) -> u64 {
        let wanted = (samples as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, number) in self.held.iter().enumerate() {
            seen += u64::from(*number);
            if seen >= wanted {
                return upper_ns(at).min(self.held_max_ns);
            }
        }
        self.held_max_ns
    }

    pub(crate) fn held_time(&self) -> Option<HeldTime> {
        let samples = self.held.iter().map(|n| u64::from(*n)).sum();
        (samples != 0).then(|| HeldTime {
            samples,
            p50_ns: self.quantile(samples, 0.50),
            p99_ns: self.quantile(samples, 0.99),
            max_ns: self.held_max_ns,
        })
    }
}

impl<K: Kernel> Posix<K> {
    /// Returns whether statistics are asked for.
    #[inline]
    pub(crate) fn keeps_ledger(&self) -> bool {
        let settings = self.settings();
        settings.stats != crate::config::StatsTo::Nowhere || settings.dump_interval.is_some()
    }

    fn with_ledger<T>(&self, socket: &Socket, run: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        // A signal handler may find that its own thread holds the lock: a lost count is harmless.
        let mut ledger = socket.ledger.try_lock().ok()?;
        Some(run(ledger.get_or_insert_default()))
    }

    #[cold]
    pub(crate) fn ledger_hold(&self, socket: &Socket) {
        let now = self.kernel.now();
        let dumps = self.settings().dump_interval.is_some();
        self.with_ledger(socket, |ledger| {
            ledger.begin_hold(now.0);
            if dumps && ledger.autocork.is_none() {
                ledger.autocork = Some(Box::default());
            }
        });
    }

    #[cold]
    pub(crate) fn ledger_push(&self, socket: &Socket, call: Call) {
        let now = self.kernel.now();
        let note = |ledger: &mut Ledger| {
            ledger.pushed_by[call as usize] += 1;
            let held_ns = ledger.end_hold(now.0);
            if let Some(dump) = &mut ledger.autocork {
                dump.push(socket, held_ns);
            }
        };
        if call == Call::Timer {
            // What was held already has a ledger; the timer's thread could not make one.
            if let Ok(mut ledger) = socket.ledger.try_lock()
                && let Some(ledger) = ledger.as_deref_mut()
            {
                note(ledger);
            }
            return;
        }
        self.with_ledger(socket, note);
        if self.settings().dump_interval.is_some() {
            self.kernel.consider_dump();
        }
    }

    #[cold]
    pub(crate) fn ledger_passed(&self, socket: &Socket) {
        let reason = flag::reason_number(socket.flags()).unwrap_or(flag::REASONS.len());
        self.with_ledger(socket, |ledger| ledger.passed[reason] += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_an_eighth_wide_and_in_order() {
        let mut last = 0;
        for ns in (8..100_000_000u64).step_by(997) {
            let at = bucket(ns);
            assert!(at >= last);
            assert!(upper_ns(at) >= ns && upper_ns(at) <= ns + ns / 8, "{ns}: {}", upper_ns(at));
            last = at;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_holds() {
        let mut ledger = Ledger::default();
        for us in 1..=100u64 {
            ledger.begin_hold(1);
            ledger.end_hold(1 + us * 1_000);
        }
        let held = ledger.held_time().unwrap();
        assert_eq!(held.samples, 100);
        assert_eq!(held.max_ns, 100_000);
        assert!((50_000..=57_000).contains(&held.p50_ns), "{held:?}");
        assert!((99_000..=100_000).contains(&held.p99_ns), "{held:?}");
    }

    #[test]
    fn a_push_of_nothing_held_is_no_sample() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.end_hold(5), None);
        assert_eq!(ledger.held_time(), None);
    }
}
