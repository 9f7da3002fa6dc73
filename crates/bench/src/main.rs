//! `uncork-bench`: the small-write experiment with its picture, and every figure that the project
//! claims, measured again.
//!
//! Exit status: 0 when every bar is met, 1 when one is missed (or something was skipped that may
//! not be), 2 when the benchmarks themselves could not be run.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod clock;
mod contest;
mod demo;
mod launch;
mod machine;
mod nodelay;
mod outcome;
mod place;
mod process;
mod progress;
mod roles;
mod run;
mod segments;
mod stats;
mod table;
mod toolbox;

/// Measure what uncork does
#[derive(Debug, Parser)]
#[command(
    name = "uncork-bench",
    version,
    after_help = "uncork, its library and the experiment's programs are looked for beside this \
                  program, or where UNCORK_BIN_DIR says.\n\n\
                  Exit status: 0 when every bar is kept, 1 when not, 2 when the benchmarks could \
                  not be run."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the published small-write experiment without and with uncork, and draw it
    Demo(demo::Args),
    /// Measure every figure that the project claims and hold it against its bar
    Run(run::Args),
    /// Play a part in a benchmark
    #[command(hide = true)]
    Role {
        /// The part
        #[command(subcommand)]
        role: roles::Role,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args).map(|()| true),
        Command::Run(args) => run::run(&args),
        Command::Role { role } => role.play().map(|()| true),
    };
    finish(result)
}

fn finish(result: Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "uncork-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}
