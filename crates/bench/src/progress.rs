//! The progress line on a terminal; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// A line on standard error that is updated between measurements, never during one.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Creates it; it is shown if standard error is a terminal.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix:.bold} [{bar:24}] {pos}/{len} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Begins a new benchmark.
    pub(crate) fn title(&self, name: &str) {
        self.0.set_prefix(name.to_owned());
        self.0.set_message(String::new());
    }

    /// Says how many measurements follow.
    pub(crate) fn begin(&self, steps: usize) {
        self.0.set_length(steps as u64);
        self.0.set_position(0);
    }

    /// Names the measurement that starts now.
    pub(crate) fn on(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Says that the measurement is done.
    pub(crate) fn done(&self) {
        self.0.inc(1);
    }

    /// Prints a line that stays, on standard error, terminal or not.
    pub(crate) fn say(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// Removes the line at the end.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}
