//! `uncork lab`: the published experiments, repeated here.

mod arguments;
mod broad;
#[cfg(test)]
mod drawn;
mod kernels;
mod kernels_page;
mod link;
mod nodelay;
mod page;
mod plot;
mod quickack;
#[cfg(test)]
mod samples;
mod tables;
mod tsq;
mod tuner;

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::arguments::{Guest, GuestPart};
use crate::failure::Failure;
use crate::output;
use crate::tables::{Width, wrap};
use arguments::Experiment;
pub(crate) use arguments::Lab;

/// Exit status of a run that was ended by Ctrl-C (128 + SIGINT, as in shells).
pub(crate) const INTERRUPTED: i32 = 130;

/// Runs the experiment, and returns the exit status.
pub(crate) fn lab(arguments: &Lab) -> Result<i32, Failure> {
    let name = arguments.experiment.name();
    let alone = arguments.experiment.needs_namespaces();
    let missing = uncork_netns::missing_capabilities();
    if alone && !missing.is_empty() {
        return Err(Failure::no_permission(format!(
            "uncork lab {name} makes network namespaces, for which it lacks {}: run it as root, \
             for example with `sudo uncork lab {name}`",
            missing.join(" and ")
        )));
    }
    for (program, package) in arguments.experiment.programs() {
        if crate::command::find(program.as_ref(), path().as_deref()).is_err() {
            return Err(Failure::own(format!(
                "uncork lab {name} needs {program}, which is not in PATH: install the package \
                 {package}"
            )));
        }
    }
    if alone {
        uncork_netns::clear_leftovers().map_err(|error| failed(&error))?;
    } else {
        uncork_netns::clear_scratch();
    }
    match &arguments.experiment {
        Experiment::Nodelay(nodelay) => nodelay::run(nodelay),
        Experiment::Tsq(tsq) => tsq::run(tsq),
        Experiment::Quickack(quickack) => quickack::run(quickack),
        Experiment::Kernels(kernels) => kernels::run(kernels),
        Experiment::Link(link) => link::run(link),
    }
}

/// Runs what `uncork lab kernels` starts: a virtual machine, and the only program in it.
pub(crate) fn guest(arguments: &Guest) -> Result<i32, Failure> {
    let done = match &arguments.part {
        GuestPart::Init { milliseconds } => {
            uncork_lab::kernels::init(Duration::from_millis(*milliseconds))
        }
        GuestPart::Machine { parent, program, arguments } => {
            uncork_lab::kernels::launch(*parent, program, arguments).map(|never| match never {})
        }
    };
    done.map(|()| 0).map_err(|error| failed(&error))
}

fn path() -> Option<std::ffi::OsString> {
    std::env::var_os("PATH")
}

/// Formats an error with its causes, in one line.
fn failed(error: &anyhow::Error) -> Failure {
    Failure::own(format!("{error:#}"))
}

/// Returns a flag that Ctrl-C and similar signals set. What was created is removed before the process ends.
pub(crate) fn stopped_by_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::own(format!("signals cannot be received: {error}")))?;
    }
    Ok(stop)
}

/// Returns the result of an experiment, unless Ctrl-C ended it.
fn unless_stopped<T>(done: anyhow::Result<T>, stop: &AtomicBool) -> Result<Option<T>, Failure> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(_) if stop.load(Relaxed) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// A file to which a page can be written: tested before the minutes that it takes to make one. The
/// old content is kept until there is a page.
struct Page(PathBuf);

fn open_page(file: &Path) -> Result<Page, Failure> {
    let page = Page(file.to_owned());
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    opened.map_err(|error| page.unusable(&error))?;
    Ok(page)
}

impl Page {
    fn write(&self, text: &str) -> Result<(), Failure> {
        fs::write(&self.0, text).map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &std::io::Error) -> Failure {
        Failure::unusable(format!("{}: it cannot be written: {error}", self.0.display()))
    }
}

/// Writes one document to standard output.
fn json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::own(format!("the result cannot be written: {error}")))?;
    output::print(&format!("{text}\n"))
}

/// Returns the kernel's release.
fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Wraps sentences to the terminal's width.
fn paragraph(text: &str, width: Width) -> String {
    wrap(text, width.columns().map(usize::from)).join("\n") + "\n"
}

/// Returns a bar for what is being measured, on a terminal.
fn bar(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
