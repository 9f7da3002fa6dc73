//! The published small-write experiment, with the programs in the same directory as this one.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use uncork_lab::nodelay::{self, Options, Program, Stage, client_args, server_args};
pub(crate) use uncork_lab::nodelay::{Asks, Cut, Figures, Pattern};

use crate::launch::{Job, Way};
use crate::place::Cores;
use crate::process::NEVER;
use crate::toolbox::Toolbox;

impl Stage for Toolbox {
    fn command(
        &self,
        program: Program,
        help: Option<Options>,
        core: usize,
        args: &[String],
    ) -> Result<Command> {
        let program = match program {
            Program::Client => self.nodelay_client()?,
            Program::Server => self.nodelay_server()?,
        };
        Job::new(program)
            .args(args)
            .way(&help.map_or(Way::Plain, Way::Run))
            .core(core)
            .command(self)
    }

    fn stop(&self) -> &AtomicBool {
        &NEVER
    }
}

/// A running `tcp_nodelay_server` for one size of packet, started plainly.
pub(crate) struct Server {
    server: nodelay::Server,
    cores: Cores,
}

impl Server {
    /// Starts one for logical packets of `buffers` buffers.
    pub(crate) fn start(tools: &Toolbox, buffers: u32, cores: Cores) -> Result<Self> {
        let command = tools.command(Program::Server, None, cores.server, &server_args(buffers))?;
        Ok(Self { server: nodelay::Server::start(command)?, cores })
    }

    /// Runs a client against it, started in any way.
    pub(crate) fn run(
        &mut self,
        tools: &Toolbox,
        (pattern, way): (&Pattern, &Way),
        packets: u64,
    ) -> Result<Figures> {
        let job = Job::new(tools.nodelay_client()?)
            .args(client_args(pattern, packets, self.server.port()))
            .way(way)
            .core(self.cores.client);
        let limit = pattern.limit(packets, *way != Way::Plain);
        self.server.run(job.command(tools)?, packets, limit, &NEVER)
    }
}
