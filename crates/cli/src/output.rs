//! Output to the standard streams that survives a closed one.

use core::fmt::Display;
use std::borrow::Cow;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::failure::Failure;

/// Writes one sentence to standard error. If that is closed there is no reader.
pub(crate) fn complain(sentence: impl Display) {
    let _ = writeln!(io::stderr(), "uncork: {sentence}");
}

/// A queue of sentences to be written, for a process that must not block. The reader of its standard error may have
/// stopped, and may be a process that it serves. What does not fit is dropped.
struct Apart {
    queue: SyncSender<String>,
    /// Number of sentences that are not written yet.
    waiting: AtomicU64,
    left_out: AtomicU64,
}

static APART: OnceLock<Option<Apart>> = OnceLock::new();
/// Most sentences that may wait.
const MOST_WAITING: usize = 64;

/// Writes a sentence like [`complain`], in a thread of its own.
pub(crate) fn complain_apart(sentence: &str) {
    let Some(apart) = APART.get_or_init(Apart::begin) else { return };
    apart.waiting.fetch_add(1, SeqCst);
    if apart.queue.try_send(sentence.to_owned()).is_err() {
        apart.waiting.fetch_sub(1, SeqCst);
        apart.left_out.fetch_add(1, SeqCst);
    }
}

/// Waits that long for the queued sentences to be written.
pub(crate) fn finish_apart(patience: Duration) {
    let Some(Some(apart)) = APART.get() else { return };
    let until = Instant::now() + patience;
    while apart.waiting.load(SeqCst) > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Apart {
    fn begin() -> Option<Self> {
        let (queue, written) = sync_channel(MOST_WAITING);
        // Signals are for threads that can handle them.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).ok()?;
        let thread = thread::Builder::new().spawn(move || write_all(&written));
        let _ = before.thread_set_mask();
        thread.ok()?;
        Some(Self { queue, waiting: AtomicU64::new(0), left_out: AtomicU64::new(0) })
    }
}

fn write_all(sentences: &Receiver<String>) {
    for sentence in sentences {
        complain(sentence);
        // The static was set before anything was sent.
        let Some(Some(apart)) = APART.get() else { continue };
        match apart.left_out.swap(0, SeqCst) {
            0 => {}
            more => {
                complain(format_args!("{more} more sentences had no room here, and are left out"));
            }
        }
        apart.waiting.fetch_sub(1, SeqCst);
    }
}

/// Writes `text` to standard output; a reader that went away is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    survive_broken_pipes();
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Keeps SIGPIPE from ending this process, so that a write fails instead. It is blocked rather than ignored: no
/// process is started after this, or only with a mask of its own.
pub(crate) fn survive_broken_pipes() {
    let _ = SigSet::from(Signal::SIGPIPE).thread_block();
}

/// Returns `text` from another process, made safe to show on a terminal.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_says_cannot_drive_the_terminal() {
        assert_eq!(shown("redis\x1b[2J"), "redis\u{fffd}[2J");
        assert_eq!(shown("nginx: worker"), "nginx: worker");
    }
}
