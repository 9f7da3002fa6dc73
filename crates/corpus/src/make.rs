//! Making a capture: namespaces, link, programs, tcpdump, and the label.

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

/// Where captures are made.
#[derive(Debug)]
pub struct Workshop {
    toolbox: Toolbox,
    /// This program, which can be a link as well.
    own: PathBuf,
    out: PathBuf,
}

impl Workshop {
    /// Captures go to `out`, scratch files to `scratch`; both must be there.
    ///
    /// # Errors
    /// If something that is needed is missing.
    pub fn new(out: &Path, scratch: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        fs::write(scratch.join("select.sql"), "select 1;\n")?;
        Ok(Self { toolbox: Toolbox::new(scratch)?, own, out: out.to_owned() })
    }

    /// Makes the captures of a scenario, and labels them.
    ///
    /// # Errors
    /// If anything fails; then nothing is labelled.
    pub fn make(&self, scenario: &Scenario, labels: &mut Labels) -> Result<()> {
        let timed = self.run(&scenario.ill, &scenario.wire, Some(scenario), None)?;
        let mut cured_total_ms = Vec::new();
        if let Some(cure) = &scenario.cured {
            for _ in 0..CURED_RUNS {
                let cured = self.run(&cure.programs, &cure.wire, None, None)?;
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
    /// example `uncork doctor --json FILE --`), and says what is to be found.
    ///
    /// # Errors
    /// If anything fails.
    pub fn live(&self, scenario: &Scenario, at: At, wrap: &[String]) -> Result<Label> {
        let wrap = Some((at, wrap));
        let timed = self.run(&scenario.ill, &scenario.wire, None, wrap)?;
        let mut cured_total_ms = Vec::new();
        if let Some(cure) = &scenario.cured {
            let cured = self.run(&cure.programs, &cure.wire, None, None)?;
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

    /// Runs the programs over the wire; captures if there is a scenario to capture for.
    fn run(
        &self,
        programs: &Programs,
        wire: &Wire,
        scenario: Option<&Scenario>,
        wrap: Option<(At, &[String])>,
    ) -> Result<Option<Timed>> {
        let network = Network::new(wire, &self.own)?;
        let [_, host] = wire.addresses();
        let mut servers = Vec::new();
        for (port, line) in &programs.servers {
            let mut command = self.toolbox.command(network.server(), line, host, *port)?;
            if let Some((At::Server, wrap)) = wrap {
                command = wrapped(&command, wrap);
            }
            servers.push(Running::start(command, line)?);
            wait_for(network.server(), *port, line, servers.last_mut())?;
        }
        let mut captures = Vec::new();
        for view in scenario.iter().flat_map(|scenario| &scenario.views) {
            let name = scenario.map(|scenario| scenario.name.as_str()).unwrap_or_default();
            let path = self.out.join(format!("{name}{}.{}", view.suffix, extension(view)));
            let namespace = if view.at == At::Client { &network.client } else { network.server() };
            captures.push(Capture::start(namespace, &options(view, wire), &path)?);
        }
        let mut beside = Vec::new();
        for (port, line) in &programs.beside {
            let command = self.toolbox.command(&network.client, line, host, *port)?;
            beside.push((Running::start(command, line)?, line));
        }
        let (port, line) = &programs.client;
        let mut command = self.toolbox.command(&network.client, line, host, *port)?;
        if let Some((At::Client, wrap)) = wrap {
            command = wrapped(&command, wrap);
        }
        let printed = Running::start(command, line)?.finish(line)?;
        for (client, line) in beside {
            client.finish(line)?;
        }
        // The last ACKs of a connection are under way when its client has ended.
        thread::sleep(wire.paths[0].delay + wire.paths[1].delay + Duration::from_millis(100));
        for capture in captures {
            capture.stop()?;
        }
        Timed::read(line, &printed)
    }
}

/// The same command, in the same namespace, started by another one.
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

/// Microseconds are more than a stopwatch in a script deserves.
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
    let whole = view.changes.skip == 0 && view.changes.drop_each.is_none();
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
            // What is missing in the capture cannot be added up by anybody.
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
    if let Some(each) = view.changes.drop_each {
        text += &format!(", without every {each}th record");
    }
    text
}

/// What is different in the run with the cure.
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
