//! The label file: what is known about captures, and from what source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Name of the label file.
pub const FILE: &str = "labels.json";

/// All labels of a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Labels {
    /// One for each capture, by name.
    pub captures: Vec<Label>,
}

/// One capture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Label {
    /// The scenario.
    pub name: String,
    /// The capture, beside the label file.
    pub file: String,
    /// Its subject, in a sentence.
    pub about: String,
    /// How it was made.
    pub made: Made,
    /// What is wrong with which connections. Connections that are not named have no finding.
    pub connections: Vec<Connection>,
}

/// How a capture was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    /// Command lines of the servers.
    pub servers: Vec<String>,
    /// Command line of the client that measured.
    pub client: String,
    /// The link between the two ends.
    pub link: String,
    /// Where and how it was captured.
    pub captured: String,
    /// The differences in the run with the cure.
    pub cure: Vec<String>,
}

/// Connections of one client to one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connection {
    /// The end that opened it: `address:port`, or the address alone where there are several.
    pub client: String,
    /// The end that accepted it: `address:port`.
    pub server: String,
    /// What the programs were built to cause.
    pub findings: Vec<Finding>,
    /// Kinds that may be reported as well: side effects of what the programs do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may: Vec<String>,
    /// What the client measured, in all these connections together.
    pub measured: Option<Measured>,
}

/// A deliberate fault.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// Its name in the doctor's JSON.
    pub kind: String,
    /// Its name in the doctor's JSON; `None` where either severity is right.
    pub severity: Option<String>,
    /// `client` or `server`.
    pub bytes_held_by: Option<String>,
    /// `client` or `server`.
    pub ack_held_by: Option<String>,
}

/// The client's own stopwatch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Requests that it timed.
    pub requests: usize,
    /// Their times added up, in the run that was captured.
    pub total_ms: f64,
    /// Their sums with the cure, for each run.
    pub cured_total_ms: Vec<f64>,
    /// The difference between the first and the median of the second: the cost of the stalls.
    /// `None` where no cure was run: then nothing is claimed.
    pub lost_ms: Option<f64>,
    /// Whether part of that is not a stall but its aftermath (a congestion window halved by a loss
    /// makes later replies slower): no capture shows how it would have gone otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indirect: bool,
}

impl Measured {
    /// Returns the spread of the runs with the cure, without the best and the worst quarter: the
    /// effect of other work on the machine.
    #[must_use]
    pub fn noise_ms(&self) -> f64 {
        let mut sorted = self.cured_total_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.get(sorted.len() / 4), sorted.get(sorted.len() * 3 / 4));
        low.zip(high).map_or(0.0, |(low, high)| high - low)
    }
}

impl Labels {
    /// Reads the label file of a directory; without one there are no labels.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Adds a label, or replaces the one with the same name.
    pub fn put(&mut self, label: Label) {
        self.captures.retain(|old| old.name != label.name);
        self.captures.push(label);
        self.captures.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Writes the label file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
