//! The scenarios: programs, a link, a mistake, and where it is captured.

mod formats;
mod healthy;
mod mistaken;
mod nagle;
mod others;
mod wire;

use crate::label::Finding;
use crate::rewrite::Changes;

pub use wire::{Kind, Wire};

/// A scenario. It becomes one capture for each of its [`views`](Self::views).
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name, and the beginning of its captures' names.
    pub name: String,
    /// Its subject, in a sentence.
    pub about: String,
    /// The link between client and server.
    pub wire: Wire,
    /// The programs of the run that is captured.
    pub ill: Programs,
    /// The run that shows the cost of the stalls: the same without the mistake.
    pub cured: Option<Cure>,
    /// The expected findings; connections to ports that are not named have none.
    pub expected: Vec<Expected>,
    /// Where and how it is captured.
    pub views: Vec<View>,
    /// The expected findings live, where there are more than in a capture.
    pub live: Option<Vec<Finding>>,
    /// See [`Measured::indirect`](crate::label::Measured::indirect).
    pub indirect: bool,
}

/// The programs of a run.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Servers, by the port that they listen on.
    pub servers: Vec<(u16, String)>,
    /// The client that measures, and the port of its server.
    pub client: (u16, String),
    /// Other clients, started before it, and ended after it.
    pub beside: Vec<(u16, String)>,
}

/// The run without the mistake.
#[derive(Debug, Clone)]
pub struct Cure {
    /// The programs.
    pub programs: Programs,
    /// The link.
    pub wire: Wire,
}

/// The expected findings on the connections to one port.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The server's port.
    pub port: u16,
    /// The deliberate faults.
    pub findings: Vec<Finding>,
    /// Findings that may be reported as well.
    pub may: Vec<String>,
    /// Whether the measuring client's figures are about these connections.
    pub measured: bool,
}

/// The end at which a capture is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In the client's namespace.
    Client,
    /// In the server's namespace.
    Server,
}

/// Where and how a capture is taken.
#[derive(Debug, Clone)]
pub struct View {
    /// Appended to the scenario's name; empty for the only view.
    pub suffix: &'static str,
    /// The end.
    pub at: At,
    /// Device `any` instead of the one device, with this link layer.
    pub any: Option<&'static str>,
    /// Octets kept of each frame.
    pub snaplen: u32,
    /// Whether times are in nanoseconds.
    pub nanoseconds: bool,
    /// Whether frames other than TCP's are captured, too.
    pub all: bool,
    /// Changes made to the file afterwards.
    pub changes: Changes,
    /// Findings that are still expected on the measured connections, where there are fewer than in
    /// a whole capture.
    pub shows: Option<Vec<Finding>>,
}

impl View {
    /// Returns an ordinary capture at one end.
    #[must_use]
    pub fn at(at: At) -> Self {
        Self {
            suffix: "",
            at,
            any: None,
            snaplen: 96,
            nanoseconds: false,
            all: false,
            changes: Changes::default(),
            shows: None,
        }
    }
}

/// The port that most servers listen on.
pub const PORT: u16 = 4000;

impl Scenario {
    /// Creates a scenario of one server and one client, captured at the client's end, with no finding yet.
    #[must_use]
    pub fn new(name: &str, about: &str, wire: Wire, server: &str, client: &str) -> Self {
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            wire,
            ill: Programs {
                servers: vec![(PORT, server.to_owned())],
                client: (PORT, client.to_owned()),
                beside: Vec::new(),
            },
            cured: None,
            expected: Vec::new(),
            views: vec![View::at(At::Client)],
            live: None,
            indirect: false,
        }
    }

    fn cure(mut self, change: impl FnOnce(&mut Cure)) -> Self {
        let mut cure = self
            .cured
            .take()
            .unwrap_or_else(|| Cure { programs: self.ill.clone(), wire: self.wire.clone() });
        change(&mut cure);
        self.cured = Some(cure);
        self
    }

    /// Sets the cure: this server.
    #[must_use]
    pub fn cured_server(self, server: &str) -> Self {
        self.cure(|cure| server.clone_into(&mut cure.programs.servers[0].1))
    }

    /// Sets the cure: this client.
    #[must_use]
    pub fn cured_client(self, client: &str) -> Self {
        self.cure(|cure| client.clone_into(&mut cure.programs.client.1))
    }

    /// Sets the cure: this link.
    #[must_use]
    pub fn cured_wire(self, wire: Wire) -> Self {
        self.cure(|cure| cure.wire = wire)
    }

    /// Sets the expected findings on the connections of the measuring client.
    #[must_use]
    pub fn finds(mut self, findings: &[Finding]) -> Self {
        self.expected.push(Expected {
            port: self.ill.client.0,
            findings: findings.to_vec(),
            may: Vec::new(),
            measured: true,
        });
        self
    }

    /// Sets kinds that may be reported as well.
    #[must_use]
    pub fn may(mut self, kinds: &[&str]) -> Self {
        if let Some(expected) = self.expected.last_mut() {
            expected.may.extend(kinds.iter().map(|kind| (*kind).to_owned()));
        }
        self
    }

    /// Adds a server.
    #[must_use]
    pub fn with_server(mut self, port: u16, server: &str) -> Self {
        self.ill.servers.push((port, server.to_owned()));
        self
    }

    /// Adds a client beside the measuring one.
    #[must_use]
    pub fn with_client(mut self, port: u16, client: &str) -> Self {
        self.ill.beside.push((port, client.to_owned()));
        self
    }

    /// Sets the expected findings live, where the programs' calls are seen.
    #[must_use]
    pub fn finds_live(self, findings: &[Finding]) -> Self {
        Self { live: Some(findings.to_vec()), ..self }
    }

    /// Notes that part of the cost comes after the stalls.
    #[must_use]
    pub fn indirect(self) -> Self {
        Self { indirect: true, ..self }
    }

    /// Sets the views.
    #[must_use]
    pub fn views(mut self, views: &[View]) -> Self {
        self.views = views.to_vec();
        self
    }

    /// Captures at both ends.
    #[must_use]
    pub fn both_ends(self) -> Self {
        let client = View { suffix: "-client", ..View::at(At::Client) };
        let server = View { suffix: "-server", ..View::at(At::Server) };
        self.views(&[client, server])
    }

    /// Captures at the server's end.
    #[must_use]
    pub fn at_server(self) -> Self {
        self.views(&[View::at(At::Server)])
    }
}

/// Returns a finding that costs time.
fn lost(kind: &str, bytes_held_by: Option<&str>, ack_held_by: Option<&str>) -> Finding {
    Finding {
        kind: kind.to_owned(),
        severity: Some("lost_time".to_owned()),
        bytes_held_by: bytes_held_by.map(str::to_owned),
        ack_held_by: ack_held_by.map(str::to_owned),
    }
}

/// Returns a finding that costs packets.
fn waste(kind: &str, by: &str) -> Finding {
    Finding { severity: Some("waste".to_owned()), ..lost(kind, Some(by), None) }
}

/// Returns a finding that costs nothing.
fn harmless(kind: &str, ack_held_by: &str) -> Finding {
    Finding { severity: Some("harmless".to_owned()), ..lost(kind, None, Some(ack_held_by)) }
}

/// Returns the finding with its severity left open.
fn either(finding: Finding) -> Finding {
    Finding { severity: None, ..finding }
}

/// Returns all scenarios.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let mut all = nagle::all();
    all.extend(others::all());
    all.extend(formats::all());
    all.extend(healthy::all());
    all.extend(mistaken::all());
    all
}
