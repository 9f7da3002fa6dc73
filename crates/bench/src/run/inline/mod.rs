//! Unmodified servers on the user-space stack (`uncork run --stack`), by turns with the same on kernel
//! sockets, over veth; whoever asks is the kernel's, on a core of his own.

pub(super) mod nginx;
pub(super) mod redis;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use uncork_lab::place::{DEVICE, NEAR};
use uncork_netns::Namespace;

use super::on_cpu::on_cpu;
use crate::launch::Way;
use crate::place::Cores;

/// What needs root beside the namespaces.
const PRIVILEGE: &str = "packet sockets and eBPF";
/// So long a server has to become reachable by the stack.
const LIMIT: Duration = Duration::from_secs(60);

/// Which processor does what an end's kernel has to do with a frame that has come, up to its TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reception {
    /// As veth has it: that of whoever has sent the frame. The client's share counts as the server's processor time
    /// then, and the server's as its client's.
    Senders,
    /// Its own, as if devices interrupted it there (receive packet steering). Costs an interrupt of the other
    /// processor, which coalescing would spare most of on a device.
    Own,
}

impl Reception {
    /// For what a benchmark says of itself.
    const fn name(self) -> &'static str {
        match self {
            Self::Senders => "each end receives on the sender's core",
            Self::Own => "each end receives on its own core",
        }
    }

    fn set(self, (near, far): (&Namespace, &Namespace), cores: Cores) -> Result<()> {
        for (host, core) in [(near, cores.server), (far, cores.client)] {
            let set = if self == Self::Own { mask(core) } else { "0".to_owned() };
            let script = format!("echo {set} >/sys/class/net/{DEVICE}/queues/rx-0/rps_cpus");
            let done = host.command("sh").args(["-c", &script]).output()?;
            ensure!(
                done.status.success(),
                "the kernel cannot be told which processor receives (CONFIG_RPS): {}",
                String::from_utf8_lossy(&done.stderr).trim()
            );
        }
        Ok(())
    }
}

/// A set of one processor as the kernel reads it: words of 32 in hexadecimal, the highest first.
fn mask(core: usize) -> String {
    let first = format!("{:x}", 1_u32 << (core % 32));
    first + &",00000000".repeat(core / 32)
}

/// On the stack; what spins spends a core on being quick, which counts only where somebody waits.
const fn ours(spins: bool) -> Way {
    Way::Stack { device: DEVICE, spins }
}

/// A server, and where it is reached.
#[derive(Clone, Copy, Debug)]
struct Server {
    pid: u32,
    at: SocketAddr,
}

impl Server {
    fn new(pid: u32, port: u16) -> Self {
        Self { pid, at: (NEAR, port).into() }
    }

    /// What `ask` tells, behind how many of them the server has done in a second of its processor time.
    fn observe(self, ask: impl FnOnce() -> Result<Asked>) -> Result<Vec<f64>> {
        let before = on_cpu(self.pid)?;
        let Asked { requests, rate } = ask()?;
        let cpu = on_cpu(self.pid)?.saturating_sub(before);
        Ok(vec![requests / cpu.as_secs_f64(), rate])
    }
}

/// What a client has done.
struct Asked {
    /// In all.
    requests: f64,
    /// A second.
    rate: f64,
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn a_processor_is_a_bit_of_its_word() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(31), "80000000");
        assert_eq!(mask(65), "2,00000000,00000000");
    }
}
