//! The configuration of F-Stack's instance.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};

/// The settings that are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings<'a> {
    /// Processor that the instance polls on.
    pub(super) core: usize,
    /// How long, in microseconds, it may hold back fewer than 32 frames.
    pub(super) delay: u32,
    /// The device, all of whose frames are F-Stack's.
    pub(super) device: &'a str,
    /// Its address there, in a /24 network.
    pub(super) address: Ipv4Addr,
    /// The address of the other end.
    pub(super) peer: Ipv4Addr,
}

/// An address at which no device can be. Allowing only it keeps DPDK from the PCI devices of the machine.
const NO_PCI: &str = "ffff:ff:1f.7";

/// Returns the configuration: processor and device are set here; the settings of FreeBSD's stack stay as in `theirs`,
/// which is F-Stack's own file or what its user has made of it.
///
/// The device is in `allow`, whose entries DPDK gets verbatim, and among which it accepts virtual ones, too: what
/// `nb_vdev` creates is always virtio_user. F-Stack splits the list at commas, which occur in such an entry: its user
/// has changed that to semicolons (docs/F-STACK.md).
pub(super) fn configuration(theirs: &str, settings: Settings<'_>) -> Result<String> {
    let Settings { core, delay, device, address, peer } = settings;
    let mask = mask(core)?;
    let [a, b, c, _] = address.octets();
    let freebsd = sections(theirs, |name| name.starts_with("freebsd."));
    ensure!(!freebsd.is_empty(), "its config.ini says nothing of FreeBSD");
    Ok(format!(
        "[dpdk]
lcore_mask={mask}
channel=4
promiscuous=1
numa_on=0
tx_csum_offoad_skip=0
tso=0
vlan_strip=0
idle_sleep=0
pkt_tx_delay={delay}
symmetric_rss=0
allow=net_af_xdp0,iface={device};{NO_PCI}
port_list=0
nb_vdev=0
nb_bond=0
[port0]
addr={address}
netmask=255.255.255.0
broadcast={a}.{b}.{c}.255
gateway={peer}
{freebsd}"
    ))
}

/// Returns the mask of a single processor, in hexadecimal.
pub(super) fn mask(core: usize) -> Result<String> {
    let bit = u32::try_from(core).ok().and_then(|core| 1_u64.checked_shl(core));
    Ok(format!("{:x}", bit.context("F-Stack's adapter knows 64 processors")?))
}

/// Returns these sections, without comments.
fn sections(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut taken = false;
    let mut out = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            taken = wanted(name.trim());
        }
        if taken && !line.is_empty() && !line.starts_with(['#', ';']) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings<'_> = Settings {
        core: 5,
        delay: 50,
        device: "eth7",
        address: Ipv4Addr::new(10, 1, 2, 3),
        peer: Ipv4Addr::new(10, 1, 2, 4),
    };

    /// Returns the values of a key in a section.
    fn values<'a>(text: &'a str, section: &str, key: &str) -> Vec<&'a str> {
        let mut within = "";
        let mut found = Vec::new();
        for line in text.lines() {
            match (line.strip_prefix('['), line.split_once('=')) {
                (Some(name), _) => within = name.trim_end_matches(']'),
                (None, Some((name, value))) if within == section && name == key => {
                    found.push(value);
                }
                _ => (),
            }
        }
        found
    }

    #[test]
    fn the_device_is_ours_to_say_and_freebsds_stack_is_theirs() {
        let theirs = "# a comment\n[dpdk]\nlcore_mask=1\nnb_vdev=2\nkeep=1\n[vdev0]\npath=/x\n\
                      [port0]\naddr=1.1.1.1\n [freebsd.boot] \nhz = 250\n#hz=1\n; and\n\n\
                      [kni]\nenable=1\n[freebsd.sysctl]\nkern.ipc.somaxconn=77\n";
        let text = configuration(theirs, SETTINGS).unwrap();
        for (section, key, value) in [
            ("dpdk", "lcore_mask", "20"),
            ("dpdk", "pkt_tx_delay", "50"),
            ("dpdk", "allow", "net_af_xdp0,iface=eth7;ffff:ff:1f.7"),
            ("dpdk", "nb_vdev", "0"),
            ("port0", "addr", "10.1.2.3"),
            ("port0", "broadcast", "10.1.2.255"),
            ("port0", "gateway", "10.1.2.4"),
            ("freebsd.boot", "hz ", " 250"),
            ("freebsd.sysctl", "kern.ipc.somaxconn", "77"),
        ] {
            assert_eq!(values(&text, section, key), [value], "{key}: {text}");
        }
        for gone in ["keep", "vdev0", "1.1.1.1", "kni", "comment", "hz=1"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
    }

    #[test]
    fn what_is_no_configuration_of_f_stack_is_refused() {
        assert!(configuration("[dpdk]\nlcore_mask=1\n", SETTINGS).is_err());
        assert!(configuration("[freebsd.boot]\n", Settings { core: 64, ..SETTINGS }).is_err());
        assert_eq!(mask(63).unwrap(), "8000000000000000");
    }
}
