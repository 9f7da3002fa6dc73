//! `uncork-corpus`: creates the labelled captures.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use uncork_corpus::label::Labels;
use uncork_corpus::make::Workshop;
use uncork_corpus::{broken, scenario};
use uncork_link::{Layer, Path, Settings};
use uncork_netns::PREFIX;

/// Makes captures of TCP stalls by real programs in network namespaces, and labels them.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes captures and their labels (as root).
    Make {
        /// Only scenarios whose name begins so.
        #[arg(long, num_args = 1..)]
        only: Vec<String>,
        /// Where they go; other labels there stay.
        #[arg(long)]
        out: PathBuf,
    },
    /// Writes the files that are broken on purpose.
    Broken {
        /// Where they go.
        #[arg(long)]
        out: PathBuf,
        /// A good pcap file to break.
        #[arg(long)]
        from: PathBuf,
    },
    /// Runs one scenario, with the program at one end started by a command; prints what is to be
    /// found, as a label.
    Live {
        /// The scenario.
        name: String,
        /// At which end.
        #[arg(long, value_enum, default_value = "client")]
        at: End,
        /// The command that starts the program, as in `-- uncork doctor -q --html FILE --`.
        #[arg(last = true, required = true)]
        wrap: Vec<String>,
    },
    /// Carries frames between two TAP devices, one in each namespace, until it is ended. Says
    /// `ready` when both are there; giving them addresses is left to ip(8).
    Link {
        /// A namespace, as `ip netns` knows it; given twice.
        #[arg(long, required = true)]
        namespace: Vec<String>,
        /// Name of the device in both.
        #[arg(long, default_value = "eth0")]
        device: String,
        /// TUN devices instead of TAP.
        #[arg(long)]
        bare_ip: bool,
        /// Segment trains cross whole.
        #[arg(long)]
        offload: bool,
        /// What happens from the first namespace to the second, and back, as JSON: `{"delay_us":
        /// 500, "rate": 10000000, "queue_bytes": 150000, "loss": {"data": [3], "least_bytes": 1}}`.
        #[arg(long, value_parser = path)]
        path: Vec<Path>,
    },
    /// Lists the scenarios.
    List,
    /// Removes what a run that was killed has left.
    Clear,
}

/// Far below the delays of the scenarios, and short enough to leave the cores to the programs.
const LINK_SPIN: Duration = Duration::from_micros(60);

#[derive(Clone, Copy, clap::ValueEnum)]
enum End {
    Client,
    Server,
}

fn main() -> ExitCode {
    match work(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uncork-corpus: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(command: Command) -> Result<()> {
    match command {
        Command::List => {
            for scenario in scenario::all() {
                println!("{:34} {}: {}", scenario.name, scenario.wire, scenario.about);
            }
            Ok(())
        }
        Command::Clear => uncork_netns::clear_leftovers(),
        Command::Broken { out, from } => broken::write(&out, &from),
        Command::Live { name, at, wrap } => live(&name, at, &wrap),
        Command::Make { only, out } => make(&only, &out),
        Command::Link { namespace, device, bare_ip, offload, path } => link(Settings {
            namespaces: namespace.try_into().ok().context("--namespace is wanted twice")?,
            device,
            layer: if bare_ip { Layer::Ip } else { Layer::Ethernet },
            segmentation_offload: offload,
            spin: LINK_SPIN,
            paths: path.try_into().ok().context("--path is wanted twice")?,
        }),
    }
}

fn path(text: &str) -> Result<Path, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn link(settings: Settings) -> Result<()> {
    // The devices that it holds keep their namespaces alive, removed or not: it must not outlive
    // the process that created it, however that ends.
    set_pdeathsig(Signal::SIGKILL)?;
    uncork_link::run(settings, &AtomicBool::new(false), || {
        println!("ready");
        let _ = std::io::stdout().flush();
    })?;
    Ok(())
}

fn make(only: &[String], out: &PathBuf) -> Result<()> {
    uncork_netns::clear_leftovers()?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = fs::canonicalize(out)?;
    let scratch = Scratch::new()?;
    let workshop = Workshop::new(&out, &scratch.0)?;
    let mut labels = Labels::read(&out)?;
    let mut failed = Vec::new();
    for scenario in scenario::all() {
        if !only.is_empty() && !only.iter().any(|begin| scenario.name.starts_with(begin)) {
            continue;
        }
        eprintln!("corpus: {}", scenario.name);
        match workshop.make(&scenario, &mut labels) {
            Ok(()) => labels.write(&out)?,
            Err(error) => {
                eprintln!("corpus: {} failed: {error:#}", scenario.name);
                failed.push(scenario.name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("not made: {}", failed.join(", "));
    }
    Ok(())
}

fn live(name: &str, at: End, wrap: &[String]) -> Result<()> {
    uncork_netns::clear_leftovers()?;
    let scratch = Scratch::new()?;
    let workshop = Workshop::new(&scratch.0, &scratch.0)?;
    let all = scenario::all();
    let scenario = all.iter().find(|scenario| scenario.name == name);
    let scenario = scenario.with_context(|| format!("there is no scenario {name}"))?;
    let at = match at {
        End::Client => scenario::At::Client,
        End::Server => scenario::At::Server,
    };
    let label = workshop.live(scenario, at, wrap)?;
    println!("{}", serde_json::to_string_pretty(&label)?);
    Ok(())
}

/// A directory for build products, which PostgreSQL's own user may enter.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", uncork_netns::own_mark()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
