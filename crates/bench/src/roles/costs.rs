//! The costs of the ways of keeping time for a held write, each separately.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{read, write};
use serde::{Deserialize, Serialize};
use uncork_bias::Biased;

/// Nanoseconds for one operation of each kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// Reading the clock.
    pub(crate) clock: f64,
    /// Setting a timerfd and clearing it.
    pub(crate) timerfd: f64,
    /// Waking a sleeping thread, until it runs.
    pub(crate) wake: f64,
    /// Taking and releasing an uncontended mutex.
    pub(crate) mutex: f64,
    /// Taking and releasing a biased lock as its owner.
    pub(crate) biased: f64,
    /// A write of one byte and the read of it, while the process has one thread.
    pub(crate) call_alone: f64,
    /// The same call while libc knows of a second thread, which sleeps.
    pub(crate) call_accompanied: f64,
}

/// Measures, and prints the figures as JSON. The first measurements need a single-threaded process.
pub(crate) fn run(times: u64) -> Result<()> {
    let call_alone = call(times)?;
    let clock = each(times, || {
        black_box(Instant::now());
    });
    let timerfd = timerfd(times)?;
    let mutex = Mutex::new(0u64);
    let mutex = each(times, || {
        if let Ok(mut value) = mutex.lock() {
            *value += 1;
        }
    });
    let biased = biased(times);
    let (wake, call_accompanied) = accompanied(times)?;
    let costs = Costs { clock, timerfd, wake, mutex, biased, call_alone, call_accompanied };
    println!("{}", serde_json::to_string(&costs).context("writing the figures")?);
    Ok(())
}

/// Returns the nanoseconds of one `run`.
fn each(times: u64, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        run();
    }
    start.elapsed().as_nanos() as f64 / times as f64
}

fn call(times: u64) -> Result<f64> {
    let (near, far) =
        socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
            .context("making a pair of sockets")?;
    let mut byte = [1];
    let mut failed = None;
    let nanoseconds = each(times, || {
        let result = write(&near, &byte).and_then(|_| read(far.as_fd(), &mut byte));
        failed = failed.or(result.err());
    });
    match failed {
        Some(error) => Err(error).context("writing to a socket of our own"),
        None => Ok(nanoseconds),
    }
}

fn timerfd(times: u64) -> Result<f64> {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
        .context("making a timer")?;
    let bound = TimeSpec::from_duration(Duration::from_millis(1));
    let mut failed = None;
    let nanoseconds = each(times / 4, || {
        let set = timer.set(Expiration::OneShot(bound), TimerSetTimeFlags::empty());
        failed = failed.or(set.and_then(|()| timer.unset()).err());
    });
    match failed {
        Some(error) => Err(error).context("setting a timer"),
        None => Ok(nanoseconds),
    }
}

fn biased(times: u64) -> f64 {
    let lock = Biased::new(0u64);
    let me = uncork_bias::this_thread(|| ());
    // There is no other thread for which a barrier would be needed.
    drop(lock.lock(me, || ()));
    each(times, || *lock.lock(me, || ()) += 1)
}

/// Measures with a second thread: waking it, and a call while it sleeps.
fn accompanied(times: u64) -> Result<(f64, f64)> {
    let done = AtomicBool::new(false);
    let ran = AtomicBool::new(false);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                thread::park();
                ran.store(true, Ordering::SeqCst);
            }
        });
        let calls = call(times);
        let wake = each(times / 100, || {
            ran.store(false, Ordering::SeqCst);
            sleeper.thread().unpark();
            while !ran.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        });
        done.store(true, Ordering::SeqCst);
        sleeper.thread().unpark();
        Ok((wake, calls?))
    })
}
