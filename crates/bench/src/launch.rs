//! Starting programs: plain, under `uncork run`, or with a library preloaded.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
pub(crate) use uncork_lab::nodelay::{Options, run_args};
use uncork_netns::Namespace;

use crate::toolbox::Toolbox;

/// The ways to start a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As it is.
    Plain,
    /// `uncork run OPTIONS -- CMD`.
    Run(Options),
    /// `uncork run --stack --dev DEV MORE -- CMD`.
    Stack {
        /// The device whose traffic the stack gets.
        device: &'static str,
        /// More options.
        more: &'static [&'static str],
    },
    /// With `libuncork.so` preloaded and the same options in the environment.
    Preload(Options),
    /// With another library preloaded.
    Other {
        /// Path of the library.
        library: PathBuf,
        /// Variables that it reads.
        env: Vec<(String, String)>,
    },
}

/// A program to be started in a [`Way`], pinned, and ended together with this process.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    program: PathBuf,
    args: Vec<OsString>,
    way: Way,
    core: Option<usize>,
    user: Option<String>,
    end: &'static str,
    own_library: Option<PathBuf>,
    huge_pages: Option<PathBuf>,
    beside: Option<u32>,
    env: Vec<(String, OsString)>,
}

impl Job {
    /// Creates a job for `program`, plain and on any core.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            way: Way::Plain,
            core: None,
            user: None,
            end: "SIGTERM",
            own_library: None,
            huge_pages: None,
            beside: None,
            env: Vec::new(),
        }
    }

    /// Adds arguments.
    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds one argument.
    pub(crate) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Sets the way in which it is started.
    pub(crate) fn way(self, way: &Way) -> Self {
        Self { way: way.clone(), ..self }
    }

    /// Pins it to one core.
    pub(crate) fn core(self, core: usize) -> Self {
        Self { core: Some(core), ..self }
    }

    /// Starts it as another user (root only).
    pub(crate) fn user(self, user: Option<&str>) -> Self {
        Self { user: user.map(str::to_owned), ..self }
    }

    /// Sets the signal that ends it in an orderly way, whichever process sends it.
    pub(crate) fn end(self, signal: &'static str) -> Self {
        Self { end: signal, ..self }
    }

    /// Preloads this copy of `libuncork.so`, for a user who may not read the original.
    pub(crate) fn own_library(self, library: Option<PathBuf>) -> Self {
        Self { own_library: library, ..self }
    }

    /// Gives it huge pages below this directory, visible only to it and to programs started [`Job::beside`] it.
    pub(crate) fn huge_pages(self, dir: impl Into<PathBuf>) -> Self {
        Self { huge_pages: Some(dir.into()), ..self }
    }

    /// Makes it share the mounts of this process.
    pub(crate) fn beside(self, pid: u32) -> Self {
        Self { beside: Some(pid), ..self }
    }

    /// Adds a variable to its environment.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the command. It uses the hidden helper `role exec`, which pins itself and asks the kernel to be
    /// ended with this process before it becomes the program.
    pub(crate) fn command(&self, tools: &Toolbox) -> Result<Command> {
        let mut command = clean(&tools.bench);
        command.args(["role", "exec", "--parent", &std::process::id().to_string()]);
        command.args(["--end", self.end]);
        if let Some(core) = self.core {
            command.args(["--core", &core.to_string()]);
        }
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        if let Some(dir) = &self.huge_pages {
            command.arg("--huge-pages").arg(dir);
        }
        if let Some(pid) = self.beside {
            command.args(["--beside", &pid.to_string()]);
        }
        for (name, value) in self.env.iter().cloned().chain(self.environment(tools)?) {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            command.arg("--env").arg(pair);
        }
        command.arg("--");
        if let Way::Run(options) = self.way {
            command.arg(tools.uncork()?).args(run_args(options));
        }
        if let Way::Stack { device, more } = self.way {
            command.arg(tools.uncork()?).args(["run", "--stack", "--dev", device]);
            command.args(more).arg("--");
        }
        command.arg(&self.program).args(&self.args);
        // A process group of its own: whatever it starts can be ended with it.
        command.process_group(0).stdin(Stdio::null());
        Ok(command)
    }

    fn environment(&self, tools: &Toolbox) -> Result<Vec<(String, OsString)>> {
        match &self.way {
            Way::Plain | Way::Run(_) | Way::Stack { .. } => Ok(Vec::new()),
            Way::Preload(options) => {
                let library = match &self.own_library {
                    Some(copy) => copy.clone(),
                    None => tools.preload_library()?,
                };
                let mut env = variables(options);
                env.push(("LD_PRELOAD".to_owned(), library.into()));
                Ok(env)
            }
            Way::Other { library, env } => {
                let env = env.iter().map(|(name, value)| (name.clone(), value.into()));
                Ok(env.chain([("LD_PRELOAD".to_owned(), library.into())]).collect())
            }
        }
    }
}

/// Returns the same command, in the namespace. The process started is the program itself.
pub(crate) fn within(namespace: &Namespace, command: &Command) -> Result<Command> {
    let program = command.get_program().to_str().context("a path that is not UTF-8")?;
    let mut inside = namespace.command(program);
    inside.args(command.get_args()).process_group(0).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Ok(inside)
}

/// Returns a command without the variables that would change what is measured.
pub(crate) fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD");
    for (name, _) in std::env::vars_os() {
        let ours = name.to_str().is_some_and(|n| {
            (n.starts_with("UNCORK_") && n != crate::toolbox::BIN_DIR) || n.starts_with("AUTOCORK_")
        });
        if ours {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the options as variables, like `UNCORK_HOLD=user`.
pub(crate) fn variables(options: Options) -> Vec<(String, OsString)> {
    options
        .iter()
        .map(|(name, value)| (format!("UNCORK_{}", name.to_uppercase()), (*value).into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelled_as_variables() {
        let options: Options = &[("hold", "user"), ("bound", "5ms")];
        let variables = variables(options);
        assert_eq!(variables[0], ("UNCORK_HOLD".to_owned(), OsString::from("user")));
        assert_eq!(variables[1].0, "UNCORK_BOUND");
    }
}
