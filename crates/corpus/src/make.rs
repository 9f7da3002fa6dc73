//! Creation of a capture: namespaces, link, programs, tcpdump, and the label.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::capture::{Capture, Options};
use crate::label::{Connection, Label, Labels, Made, Measured};
use crate::network::{DEVICE, Network};
use crate::program::{Timed, Toolbox};
use crate::rewrite;
use crate::running::{Running, wait_for};
use crate::scenario::{At, Kind, Programs, Scenario, View, Wire};

/// How often the run with the cure is measured.
const CURED_RUNS: usize = 5;

/// An observer of the running programs: it is given the servers' processes once they listen, and
/// told that the clients have ended while the servers still run.
pub trait Watch {
    /// The servers listen; no client runs yet.
    ///
    /// # Errors
    /// Ends the run.
    fn begin(&mut self, servers: &[u32]) -> Result<()>;

    /// The clients have ended.
    ///
    /// # Errors
    /// Ends the run.
    fn end(&mut self) -> Result<()>;
}

/// What a run is for.
enum About<'a> {
    Timing,
    Capturing(&'a Scenario),
    /// The program at one end is started by this command.
    Wrapping(At, &'a [String]),
    Watching(&'a mut dyn Watch),
}

/// The directories and tools with which captures are made.
#[derive(Debug)]
pub struct Workshop {
    toolbox: Toolbox,
    /// The program `uncork-corpus`, which also acts as a link.
    own: PathBuf,
    out: PathBuf,
}

impl Workshop {
    /// Creates it. Captures go to `out`, scratch files to `scratch`; both must exist.
    ///
    /// # Errors
    /// If something that is needed is missing.
    pub fn new(out: &Path, scratch: &Path) -> Result<Self> {
        Self::with_program(out, scratch, std::env::current_exe()?)
    }

    /// Creates it with another `uncork-corpus` than this program, to act as a link.
    ///
    /// # Errors
    /// If something that is needed is missing.
    pub fn with_program(out: &Path, scratch: &Path, own: PathBuf) -> Result<Self> {
        fs::write(scratch.join("select.sql"), "select 1;\n")?;
        Ok(Self { toolbox: Toolbox::new(scratch)?, own, out: out.to_owned() })
    }

    /// Makes the captures of a scenario, and labels them.
    ///
    /// # Errors
    /// If anything fails; then nothing is labelled.
    pub fn make(&self, scenario: &Scenario, labels: &mut Labels) -> Result<()> {
        let timed = self.run(&scenario.ill, &scenario.wire, About::Capturing(scenario))?;
        let mut cured_total_ms = Vec::new();
        if let Some(cure) = &scenario.cured {
            for _ in 0..CURED_RUNS {
                let cured = self.run(&cure.programs, &cure.wire, About::Timing)?;
                let cured = cured.context("the client of the run with the cure timed nothing")?;
                cured_total_ms.push(round(cured.total_ms()));
            }
        }
        let measured =
            timed.as_ref().map(|timed| measured(timed, cured_total_ms, scenario.indirect));
        for view in &scenario.views {
            let file = format!("{}{}.{}", scenario.name, view.suffix, extension(view));
            rewrite_view(&self.out.join(&file), view)?;
            labels.put(label(scenario, view, file, timed.as_ref(), measured.as_ref()));
        }
        Ok(())
    }

    /// Runs a scenario without capturing it, with the program at one end started by `wrap` (for
    /// example `uncork doctor -q --html FILE --`), and returns the expected findings.
    ///
    /// # Errors
    /// If anything fails.
    pub fn live(&self, scenario: &Scenario, at: At, wrap: &[String]) -> Result<Label> {
        self.labelled_live(scenario, at, About::Wrapping(at, wrap))
    }

    /// Runs a scenario without capturing it while `watch` observes the servers' end, and returns
    /// the expected findings.
    ///
    /// # Errors
    /// If anything fails.
    pub fn watched(&self, scenario: &Scenario, watch: &mut dyn Watch) -> Result<Label> {
        self.labelled_live(scenario, At::Server, About::Watching(watch))
    }

    fn labelled_live(&self, scenario: &Scenario, at: At, about: About) -> Result<Label> {
        let timed = self.run(&scenario.ill, &scenario.wire, about)?;
        let mut cured_total_ms = Vec::new();
        if let Some(cure) = &scenario.cured {
            let cured = self.run(&cure.programs, &cure.wire, About::Timing)?;
            cured_total_ms.extend(cured.map(|cured| round(cured.total_ms())));
        }
        let measured =
            timed.as_ref().map(|timed| measured(timed, cured_total_ms, scenario.indirect));
        let mut view = View::at(at);
        view.shows.clone_from(&scenario.live);
        let mut label = label(scenario, &view, String::new(), timed.as_ref(), measured.as_ref());
        label.made.captured = format!("live, at the {} end", place(at));
        Ok(label)
    }

    /// Runs the programs over the wire.
    fn run(&self, programs: &Programs, wire: &Wire, mut about: About) -> Result<Option<Timed>> {
        let network = Network::new(wire, &self.own)?;
        let [_, host] = wire.addresses();
        let mut servers = Vec::new();
        for (port, line) in &programs.servers {
            let mut command = self.toolbox.command(network.server(), line, host, *port)?;
            if let About::Wrapping(At::Server, wrap) = &about {
                command = wrapped(&command, wrap);
            }
            servers.push(Running::start(command, line)?);
            wait_for(network.server(), *port, line, servers.last_mut())?;
        }
        let captures = match &about {
            About::Capturing(scenario) => self.captures(scenario, &network, wire)?,
            _ => Vec::new(),
        };
        if let About::Watching(watch) = &mut about {
            watch.begin(&servers.iter().map(|server| server.child.id()).collect::<Vec<_>>())?;
        }
        let mut beside = Vec::new();
        for (port, line) in &programs.beside {
            let command = self.toolbox.command(&network.client, line, host, *port)?;
            beside.push((Running::start(command, line)?, line));
        }
        let (port, line) = &programs.client;
        let mut command = self.toolbox.command(&network.client, line, host, *port)?;
        if let About::Wrapping(At::Client, wrap) = &about {
            command = wrapped(&command, wrap);
        }
        // The doctor's exit status 1 says that it has found something.
        let accepted: &[i32] = if matches!(about, About::Wrapping(..)) { &[1] } else { &[] };
        let printed = Running::start(command, line)?.finish(line, accepted)?;
        for (client, line) in beside {
            client.finish(line, &[])?;
        }
        // The last ACKs of a connection are under way when its client has ended.
        thread::sleep(wire.paths[0].delay + wire.paths[1].delay + Duration::from_millis(100));
        for capture in captures {
            capture.stop()?;
        }
        if let About::Watching(watch) = about {
            watch.end()?;
        }
        Timed::read(line, &printed)
    }

    /// Starts the captures of a scenario.
    fn captures(&self, of: &Scenario, network: &Network, wire: &Wire) -> Result<Vec<Capture>> {
        let start = |view: &View| {
            let path = self.out.join(format!("{}{}.{}", of.name, view.suffix, extension(view)));
            let namespace = if view.at == At::Client { &network.client } else { network.server() };
            Capture::start(namespace, &options(view, wire), &path)
        };
        of.views.iter().map(start).collect()
    }
}

/// Returns the same command, in the same namespace, started by another one.
fn wrapped(command: &Command, wrap: &[String]) -> Command {
    // ip netns exec NAME PROGRAM ARGUMENTS
    let into_namespace = 3;
    let mut wrapped = Command::new(command.get_program());
    wrapped.args(command.get_args().take(into_namespace)).args(wrap);
    wrapped.args(command.get_args().skip(into_namespace));
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped
}

fn measured(timed: &Timed, cured_total_ms: Vec<f64>, indirect: bool) -> Measured {
    let mut sorted = cured_total_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let total_ms = round(timed.total_ms());
    let lost_ms = sorted.get(sorted.len() / 2).map(|cured| round(total_ms - cured));
    Measured { requests: timed.each_ms.len(), total_ms, cured_total_ms, lost_ms, indirect }
}

/// Rounds to microseconds, which are more than a stopwatch in a script deserves.
fn round(milliseconds: f64) -> f64 {
    (milliseconds * 1000.0).round() / 1000.0
}

fn extension(view: &View) -> &'static str {
    if view.changes.pcapng { "pcapng" } else { "pcap" }
}

fn rewrite_view(path: &Path, view: &View) -> Result<()> {
    if view.changes.is_none() { Ok(()) } else { rewrite::rewrite(path, view.changes) }
}

fn options(view: &View, wire: &Wire) -> Options {
    let device = match (view.any, wire.kind) {
        (Some(_), _) => "any",
        (None, Kind::Loopback) => "lo",
        (None, _) => DEVICE,
    };
    let filter = if view.all { "" } else { "tcp" };
    Options {
        device: device.to_owned(),
        link_type: view.any,
        snaplen: view.snaplen,
        nanoseconds: view.nanoseconds,
        filter: filter.to_owned(),
    }
}

fn label(
    scenario: &Scenario,
    view: &View,
    file: String,
    timed: Option<&Timed>,
    measured: Option<&Measured>,
) -> Label {
    let [client, server] = scenario.wire.addresses();
    let endpoint = |address: &str, port: u16| {
        if address.contains(':') {
            format!("[{address}]:{port}")
        } else {
            format!("{address}:{port}")
        }
    };
    let whole = view.changes.skip == 0
        && view.changes.drop_each.is_none()
        && view.changes.swap_each.is_none();
    let connections = scenario.expected.iter().map(|expected| {
        let port = match timed {
            Some(Timed { ports, .. }) if expected.measured && ports.len() == 1 => Some(ports[0]),
            _ => None,
        };
        Connection {
            client: port.map_or_else(|| client.to_owned(), |port| endpoint(client, port)),
            server: endpoint(server, expected.port),
            findings: match &view.shows {
                Some(shown) if expected.measured => shown.clone(),
                _ => expected.findings.clone(),
            },
            may: expected.may.clone(),
            // What is missing from the capture cannot be added up.
            measured: measured.filter(|_| expected.measured && whole).cloned(),
        }
    });
    Label {
        name: format!("{}{}", scenario.name, view.suffix),
        file,
        about: scenario.about.clone(),
        made: Made {
            servers: scenario
                .ill
                .servers
                .iter()
                .map(|(port, line)| format!("{port}: {line}"))
                .collect(),
            client: scenario.ill.client.1.clone(),
            link: scenario.wire.to_string(),
            captured: format!("at the {} end, {}", place(view.at), described(view)),
            cure: cure(scenario),
        },
        connections: connections.collect(),
    }
}

fn place(at: At) -> &'static str {
    if at == At::Client { "client's" } else { "server's" }
}

