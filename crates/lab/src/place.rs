//! Two hosts and a bottleneck between them.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use serde::Serialize;
use uncork_netns::{Namespace, run};
use uncork_queues::QueueSettings;

/// The device at either end.
pub const DEVICE: &str = "eth0";
/// Address of the sending end.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Address of the receiving end.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// The most that the bottleneck queues. It is larger than any should be: how much of it is used is
/// what is measured.
const QUEUE_BYTES: u64 = 8 << 20;

/// The link between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bottleneck {
    /// Bits per second.
    pub rate: u64,
    /// Whether the device takes segment trains (TSO), which are cut at the bottleneck.
    pub segmentation_offload: bool,
}

/// Two namespaces joined by a veth pair; what the near one sends passes the bottleneck (tbf).
#[derive(Debug)]
pub struct Place {
    /// The senders' namespace, with the bottleneck at its device.
    pub near: Namespace,
    /// The receivers' namespace.
    pub far: Namespace,
    /// The link between them.
    pub bottleneck: Bottleneck,
}

/// Creates two namespaces joined by a veth pair, with addresses: the near one and the far one.
///
/// # Errors
/// Without the privilege, or if ip(8) is missing.
pub fn joined() -> Result<(Namespace, Namespace)> {
    /// Several pairs may exist at a time.
    static PAIRS: AtomicU32 = AtomicU32::new(0);
    let number = PAIRS.fetch_add(1, Relaxed);
    let near = Namespace::new(&format!("lab-near-{number}"))?;
    let far = Namespace::new(&format!("lab-far-{number}"))?;
    let name = far.name();
    near.ip(&format!("link add {DEVICE} type veth peer name {DEVICE} netns {name}"))?;
    for (namespace, own) in [(&near, NEAR), (&far, FAR)] {
        namespace.ip(&format!("address add {own}/24 dev {DEVICE}"))?;
        namespace.ip(&format!("link set {DEVICE} up"))?;
    }
    Ok((near, far))
}

impl Place {
    /// Creates the place.
    ///
    /// # Errors
    /// Without the privilege, or if ip(8), tc(8) or ethtool(8) is missing.
    pub fn new(bottleneck: Bottleneck, settings: QueueSettings) -> Result<Self> {
        let (near, far) = joined()?;
        if !bottleneck.segmentation_offload {
            for namespace in [&near, &far] {
                let off = ["-K", DEVICE, "tso", "off", "gso", "off", "gro", "off"];
                run(namespace.command("ethtool").args(off))?;
            }
        }
        let place = Self { near, far, bottleneck };
        place.shape()?;
        place.apply(settings)?;
        Ok(place)
    }

    fn shape(&self) -> Result<()> {
        let rate = self.bottleneck.rate;
        // Room for a train, and for a quarter of a millisecond: the lateness of the shaper's own
        // timer must not be lost to the rate, and a device must not run ahead of it for long.
        let burst_bytes = rate / 8 / 4000 + 2 * 1514;
        run(self
            .tc()
            .args(["qdisc", "replace", "dev", DEVICE, "root", "handle", "1:", "tbf"])
            .args([
                "rate",
                &format!("{rate}bit"),
                "burst",
                &burst_bytes.to_string(),
                "limit",
                &QUEUE_BYTES.to_string(),
            ]))
    }

    fn tc(&self) -> Command {
        self.near.command("tc")
    }

    fn apply(&self, settings: QueueSettings) -> Result<()> {
        if let Some(bytes) = settings.limit_output_bytes {
            self.near.set("ipv4/tcp_limit_output_bytes", bytes)?;
        }
        if let Some(log) = settings.tso_rtt_log {
            self.near.set("ipv4/tcp_tso_rtt_log", log)?;
        }
        if let Some(segments) = settings.min_tso_segments {
            self.near.set("ipv4/tcp_min_tso_segs", segments)?;
        }
        if let Some(bytes) = settings.gso_max_bytes {
            // Since Linux 6.3 IPv4 has a separate size, which follows this one up to 64 KiB.
            self.near.ip(&format!("link set dev {DEVICE} gso_max_size {bytes}"))?;
        }
        if let Some(segments) = settings.gso_max_segments {
            self.near.ip(&format!("link set dev {DEVICE} gso_max_segs {segments}"))?;
        }
        Ok(())
    }
}
