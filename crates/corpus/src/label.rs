//! What is known about a capture, and from where: the label file.

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
    /// What it is about, in a sentence.
    pub about: String,
    /// How it was made.
    pub made: Made,
    /// What is wrong with which connections. Those that are not named have nothing to be found.
    pub connections: Vec<Connection>,
}

/// How a capture was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    /// Command lines of the servers.
    pub servers: Vec<String>,
    /// Command line of the client that measured.
    pub client: String,
    /// The link between the two.
    pub link: String,
    /// Where and how it was captured.
    pub captured: String,
    /// What was different in the run with the cure.
    pub cure: Vec<String>,
}

/// Connections of one client to one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connection {
    /// The end that opened it: `address:port`, or the address alone where there are several.
    pub client: String,
    /// The end that accepted it: `address:port`.
    pub server: String,
    /// What the programs were built to make happen.
    pub findings: Vec<Finding>,
    /// Kinds that may be named as well, or not: side effects of what the programs do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may: Vec<String>,
    /// What the client measured, in all these connections together.
    pub measured: Option<Measured>,
}

/// One thing that is wrong on purpose.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// As the doctor's JSON names it.
    pub kind: String,
    /// As the doctor's JSON names it; none where it can be seen both ways.
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
    /// The same with the cure, each time that it was run.
    pub cured_total_ms: Vec<f64>,
    /// Difference of the first to the median of the second: what the stalls cost. None where
    /// no cure was run: then nothing is claimed.
    pub lost_ms: Option<f64>,
    /// Whether part of that is no stall but the aftermath of one (a congestion window that a loss
    /// has halved makes later replies slower): no capture shows how it would have gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indirect: bool,
}

impl Measured {
    /// How far the runs with the cure are apart from each other, the best and the worst fourth
    /// left out: what the machine's other work did to them.
    #[must_use]
    pub fn noise_ms(&self) -> f64 {
        let mut sorted = self.cured_total_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.get(sorted.len() / 4), sorted.get(sorted.len() * 3 / 4));
        low.zip(high).map_or(0.0, |(low, high)| high - low)
    }
}

impl Labels {
    /// Reads the label file of a directory; none there means no labels.
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

    /// Puts a label in, in place of the one of the same name.
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