fn described(view: &View) -> String {
    let mut text = format!("{} octets of each frame", view.snaplen);
    if let Some(link_type) = view.any {
        text += &format!(", device any ({link_type})");
    }
    if let Some(vlan) = view.changes.vlan {
        text += &format!(", a tag of VLAN {vlan} put in afterwards");
    }
    if view.changes.skip > 0 {
        text += &format!(", without the first {} records", view.changes.skip);
    }
    if let Some(each) = view.changes.swap_each {
        text += &format!(", every {each}th record swapped with the next where both are near");
    }
    if view.changes.double {
        text += ", each record twice";
    }
    if let Some(each) = view.changes.drop_each {
        text += &format!(", without every {each}th record");
    }
    text
}

/// Returns the differences in the run with the cure.
fn cure(scenario: &Scenario) -> Vec<String> {
    let Some(cured) = &scenario.cured else { return Vec::new() };
    let mut lines = Vec::new();
    for (ill, cured) in scenario.ill.servers.iter().zip(&cured.programs.servers) {
        if ill != cured {
            lines.push(format!("server: {}", cured.1));
        }
    }
    if scenario.ill.client != cured.programs.client {
        lines.push(format!("client: {}", cured.programs.client.1));
    }
    let (ill, cured) = (scenario.wire.to_string(), cured.wire.to_string());
    if ill != cured {
        lines.push(format!("link: {cured}"));
    }
    lines
}
