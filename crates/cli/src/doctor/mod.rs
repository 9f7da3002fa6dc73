//! `uncork doctor`: what is wrong with connections.
//!
//! Arguments, input and output are here; what is found is decided in `uncork-doctor`.

mod arguments;
mod examine;
mod fail_on;
mod input;
mod live;
mod output;
mod page;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod schema;
mod table;
mod words;

use std::io::{self, ErrorKind};
use std::path::Path;

use uncork_capture::{Counts, Error};
use uncork_doctor::{Report, Settings};

pub(crate) use arguments::{Doctor, meant};

use crate::failure::Failure;
use crate::output::{complain, shown};
use examine::{Examined, examine};
use fail_on::FailOn;
use input::{Input, is_stdin};
use output::Page;

/// Exit statuses.
mod code {
    pub(super) const NOTHING_FOUND: i32 = 0;
    pub(super) const FOUND: i32 = 1;
    pub(super) const UNREADABLE: i32 = crate::failure::Failure::USAGE;
}

/// `uncork doctor`.
pub(crate) fn doctor(arguments: &Doctor) -> Result<i32, Failure> {
    let mut settings = Settings { every_connection: arguments.all, ..Settings::default() };
    if let Some(slow) = arguments.slow {
        settings.slow_application = slow;
    }
    arguments.check()?;
    let Some(path) = &arguments.pcap else {
        let page = Page::wanted(arguments)?;
        let report = live::report(&arguments.live, settings, (arguments.json, arguments.quiet))?;
        crate::output::survive_broken_pipes();
        show(&report, arguments, page)?;
        let share = |condition: &FailOn| matches!(condition, FailOn::Share(_));
        if report.sampling.is_some() && arguments.fail_on.iter().any(share) {
            complain(
                "--fail-on share: requests are not seen without tracing, so any time lost is too \
                 much",
            );
        }
        return Ok(verdict(&report, arguments));
    };
    let name = name_of(path);
    if arguments.html.as_ref().is_some_and(|page| output::are_same(page, path)) {
        return Err(Failure::unusable(format!(
            "{name}: the page would replace the capture: give --html another name"
        )));
    }
    let input = Input::open(path).map_err(|error| cannot_read(&name, &Error::Io(error)))?;
    let page = Page::wanted(arguments)?;
    crate::output::survive_broken_pipes();
    let examined =
        examine(input, settings, arguments.quiet).map_err(|error| cannot_read(&name, &error))?;
    let Examined { report, counts, broken } = examined;
    match &broken {
        Some(error) if counts.frames == 0 => return Err(cannot_read(&name, error)),
        _ => show(&report, arguments, page)?,
    }
    if !arguments.quiet {
        remark(&name, &report, counts);
    }
    if let Some(error) = broken {
        let frames = counts.frames;
        let (plural, stand) = if frames == 1 { ("", "s") } else { ("s", "") };
        complain(format_args!(
            "{name}: {error}; the {frames} frame{plural} before it stand{stand}"
        ));
        return Ok(code::UNREADABLE);
    }
    Ok(verdict(&report, arguments))
}

/// Returns the name of the capture in sentences.
fn name_of(path: &Path) -> String {
    if is_stdin(path) {
        return "standard input".to_owned();
    }
    shown(&path.to_string_lossy()).into_owned()
}

/// Prints the report. The page comes last: if it cannot be written, the findings are printed all the same.
fn show(report: &Report, arguments: &Doctor, page: Option<Page>) -> Result<(), Failure> {
    match arguments {
        Doctor { quiet: true, .. } => {}
        Doctor { json: true, .. } => output::print_json(report)?,
        _ => output::print_table(report)?,
    }
    page.map_or(Ok(()), |page| page.write(report))
}

/// Reports what is missing from the report, and why.
fn remark(name: &str, report: &Report, counts: Counts) {
    match counts.files_behind {
        0 => {}
        1 => complain(format_args!("{name}: a second file begins in it, and was read as well")),
        more => complain(format_args!("{name}: {more} more files begin in it, and were read")),
    }
    if let (Some(link), left_out @ 1..) = (counts.first_unknown_link, counts.unknown_link) {
        let frames = if left_out == 1 { "frame was" } else { "frames were" };
        complain(format_args!(
            "{name}: {left_out} {frames} left out: link type {link} is not read"
        ));
    }
    if counts.without_time > 0 {
        complain(format_args!(
            "{name}: {} no time (simple packet blocks), of {}: stalls there cannot be seen",
            words::counted(counts.without_time, "frame has", "frames have"),
            counts.frames
        ));
    }
    if report.summary.segments == 0 && counts.frames > 0 {
        complain(format_args!("{name}: there is no TCP segment in it (frames: {})", counts.frames));
    }
}

fn verdict(report: &Report, arguments: &Doctor) -> i32 {
    let found = if arguments.fail_on.is_empty() {
        report.summary.connections_with_findings > 0
    } else {
        arguments.fail_on.iter().any(|condition| condition.holds(report))
    };
    if found { code::FOUND } else { code::NOTHING_FOUND }
}

fn cannot_read(name: &str, error: &Error) -> Failure {
    let denied = matches!(error, Error::Io(error) if denied(error));
    let sentence = format!("{name}: {error}");
    if denied { Failure::no_permission(sentence) } else { Failure::unusable(sentence) }
}

fn denied(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}
