//! Names of DPDK's devices, and what each needs. Pure, except for reading the directory of PCI devices.

use std::fs;
use std::path::Path;

use crate::OpenError;

/// Octets in a slot of net_af_packet's rings beside the packet: the ring's header, an address, the
/// Ethernet header, and their alignment (packet(7), tpacket_rcv).
const BESIDE_PACKET: u32 = 80;
/// That driver's slots unless it is told otherwise.
const SLOT_BYTES: u32 = 2048;
const SLOTS: u32 = 512;
/// Limits for a ring with longer slots: at most this much memory, but no fewer than this many slots.
const RING_BYTES: u32 = 16 << 20;
const LEAST_SLOTS: u32 = 64;
/// Slots are laid out in blocks, which hold at least one.
const BLOCK_BYTES: u32 = 1 << 16;

/// Drivers of the kernel that leave a PCI device to DPDK.
const LEAVES: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Drivers of the kernel that share it with DPDK.
const SHARES: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];

/// The kind of device, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A virtual device: a driver of DPDK's that knows of no device below it.
    Virtual,
    /// A device on the PCI bus.
    Pci,
}

/// A device as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// What DPDK calls it, without arguments.
    pub(super) name: String,
    arguments: Vec<String>,
    pub(super) kind: Kind,
}

impl Name {
    /// Parses "net_af_packet0,iface=veth0" or "0000:03:00.0".
    pub(super) fn parse(text: &str) -> Result<Self, OpenError> {
        let mut parts = text.split(',').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        let (name, kind) = match pci(&name) {
            Some(address) => (address, Kind::Pci),
            None => (name, Kind::Virtual),
        };
        // DPDK silently truncates a longer name (RTE_ETH_NAME_MAX_LEN).
        let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"_:.-".contains(&octet);
        let short = (1..64).contains(&name.len());
        if !short || !name.bytes().all(is_name) || text.contains(char::is_control) {
            return Err(OpenError::Settings(
                "DPDK's devices are called like net_af_packet0,iface=eth0, net_tap0 or 0000:03:00.0",
            ));
        }
        Ok(Self { name, arguments: parts.collect(), kind })
    }

    /// Returns the value of an argument.
    pub(super) fn argument(&self, key: &str) -> Option<&str> {
        let of = |argument: &'_ String| -> Option<usize> {
            let (name, _) = argument.split_once('=')?;
            (name == key).then_some(name.len() + 1)
        };
        self.arguments.iter().find_map(|argument| of(argument).map(|from| &argument[from..]))
    }

    /// Whether it is a device of this driver: the driver's name and a number.
    pub(super) fn is_of(&self, driver: &str) -> bool {
        let number = self.name.strip_prefix(driver);
        number.is_some_and(|number| number.bytes().all(|octet| octet.is_ascii_digit()))
    }

    /// Returns the name with its arguments, as DPDK takes it.
    pub(super) fn with_arguments(&self) -> String {
        let name = std::iter::once(&self.name);
        name.chain(&self.arguments).map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// For net_af_packet, which ignores the MTU of the kernel's device: makes its slots long enough, unless
    /// arguments set them, and returns the longest packet that they hold, in octets.
    pub(super) fn fit(&mut self, mtu: u16) -> Result<u16, OpenError> {
        let wanted = BESIDE_PACKET + u32::from(mtu);
        if let Some(text) = self.argument("framesz") {
            let slot: u32 = text.parse().map_err(|_| {
                OpenError::Settings(
                    "framesz= takes the length of a slot of net_af_packet, in octets",
                )
            })?;
            if slot < wanted {
                return Err(OpenError::Settings(
                    "the slots of net_af_packet (framesz=) are shorter than the MTU of its device and 80 octets",
                ));
            }
            return Ok(longest_packet(slot));
        }
        if wanted <= SLOT_BYTES {
            return Ok(longest_packet(SLOT_BYTES));
        }
        let slot = wanted.next_power_of_two();
        let slots = (RING_BYTES / slot).clamp(LEAST_SLOTS, SLOTS);
        let sizes = [("framesz", slot), ("blocksz", slot.max(BLOCK_BYTES)), ("framecnt", slots)];
        for (key, value) in sizes {
            self.arguments.push(format!("{key}={value}"));
        }
        Ok(longest_packet(slot))
    }
}

fn longest_packet(slot_bytes: u32) -> u16 {
    u16::try_from(slot_bytes - BESIDE_PACKET).unwrap_or(u16::MAX)
}

/// Parses an address on the PCI bus, and completes its domain.
fn pci(text: &str) -> Option<String> {
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|octet| octet.is_ascii_hexdigit())
    };
    let (front, function) = text.split_once('.')?;
    let parts: Vec<_> = front.split(':').collect();
    let (domain, bus, slot) = match parts[..] {
        [domain, bus, slot] => (domain, bus, slot),
        [bus, slot] => ("0000", bus, slot),
        _ => return None,
    };
    let is_it = hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1);
    is_it.then(|| format!("{domain}:{bus}:{slot}.{function}").to_ascii_lowercase())
}

