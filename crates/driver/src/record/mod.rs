//! Recording of frames, as a capture that Wireshark reads.
//!
//! Frames are recorded as the driver sees them: a train is one frame, and a checksum that is left to
//! the device is not filled in; a comment on the frame says so. Nothing that happens to the file, a
//! full disk included, affects the traffic.

mod pcapng;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use uncork_packet::{Capabilities, Checksum, Completion, Medium, Received, Transmit, Trust};

use crate::clock::{WallClock, wall_clock};
use crate::decorator::as_inner;
use crate::{Driver, Offer};
use pcapng::Direction;

/// Octets that are written at once: the most that a kill can lose, and only what is younger than [`FLUSH_AFTER`].
const BUFFER_BYTES: usize = 1 << 18;
/// A reader of the growing file (tail -f, Wireshark's pipe) sees frames no later than this, as long
/// as others follow.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

/// The state of a recording.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Frames written.
    pub frames: u64,
    /// Frames that passed before it began, and after writing had failed.
    pub missed: u64,
    /// Why writing failed, after which nothing more is written.
    pub error: Option<io::Error>,
}

/// A driver whose frames are recorded.
pub struct Record<D, W: Write> {
    inner: D,
    recorder: Recorder<W>,
}

struct Recorder<W: Write> {
    /// `None` before the recording begins, and once writing has failed.
    file: Option<W>,
    clock: WallClock,
    flushed: Duration,
    /// Blocks that are not written yet.
    pending: Vec<u8>,
    block: Vec<u8>,
    comment: String,
    outcome: Outcome,
    /// Called at once when writing has failed.
    fails: Fails,
}

/// Handles the error that ends a recording.
type Fails = Box<dyn FnMut(&io::Error)>;

impl<D: Driver, W: Write> std::fmt::Debug for Record<D, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").field("outcome", &self.recorder.outcome).finish_non_exhaustive()
    }
}

impl<D: Driver> Record<D, File> {
    /// Prepares to record into a file, from [`begin`](Self::begin) on. `interface` is the name that the capture gives it.
    pub fn later(inner: D, interface: &str) -> Self {
        Self::into(inner, None, interface, wall_clock())
    }

    /// Records into a new file from now on; an existing one is overwritten, unless another process records into it.
    ///
    /// # Errors
    ///
    /// If the file cannot be created, or another process records into it. Later errors are in [`outcome`](Self::outcome).
    pub fn begin(&mut self, path: &Path) -> io::Result<()> {
        self.recorder.file = Some(claim(path)?);
        self.recorder.write_out();
        Ok(())
    }
}

/// Opens and locks an empty file: two recordings in one file would make it unreadable.
fn claim(path: &Path) -> io::Result<File> {
    // The lock has to be held before the file is truncated.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // A pipe or a device has no contents to lose, and may well be shared.
    if file.metadata()?.is_file() {
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("it is being recorded into by another"),
            TryLockError::Error(error) => error,
        })?;
        file.set_len(0)?;
    }
    Ok(file)
}

impl<D: Driver, W: Write> Record<D, W> {
    /// Records into anything, with the times of `clock`.
    pub fn new(inner: D, file: W, interface: &str, clock: WallClock) -> Self {
        let mut record = Self::into(inner, Some(file), interface, clock);
        record.recorder.write_out();
        record
    }

    /// Makes the recorder, with the head of the file pending.
    fn into(inner: D, file: Option<W>, interface: &str, clock: WallClock) -> Self {
        let medium: Medium = inner.capabilities().medium;
        let mut recorder = Recorder {
            file,
            flushed: clock(),
            clock,
            pending: Vec::with_capacity(BUFFER_BYTES),
            block: Vec::new(),
            comment: String::new(),
            outcome: Outcome::default(),
            fails: Box::new(|_| {}),
        };
        pcapng::head(&mut recorder.pending, medium, interface);
        Self { inner, recorder }
    }

    /// Has `fails` called with the error that ends the recording, at once: the traffic may go on for
    /// days. If writing the head of the file has failed already, it is called here.
    #[must_use]
    pub fn telling(mut self, mut fails: impl FnMut(&io::Error) + 'static) -> Self {
        if let Some(error) = &self.recorder.outcome.error {
            fails(error);
        }
        self.recorder.fails = Box::new(fails);
        self
    }

    /// Returns the state of the recording.
    pub fn outcome(&self) -> &Outcome {
        &self.recorder.outcome
    }

    /// Writes what is pending, and takes the error that has ended the recording, if one
    /// has.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.recorder.write_out();
        self.recorder.outcome.error.take()
    }

    /// The driver below.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<W: Write> Recorder<W> {
    fn received(&mut self, frame: &Received<'_>) {
        self.comment.clear();
        if let Some(bytes) = frame.segment_bytes {
            let _ = write!(self.comment, "a train of segments of {bytes} octets");
        }
        if frame.trust == Trust::Good {
            self.say("its checksum needs no verifying, and may not be filled in");
        }
        self.frame(Direction::In, frame.bytes);
    }

    fn sent(&mut self, transmit: &Transmit, bytes: &[u8]) {
        self.comment.clear();
        if let Some(how) = transmit.segmentation {
            let _ = write!(self.comment, "a train of segments of {} octets", how.segment_bytes);
        }
        if matches!(transmit.checksum, Checksum::Partial { .. }) {
            self.say("its checksum is left to the device");
        }
        self.frame(Direction::Out, bytes);
    }

    fn say(&mut self, what: &str) {
        if !self.comment.is_empty() {
            self.comment.push_str("; ");
        }
        self.comment.push_str(what);
    }

    fn frame(&mut self, direction: Direction, bytes: &[u8]) {
        if self.file.is_none() {
            self.outcome.missed += 1;
            return;
        }
        let now = (self.clock)();
        pcapng::frame(&mut self.block, now, direction, bytes, &self.comment);
        if self.pending.len() + self.block.len() > BUFFER_BYTES {
            self.write_out();
        }
        self.pending.extend_from_slice(&self.block);
        self.outcome.frames += 1;
        if now.saturating_sub(self.flushed) >= FLUSH_AFTER {
            self.flushed = now;
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write_all(&self.pending).and_then(|()| file.flush()) {
            (self.fails)(&error);
            self.outcome.error = Some(error);
            self.file = None;
        }
        self.pending.clear();
    }
}

impl<W: Write> Drop for Recorder<W> {
    fn drop(&mut self) {
        self.write_out();
    }
}

impl<D: Driver, W: Write> Driver for Record<D, W> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        let recorder = &mut self.recorder;
        self.inner.receive(budget, &mut |frame| {
            recorder.received(&frame);
            each(frame);
        })
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        self.inner.complete(each)
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        let recorder = &mut self.recorder;
        self.inner.offer(&mut |slot| {
            let transmit = fill(slot)?;
            let bytes = usize::try_from(transmit.frame_bytes).unwrap_or(usize::MAX);
            recorder.sent(&transmit, slot.get(..bytes).unwrap_or_default());
            Some(transmit)
        })
    }

    as_inner!();
}
