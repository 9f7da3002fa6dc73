//! A network namespace in which both programs run, over its loopback device.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use uncork_netns::Namespace;

use super::programs::{Options, Program, Stage, run_args};

/// Names of the programs.
const CLIENT: &str = "tcp_nodelay_client";
const SERVER: &str = "tcp_nodelay_server";

/// Names the library to be used (uncork-run(1)): the only setting of the caller that is kept.
const LIBRARY: &str = "UNCORK_LIBRARY";

/// A namespace without other traffic: no filter of the host's, no other load on its loopback.
#[derive(Debug)]
pub struct Room<'a> {
    namespace: Namespace,
    uncork: PathBuf,
    directory: PathBuf,
    stop: &'a AtomicBool,
}

impl<'a> Room<'a> {
    /// Creates it; the programs are those in `uncork`'s directory.
    ///
    /// # Errors
    /// Without the privilege, or if a program is missing.
    pub fn new(uncork: &Path, stop: &'a AtomicBool) -> Result<Self> {
        let directory = uncork.parent().context("uncork is in no directory")?.to_owned();
        for name in [CLIENT, SERVER] {
            if !directory.join(name).exists() {
                let directory = directory.display();
                bail!(
                    "{name} is not in {directory}, beside uncork: build or install it with `make`"
                );
            }
        }
        let namespace = Namespace::new("nodelay")?;
        Ok(Self { namespace, uncork: uncork.to_owned(), directory, stop })
    }
}

impl Stage for Room<'_> {
    fn command(
        &self,
        program: Program,
        help: Option<Options>,
        core: usize,
        args: &[String],
    ) -> Result<Command> {
        let mut command = self.namespace.command("taskset");
        command.args(["--cpu-list", &core.to_string()]);
        if let Some(options) = help {
            command.arg(&self.uncork).args(run_args(options));
        }
        let name = if program == Program::Client { CLIENT } else { SERVER };
        command.arg(self.directory.join(name)).args(args);
        command.env_remove("LD_PRELOAD");
        for (name, _) in std::env::vars_os() {
            if name != LIBRARY && name.to_string_lossy().starts_with("UNCORK_") {
                command.env_remove(name);
            }
        }
        command.process_group(0).stdin(Stdio::null());
        Ok(command)
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}
