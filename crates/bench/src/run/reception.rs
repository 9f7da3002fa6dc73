//! Which processor receives frames over veth.

use anyhow::{Result, ensure};
use uncork_lab::place::DEVICE;
use uncork_netns::Namespace;

use crate::place::Cores;

/// The processor that does an end's kernel work for a received frame, up to its TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    /// veth's default: the sender's. The client's share then counts as the server's processor time, and the
    /// server's as its client's.
    Senders,
    /// Its own, as if devices interrupted it there (receive packet steering). Costs an interrupt of the other
    /// processor, most of which coalescing would save on a device.
    Own,
}

impl Reception {
    /// Both: what is required of a second of a server's processor time is required for both.
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Senders];

    /// Returns the name that a benchmark reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Senders => "each end receives on the sender's core",
            Self::Own => "each end receives on its own core",
        }
    }

    /// Configures both ends' kernels: the server's, and the client's.
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

/// Formats the mask of one processor for the kernel: words of 32 bits in hexadecimal, the highest first.
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
