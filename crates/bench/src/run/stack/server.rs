//! `uncork stack serve` in a namespace, on our stack or on the kernel's.

use anyhow::Result;
use uncork_lab::place::DEVICE;
use uncork_netns::Namespace;

use super::{Bed, PREFIX, Who};
use crate::launch::{Job, within};
use crate::process::Running;

/// Starts it, and waits until it accepts connections. `what` is the protocol and its arguments.
pub(super) fn serve(
    bed: &Bed<'_>,
    namespace: &Namespace,
    who: Who,
    (what, port): (&str, u16),
    core: Option<usize>,
) -> Result<Running> {
    let address = format!("{}/{PREFIX}", who.at(port).ip());
    let mut job = Job::new(bed.tools.uncork()?)
        .args(["stack", "serve"])
        .args(what.split_whitespace())
        .args(["--addr", &address, "--port", &port.to_string()])
        // Its peers do not wait for it either.
        .args(["--grace", "100ms"]);
    job = match who {
        // On a TAP, too: the stack here does not care that it is one.
        Who::Ours => job.args(["--dev", DEVICE, "--driver", "packet"]),
        Who::Moderated => job.args(
            "--dev DEVICE --driver packet --moderation 128us".replace("DEVICE", DEVICE).split(' '),
        ),
        Who::Xdp => job.args(["--dev", DEVICE, "--driver", "xdp"]),
        Who::Kernel => job.arg("--kernel"),
    };
    if let Some(core) = core {
        job = job.core(core);
    }
    let dir = bed.scratch.dir("stack")?;
    let command = within(namespace, &job.command(bed.tools)?)?;
    let mut running = Running::start(command, "uncork stack serve", &dir)?;
    running.wait_until_it_says(&format!(" at {}", who.at(port)))?;
    Ok(running)
}
