//! Detects whether the machine let a test measure time.
//!
//! A virtual processor is taken away for tens of milliseconds now and then, and nothing in the
//! guest accounts for it: `steal` in /proc/stat stays as it was. What was late then says nothing
//! about the program under test. So a thread on each processor sleeps a millisecond at a time and
//! notes how late it wakes; a measurement that fails is repeated if they were late as well,
//! and fails at once if they were not. No limit becomes wider by that, and a fault that shows
//! every time fails every time.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::Write as _;
use std::panic::{UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Most times that a measurement is taken.
const TRIES: usize = 6;
/// How long a watcher sleeps at a time.
const NAP: Duration = Duration::from_millis(1);
/// A thread that wakes later than this from a nap was not merely queued after other threads: the
/// scheduler gives those at most 4 ms (`sched_base_slice`), and prefers a thread that has slept.
const LATE: Duration = Duration::from_millis(6);

/// Takes a measurement until it succeeds, or has failed while no processor was away.
///
/// # Errors
///
/// The last error of `measure`.
pub fn measured<T, E: Display>(
    what: &str,
    mut measure: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    // Not by eprintln, which the test runner captures while a test succeeds.
    let note = |late: Duration, error: &E| {
        let _ = writeln!(
            std::io::stderr(),
            "note: {what} is taken again, as a processor was away for {late:.1?}: {error}"
        );
    };
    again_if(note, || {
        let watch = Watch::begin();
        let outcome = measure();
        (outcome, watch.end())
    })
}

/// Does the same for a test that panics.
///
/// # Panics
///
/// With the last panic of `test`.
pub fn asserted(what: &str, test: impl Fn() + UnwindSafe + std::panic::RefUnwindSafe) {
    let mut payload = None;
    let outcome = measured(what, || {
        catch_unwind(&test).map_err(|panic| {
            payload = Some(panic);
            "it has panicked"
        })
    });
    if let (Err(_), Some(panic)) = (outcome, payload) {
        resume_unwind(panic);
    }
}

fn again_if<T, E>(
    note: impl Fn(Duration, &E),
    mut measure: impl FnMut() -> (Result<T, E>, Duration),
) -> Result<T, E> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match measure() {
            (Err(error), late) if late > LATE && left > 0 => note(late, &error),
            (outcome, _) => return outcome,
        }
    }
}

/// Watches how late sleeping threads wake, on every processor that this thread may use.
struct Watch {
    ended: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Duration>>,
}

impl Watch {
    fn begin() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let usable = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let watchers = (0..CpuSet::MAX_CPU)
            .filter(|processor| usable.is_set(*processor))
            .map(|processor| {
                let ended = ended.clone();
                thread::spawn(move || worst_lateness_on(processor, &ended))
            })
            .collect();
        Self { ended, watchers }
    }

    /// Returns the longest time that any of them overslept.
    fn end(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        let late = self.watchers.into_iter().filter_map(|watcher| watcher.join().ok());
        late.max().unwrap_or_default()
    }
}

fn worst_lateness_on(processor: usize, ended: &AtomicBool) -> Duration {
    let mut only = CpuSet::new();
    only.set(processor);
    // If it may not be bound to a processor, it watches the one that it gets.
    let _ = sched_setaffinity(None, &only);
    let mut worst = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        thread::sleep(NAP);
        worst = worst.max(begun.elapsed().saturating_sub(NAP));
    }
    worst
}

#[cfg(test)]
mod tests {
    use std::process::{Command, ExitStatus, Stdio};

    use super::*;

    /// Runs a measurement that fails this often; returns the number of tries.
    fn tried(failures: usize, late: Duration) -> (Result<(), String>, usize) {
        let mut taken = 0;
        let outcome = again_if(
            |_, _| {},
            || {
                taken += 1;
                let outcome = if taken > failures { Ok(()) } else { Err("too late".to_owned()) };
                (outcome, late)
            },
        );
        (outcome, taken)
    }

    #[test]
    fn what_fails_on_a_calm_machine_fails_at_once() {
        assert_eq!(tried(1, LATE), (Err("too late".to_owned()), 1));
    }

    #[test]
    fn what_fails_while_a_processor_is_away_is_taken_again_and_not_for_ever() {
        let late = LATE + NAP;
        assert_eq!(tried(2, late), (Ok(()), 3));
        assert_eq!(tried(usize::MAX, late), (Err("too late".to_owned()), TRIES));
        assert_eq!(tried(0, late), (Ok(()), 1));
    }

    #[test]
    fn a_watch_sees_whoever_keeps_a_processor_to_himself() {
        // No ordinary thread runs while a real-time thread counts, for a fifth of a second or so.
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut greedy = Command::new("chrt");
        greedy.args(["--fifo", "10", "taskset", "--cpu-list", "0", "sh", "-c", count]);
        let watch = Watch::begin();
        let Some(done) = greedy.stderr(Stdio::null()).status().ok().filter(ExitStatus::success)
        else {
            let name = "a_watch_sees_whoever_keeps_a_processor_to_himself";
            let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!in_ci, "{name} may not be skipped in CI");
            let _ = writeln!(std::io::stderr(), "skipped: {name}: needs CAP_SYS_NICE and chrt");
            return;
        };
        let late = watch.end();
        assert!(late > LATE, "{late:?}, {done}");
    }

    #[test]
    #[should_panic(expected = "as it says")]
    fn a_panic_goes_on() {
        asserted("a test of panics", || panic!("as it says"));
    }
}
