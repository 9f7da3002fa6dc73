//! Sleeps that can be interrupted.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Sleeps, unless told to stop.
///
/// # Errors
/// Soon after `stop` was set.
pub fn rest(time: Duration, stop: &AtomicBool) -> Result<()> {
    const TURN: Duration = Duration::from_millis(50);
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if stop.load(Relaxed) {
            bail!("interrupted");
        }
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(TURN));
    }
}
