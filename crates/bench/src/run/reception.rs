//! Who receives what over veth.

use anyhow::{Result, ensure};
use uncork_lab::place::DEVICE;
use uncork_netns::Namespace;

use crate::place::Cores;

/// Which processor does what an end's kernel has to do with a frame that has come, up to its TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    /// As veth has it: that of whoever has sent the frame. The client's share counts as the server's processor time
    /// then, and the server's as its client's.
    Senders,
    /// Its own, as if devices interrupted it there (receive packet steering). Costs an interrupt of the other
    /// processor, which coalescing would spare most of on a device.
    Own,
}

impl Reception {
    /// Both: what is asked of a second of a server's processor time is asked of both.
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Senders];

    /// For what a benchmark says of itself.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Senders => "each end receives on the sender's core",
            Self::Own => "each end receives on its own core",
        }
    }

    /// Says so to both ends' kernels: that of the server, and that of who asks.
    pub(super) fn set(self, (near, far): (&Namespace, &Namespace), cores: Cores) -> Result<()> {
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
