//! Two namespaces joined by a veth pair, one end for our stack and one for the kernel's.

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use uncork_driver::{Disturb, af_packet, clock};
use uncork_netns::Namespace;
use uncork_path::{Faults, Loss, Path, Reorder};
use uncork_stack::{Config, Mac, Stack};

const OUR_MAC: &str = "02:00:00:00:00:01";
/// Prefixes in IPv4 and IPv6, to which a host's octet is appended.
const NETWORKS: [&str; 2] = ["10.91.0.", "fd91::"];

/// Conditions of the network between them, in both directions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions {
    pub(crate) mtu: u16,
    pub(crate) loss: f64,
    pub(crate) delay: Duration,
    /// Share of the frames that are a millisecond late.
    pub(crate) reorder: f64,
    pub(crate) ipv6: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { mtu: 1500, loss: 0.0, delay: Duration::ZERO, reorder: 0.0, ipv6: false }
    }
}

impl Conditions {
    fn path(&self, seed: u64) -> Path {
        let reorder = Reorder { probability: self.reorder, late_by: Duration::from_millis(1) };
        Path {
            delay: self.delay,
            loss: Loss { probability: self.loss, seed, ..Loss::default() },
            faults: Faults { reorder, ..Faults::default() },
            ..Path::default()
        }
    }
}

pub(crate) struct Link {
    ours: Namespace,
    pub(crate) kernels: Namespace,
    ipv6: bool,
}

impl Link {
    pub(crate) fn new(label: &str, conditions: &Conditions) -> Self {
        let ours = Namespace::new(&format!("{label}-o")).unwrap();
        let kernels = Namespace::new(&format!("{label}-k")).unwrap();
        ours.set("ipv6/conf/default/disable_ipv6", 1).unwrap();
        kernels.set("ipv6/conf/default/disable_ipv6", u32::from(!conditions.ipv6)).unwrap();
        let pair = format!("link add eth0 type veth peer name eth0 netns {}", kernels.name());
        ours.ip(&pair).unwrap();
        ours.ip(&format!("link set eth0 address {OUR_MAC}")).unwrap();
        let link = Self { ours, kernels, ipv6: conditions.ipv6 };
        for namespace in [&link.ours, &link.kernels] {
            namespace.ip(&format!("link set eth0 mtu {} up", conditions.mtu)).unwrap();
            // So that a segment is lost, and not a train of them.
            let mut ethtool = namespace.command("ethtool");
            ethtool.args("-K eth0 tso off gso off gro off tx off".split(' '));
            uncork_netns::run(&mut ethtool).unwrap();
        }
        let (prefix, more) = if link.ipv6 { (64, " nodad") } else { (24, "") };
        let address = format!("address add {}/{prefix} dev eth0{more}", link.kernels_address());
        link.kernels.ip(&address).unwrap();
        // The kernel asks only three times, all of which may be lost.
        let neighbour = format!("neigh add {} lladdr {OUR_MAC} dev eth0", link.our_address());
        link.kernels.ip(&neighbour).unwrap();
        link
    }

    /// Changes the MTU of both ends.
    pub(crate) fn set_mtu(&self, mtu: u16) {
        for namespace in [&self.ours, &self.kernels] {
            namespace.ip(&format!("link set eth0 mtu {mtu}")).unwrap();
        }
    }

    fn address(&self, host: u8) -> IpAddr {
        format!("{}{host}", NETWORKS[usize::from(self.ipv6)]).parse().unwrap()
    }

    pub(crate) fn our_address(&self) -> IpAddr {
        self.address(1)
    }

    pub(crate) fn kernels_address(&self) -> IpAddr {
        self.address(2)
    }

    /// Opens our end, with the conditions applied.
    pub(crate) fn port(&self, conditions: &Conditions) -> Disturb<af_packet::Port> {
        let settings = af_packet::Settings::new("eth0");
        let open = move || Ok(af_packet::Port::open(&settings, None)?);
        let port = self.ours.within(open).unwrap();
        Disturb::new(port, conditions.path(1), conditions.path(2), clock::clock()).unwrap()
    }

    /// Makes a stack for the port. TIME-WAIT is short, so that a test need not wait a minute.
    pub(crate) fn stack(&self, port: &Disturb<af_packet::Port>) -> Stack {
        use uncork_driver::Driver as _;
        let octets = OUR_MAC.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap());
        let mac = Mac(octets.collect::<Vec<_>>().try_into().unwrap());
        let config = Config { time_wait: Duration::from_millis(500), ..Config::default() };
        let mut stack = Stack::new(config, port.capabilities(), mac, [3; 32]);
        let prefix = if self.ipv6 { 64 } else { 24 };
        stack.add_address(format!("{}/{prefix}", self.our_address()).parse().unwrap());
        stack
    }

    /// Returns the number of connections of the kernel's end, without listeners and TIME-WAIT.
    pub(crate) fn connections_of_the_kernel(&self) -> usize {
        let count = || {
            let read = || {
                let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
                Ok(tables.map(|table| fs::read_to_string(table).unwrap_or_default()).concat())
            };
            let text = self.kernels.within(read).unwrap();
            let states = text.lines().filter_map(|line| line.split_whitespace().nth(3));
            states.filter(|&state| !["st", "0A", "06"].contains(&state)).count()
        };
        // The last ACK may still be under way.
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while count() > 0 && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        count()
    }
}
