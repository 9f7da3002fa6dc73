//! A link that is carried by a thread of this process, for as long as its owner keeps it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use uncork_path::Counts;

use crate::carry::{self, Settings};

/// The thread that carries frames; dropping this ends it.
#[derive(Debug)]
pub struct Carrier {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<[Counts; 2]>>>,
}

impl Carrier {
    /// Starts the thread, and returns when the devices exist.
    ///
    /// # Errors
    /// If a device cannot be created.
    pub fn start(settings: Settings) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::spawn(move || {
            carry::run(settings, &stopped, || {
                // Nobody waits any more if the process is about to end.
                let _ = ready.send(());
            })
        });
        let carrier = Self { stop, thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(carrier),
            // It has ended before it was ready: its result says why.
            Err(_) => carrier.end().and_then(|_| Err(anyhow!("the link ended at once"))),
        }
    }

    /// Whether it has ended by itself.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it; returns the counters of frames in both directions.
    ///
    /// # Errors
    /// The error that has ended it before.
    pub fn end(mut self) -> Result<[Counts; 2]> {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().context("the link has ended before")?;
        thread.join().map_err(|_| anyhow!("the link panicked"))?
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
