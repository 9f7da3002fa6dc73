//! The ways in which a program is run: plain, or under the library with some setting.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use uncork_posix::config::{Hold, variable};
use uncork_posix::report::ProcessReport;

use crate::artifact;

/// One way to run a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    hold: Option<Hold>,
    /// A copy of the library that is preloaded instead.
    copy: Option<PathBuf>,
    settings: Vec<(&'static str, String)>,
}

impl Mode {
    /// Returns the mode without the library.
    pub const fn plain() -> Self {
        Self { hold: None, copy: None, settings: Vec::new() }
    }

    /// Returns a mode under the library, held by `hold`, with all other settings at their defaults.
    pub fn held(hold: Hold) -> Self {
        let settings = vec![(variable::HOLD, hold.to_string())];
        Self { hold: Some(hold), copy: None, settings }
    }

    /// Returns `--hold kernel` and `--hold user`.
    pub fn both() -> Vec<Self> {
        vec![Self::held(Hold::Kernel), Self::held(Hold::User)]
    }

    /// Returns both, without and with spinning: a spinning program takes other paths through every wait.
    pub fn both_and_spinning() -> Vec<Self> {
        let mut modes = Self::both();
        modes.push(Self::held(Hold::Kernel).with(variable::SPIN, "auto"));
        modes.push(Self::held(Hold::User).with(variable::SPIN, "2ms"));
        modes
    }

    /// Adds one more setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        if !self.is_plain() {
            self.settings.push((name, value.to_owned()));
        }
        self
    }

    /// Uses a copy of the library at `path` (for users that cannot read the original).
    #[must_use]
    pub fn with_library(mut self, path: &Path) -> Self {
        self.copy = Some(path.to_owned());
        self
    }

    /// Returns whether a setting is made.
    pub fn sets(&self, name: &str) -> bool {
        self.settings.iter().any(|(set, _)| *set == name)
    }

    /// Returns whether the library is not preloaded.
    pub const fn is_plain(&self) -> bool {
        self.hold.is_none()
    }

    /// Returns where bytes are held.
    pub const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Sets the environment of `command`, without anything that the test itself inherited.
    pub fn apply(&self, command: &mut Command) -> Result<()> {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("UNCORK_") || name.starts_with("AUTOCORK_") || name == "LD_PRELOAD"
            {
                command.env_remove(name.as_ref());
            }
        }
        for (name, value) in self.variables()? {
            command.env(name, value);
        }
        Ok(())
    }

    /// Returns the variables that [`Self::apply`] sets.
    pub fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        if self.is_plain() {
            return Ok(Vec::new());
        }
        let library = match &self.copy {
            Some(path) => path.clone(),
            None => artifact::library()?,
        };
        let library = library.to_str().context("a library path that is not UTF-8")?.to_owned();
        let mut variables = self.settings.clone();
        variables.push(("LD_PRELOAD", library));
        Ok(variables)
    }

    /// Returns a command in this mode.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = Command::new(program);
        self.apply(&mut command)?;
        Ok(command)
    }

    /// Fails unless the library is mapped into the process exactly when it should be: a test of a
    /// program that runs without the library would prove nothing.
    pub fn check_loaded(&self, pid: u32) -> Result<()> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let loaded = maps.lines().any(|line| line.ends_with("/libuncork.so"));
        ensure!(loaded != self.is_plain(), "process {pid}: library loaded: {loaded} ({self})");
        Ok(())
    }

    /// Fails unless the processes that wrote their reports to `stats` were helped.
    pub fn check_helped(&self, stats: &Path) -> Result<()> {
        if self.is_plain() {
            return Ok(());
        }
        let text = fs::read_to_string(stats)
            .with_context(|| format!("{}: no process left a report", stats.display()))?;
        let (mut pushes, mut states) = (0, Vec::new());
        for line in text.lines() {
            let report: ProcessReport = serde_json::from_str(line)
                .with_context(|| format!("not a report of a process: {line}"))?;
            for socket in report.sockets {
                pushes += socket.pushes;
                states.push(socket.state);
            }
        }
        if pushes == 0 {
            bail!("nothing was held ({self}); the states of the sockets: {states:?}");
        }
        Ok(())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str("without the library");
        }
        f.write_str("under LD_PRELOAD=libuncork.so")?;
        self.settings.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
