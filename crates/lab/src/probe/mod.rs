//! The effect of a load on others: a ping beside it, and small requests over TCP.

mod ping;
mod request;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use serde::Serialize;

pub use ping::{PING_GIVEN_UP, ping, ping_from, ping_is_answered, ping_socket};
pub use request::request;

/// A distribution of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How many there are.
    pub count: u64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
}

impl Times {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        #[allow(clippy::cast_precision_loss)] // below 2^53 ns: 104 days
        let ms = |ns: u64| ns as f64 / 1e6;
        Self {
            count: histogram.len(),
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }
}

/// A probe that runs in the background.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Histogram<u64>>>>,
}

impl Probe {
    /// Ends it; returns what it measured.
    ///
    /// # Errors
    /// What went wrong while it ran.
    pub fn finish(mut self) -> Result<Times> {
        self.stop.store(true, Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Times::default()) };
        let histogram = thread.join().map_err(|_| anyhow!("a probe panicked"))??;
        Ok(Times::of(&histogram))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns a histogram up to a minute in nanoseconds, or 60 GB. A shared machine is not good for
/// three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(60_000_000_000, 3)?)
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}
