//! The host's side of the link: which addresses are ours, which way a packet goes, who is behind an
//! address, and what is answered without any connection.

pub(crate) mod arrival;
pub(crate) mod neighbour;
pub(crate) mod reply;
mod route;

use std::net::IpAddr;

use uncork_packet::{Capabilities, Medium};
use uncork_wire::ethernet::Mac;

pub use neighbour::Found;
pub(crate) use neighbour::{NeighbourId, Neighbours};
use reply::Replies;
pub use route::{Cidr, Route};

use crate::address::Address;

/// Addresses, routes and neighbours.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) device: Capabilities,
    pub(crate) mac: Mac,
    /// The addresses are the kernel's, too: see [`crate::Config::shares_addresses`].
    pub(crate) shared: bool,
    addresses: Vec<Cidr>,
    /// The same, to be looked for in every packet that comes.
    ours: Vec<Address>,
    routes: Vec<Route>,
    pub(crate) neighbours: Neighbours,
    pub(crate) replies: Replies,
}

impl Interface {
    pub(crate) fn new(device: Capabilities, mac: Mac, shared: bool) -> Self {
        Self {
            device,
            mac,
            shared,
            addresses: Vec::new(),
            ours: Vec::new(),
            routes: Vec::new(),
            neighbours: Neighbours::new(shared),
            replies: Replies::default(),
        }
    }

    /// Adds an address, and with it the route to its network if the address is not shared.
    pub(crate) fn add_address(&mut self, address: Cidr) {
        self.addresses.push(address);
        self.ours.push(address.address.into());
    }

    pub(crate) fn add_route(&mut self, route: Route) {
        self.routes.push(route);
    }

    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.has(address.into())
    }

    #[inline]
    pub(crate) fn has(&self, address: Address) -> bool {
        self.ours.contains(&address)
    }

    /// Whether nobody on the link can have sent this: who is served as one who is on the host itself must be there
    /// (ip_route_input_slow, ipv6_rcv). The host's own addresses may come from outside if it says so (accept_local), which
    /// whoever lets frames in knows.
    pub(crate) fn is_martian(source: Address) -> bool {
        let ip = source.ip();
        let nobodys = source.as_v4().is_some_and(|ip| ip.octets()[0] == 0 || ip.is_broadcast());
        nobodys || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
    }

    /// Whoever a packet to `remote` is handed to on the link: himself, or the router of the longest
    /// prefix that fits. Where addresses are shared it is always himself: the kernel routes, and answers for
    /// whatever its tables say.
    pub(crate) fn next_hop(&self, remote: IpAddr) -> Option<IpAddr> {
        if self.shared {
            let mut versions = self.addresses.iter().map(|ours| ours.address.is_ipv4());
            return versions.any(|v4| v4 == remote.is_ipv4()).then_some(remote);
        }
        let here = self.addresses.iter().filter(|ours| ours.contains(remote));
        let here = here.map(|ours| (ours.prefix, remote)).max_by_key(|(prefix, _)| *prefix);
        let there = self.routes.iter().filter(|route| route.destination.contains(remote));
        let there = there.map(|route| (route.destination.prefix, route.gateway.unwrap_or(remote)));
        let there = there.max_by_key(|(prefix, _)| *prefix);
        let longest = [here, there].into_iter().flatten().max_by_key(|(prefix, _)| *prefix);
        longest.map(|(_, hop)| hop)
    }

    /// The address to speak to `remote` from: one of the network of the next hop, or any.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let hop = self.next_hop(remote)?;
        let near = self.addresses.iter().find(|ours| ours.contains(hop));
        let family = self.addresses.iter().find(|ours| ours.address.is_ipv4() == remote.is_ipv4());
        near.or(family).map(|ours| ours.address)
    }

    /// The neighbour through whom `remote` is reached, where there are neighbours.
    pub(crate) fn neighbour_for(&mut self, remote: IpAddr) -> Option<NeighbourId> {
        if self.device.medium == Medium::Ip {
            return None;
        }
        let hop = self.next_hop(remote)?;
        Some(self.neighbours.find_or_add(hop))
    }

    /// The longest packet that gets to `remote`, as far as is known before any was sent.
    pub(crate) fn path_mtu(&self, neighbour: Option<NeighbourId>) -> u16 {
        let told = neighbour.and_then(|id| self.neighbours.mtu(id));
        told.map_or(self.device.mtu, |mtu| mtu.min(self.device.mtu))
    }

    /// Whether there is a way to `remote` at all.
    pub(crate) fn reaches(&self, remote: IpAddr) -> bool {
        self.next_hop(remote).is_some()
    }
}
