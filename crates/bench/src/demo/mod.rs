//! `uncork-bench demo`: the small-write experiment without and with uncork, as a table and as a
//! page with a picture.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::machine::Machine;
use crate::process::Scratch;
use crate::progress::Progress;
use crate::toolbox::Toolbox;

mod chart;
mod page;
mod panel;
mod sequence;
mod svg;
mod tables;
mod timeline;

/// What to run and where to write it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the chart of 15 writes, as a picture of its own, to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Logical packets of each run; those that stall take 25
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(100..=1_000_000)
    )]
    packets: u64,
}

/// All that the table and the page show.
pub(crate) struct Demo {
    /// Facts about the machine.
    pub(crate) machine: Machine,
    /// One panel for each size of logical packet.
    pub(crate) panels: Vec<panel::Panel>,
    /// The calls within one logical packet.
    pub(crate) timelines: Vec<timeline::Timeline>,
    /// Logical packets of a run.
    pub(crate) packets: u64,
}

/// Runs the experiment, prints the table and writes the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let machine = Machine::read();
    let tools = Toolbox::find()?;
    let scratch = Scratch::new(&tools)?;
    let progress = Progress::new();
    let mut panels = Vec::new();
    for buffers in [15, 100] {
        progress.title(&format!("{buffers} buffers"));
        panels.push(panel::measure((&tools, &progress), buffers, args.packets)?);
    }
    progress.title("one packet");
    let timelines = timeline::record(&tools, &progress)?;
    progress.end();
    drop(scratch);
    let demo = Demo { machine, panels, timelines, packets: args.packets };
    say(&tables::render(&demo))?;
    if let Some(path) = &args.html {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let page = page::render(&demo);
        fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
        say(&format!("The picture is in {}\n", path.display()))?;
    }
    if let (Some(path), Some(panel)) = (&args.svg, demo.panels.first()) {
        let picture = chart::alone(panel, chart::Scale::of(&demo.panels));
        fs::write(path, picture).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Prints; a reader that is gone is no error.
fn say(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to standard output"),
    }
}