/// Returns what a device on the PCI bus (`devices` is /sys/bus/pci/devices) lacks for DPDK to take it.
pub(super) fn missing_of_pci(devices: &Path, address: &str) -> Option<String> {
    let device = devices.join(address);
    if !device.exists() {
        return Some("there is no such device on the PCI bus (lspci -D lists them)".to_owned());
    }
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let whose = match driver.as_deref() {
        Some(driver) if LEAVES.contains(&driver) || SHARES.contains(&driver) => return None,
        Some(driver) => format!("it is the kernel's by the driver {driver}"),
        None => "no driver leaves it to DPDK".to_owned(),
    };
    Some(format!("{whose}: modprobe vfio-pci, and dpdk-devbind.py --bind=vfio-pci {address}"))
}

/// Whether huge pages are free, according to /proc/meminfo.
pub(super) fn has_huge_pages(meminfo: &str) -> bool {
    let free = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    free.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_name_is_a_driver_with_a_number_or_a_place_on_the_bus() {
        let name = Name::parse("net_af_packet0,iface=veth0,framecnt=64").unwrap();
        assert_eq!((name.name.as_str(), name.kind), ("net_af_packet0", Kind::Virtual));
        assert_eq!(name.argument("iface"), Some("veth0"));
        assert_eq!((name.argument("framecnt"), name.argument("frame")), (Some("64"), None));
        assert!(name.is_of("net_af_packet") && !name.is_of("net_af"));
        assert_eq!(name.with_arguments(), "net_af_packet0,iface=veth0,framecnt=64");

        for text in ["0000:0A:00.1", "0a:00.1"] {
            let name = Name::parse(text).unwrap();
            assert_eq!((name.name.as_str(), name.kind), ("0000:0a:00.1", Kind::Pci));
        }
        for text in ["", ",iface=veth0", "net tap0", "net_tap0\n", &"x".repeat(64)] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Name::parse("10:00").unwrap().kind, Kind::Virtual);
    }

    #[test]
    fn slots_hold_the_longest_packet_of_the_device() {
        let fitted = |text: &str, mtu| {
            let mut name = Name::parse(text).unwrap();
            let longest = name.fit(mtu)?;
            assert!(longest >= mtu);
            Ok::<_, OpenError>((name.with_arguments(), longest))
        };
        let (name, longest) = fitted("net_af_packet0,iface=a", 1500).unwrap();
        assert_eq!((name.as_str(), longest), ("net_af_packet0,iface=a", 1968));
        assert_eq!(fitted("net_af_packet0,iface=a", 1968).unwrap().1, 1968);
        let (name, longest) = fitted("net_af_packet0,iface=a", 9000).unwrap();
        assert_eq!(name, "net_af_packet0,iface=a,framesz=16384,blocksz=65536,framecnt=512");
        assert_eq!(longest, 16_304);
        let (name, longest) = fitted("net_af_packet0,iface=a", 65_535).unwrap();
        assert_eq!(name, "net_af_packet0,iface=a,framesz=131072,blocksz=131072,framecnt=128");
        assert_eq!(longest, 65_535);
        // An argument about slots overrides all of them.
        let (name, longest) = fitted("net_af_packet0,iface=a,framesz=4096", 1500).unwrap();
        assert_eq!((name.as_str(), longest), ("net_af_packet0,iface=a,framesz=4096", 4016));
        for text in ["net_af_packet0,iface=a,framesz=1024", "net_af_packet0,iface=a,framesz=x"] {
            assert!(fitted(text, 1500).unwrap_err().to_string().contains("framesz="));
        }
    }

    #[test]
    fn what_a_device_on_the_bus_lacks_is_said() {
        let devices = std::env::temp_dir().join(format!("uncork-pci-{}", std::process::id()));
        let address = "0000:03:00.0";
        let missing = || missing_of_pci(&devices, address);
        assert!(missing().unwrap().contains("no such device"));
        fs::create_dir_all(devices.join(address)).unwrap();
        assert!(missing().unwrap().contains("no driver leaves it to DPDK"));
        for (driver, says) in [
            ("ixgbe", Some("it is the kernel's by the driver ixgbe")),
            ("vfio-pci", None),
            ("mlx5_core", None),
        ] {
            let link = devices.join(address).join("driver");
            symlink(Path::new("../../drivers").join(driver), &link).unwrap();
            let said = missing();
            assert_eq!(said.is_some(), says.is_some(), "{driver}");
            assert!(said.unwrap_or_default().contains(says.unwrap_or_default()));
            fs::remove_file(link).unwrap();
        }
        fs::remove_dir_all(devices).unwrap();
    }

    #[test]
    fn huge_pages_are_there_or_not() {
        assert!(has_huge_pages("HugePages_Total:       4\nHugePages_Free:        3\n"));
        assert!(!has_huge_pages("HugePages_Total:       4\nHugePages_Free:        0\n"));
        assert!(!has_huge_pages("MemTotal: 1 kB\n"));
    }
}
