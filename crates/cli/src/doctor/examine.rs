//! From a capture to a report.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use uncork_capture::{Capture, Counts, Error};
use uncork_doctor::{Doctor, Report, Settings};

use super::input::Input;

/// Smaller captures are read before a bar could be seen.
const WORTH_A_BAR_BYTES: u64 = 64 << 20;
/// How many frames are read between two updates of the bar.
const FRAMES_BETWEEN_LOOKS: u64 = 1 << 15;

/// The result of reading a capture.
pub(super) struct Examined {
    pub(super) report: Report,
    pub(super) counts: Counts,
    /// Why it could be read no further.
    pub(super) broken: Option<Error>,
}

/// Reads all frames, as far as they can be read.
pub(super) fn examine(input: Input, settings: Settings, quiet: bool) -> Result<Examined, Error> {
    let progress = bar(&input, quiet);
    let interrupted = input.interrupted();
    let mut capture = Capture::open(input)?;
    let mut doctor = Doctor::new(settings);
    let end = loop {
        let frame = match capture.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        match uncork_wire::read_frame(frame.link, frame.bytes, frame.wire_bytes) {
            Ok(segment) => doctor.segment(frame.time, &segment),
            Err(unread) => doctor.unread(unread),
        }
        if let Some(progress) = &progress
            && capture.counts().frames.is_multiple_of(FRAMES_BETWEEN_LOOKS)
        {
            progress.set_position(capture.position_bytes());
        }
    };
    if let Some(progress) = progress {
        progress.finish_and_clear();
    }
    // Ctrl-C may end the writer in the middle of a frame.
    let broken = end.filter(|why| !(interrupted.get() && matches!(why, Error::CutOff { .. })));
    Ok(Examined { report: doctor.finish(), counts: capture.counts(), broken })
}

/// Returns a progress bar, on a terminal, for a capture that takes a while.
fn bar(input: &Input, quiet: bool) -> Option<ProgressBar> {
    let length = input.length_bytes.filter(|length| *length >= WORTH_A_BAR_BYTES)?;
    if quiet || !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(length);
    let template = "reading [{bar:30}] {bytes} of {total_bytes}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    Some(bar)
}
