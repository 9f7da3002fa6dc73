//! The host's side of the link: its addresses, routes and neighbours, and the answers that need no
//! connection.

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
    /// The addresses are shared with the kernel: see [`crate::Config::shares_addresses`].
    pub(crate) shared: bool,
    addresses: Vec<Cidr>,
    /// The addresses in the form in which each received packet's destination is compared.
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

    /// Returns whether no host on the link can have sent from this address: a sender that is trusted as local must be on the host
    /// itself (ip_route_input_slow, ipv6_rcv). The host's own addresses may come from outside if it allows that (accept_local),
    /// which is checked where frames are let in.
    pub(crate) fn is_martian(source: Address) -> bool {
        let ip = source.ip();
        let nobodys = source.as_v4().is_some_and(|ip| ip.octets()[0] == 0 || ip.is_broadcast());
        nobodys || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
    }

    /// Returns the next hop for a packet to `remote`: `remote` itself, or the router of the longest
    /// matching prefix. Where addresses are shared it is always `remote`: the kernel routes, and answers
    /// with what its tables say.
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

    /// Returns a source address for packets to `remote`: one in the network of the next hop, or any of that family.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let hop = self.next_hop(remote)?;
        let near = self.addresses.iter().find(|ours| ours.contains(hop));
        let family = self.addresses.iter().find(|ours| ours.address.is_ipv4() == remote.is_ipv4());
        near.or(family).map(|ours| ours.address)
    }

    /// Returns the neighbour entry of the next hop to `remote`, if the link has neighbours.
    pub(crate) fn neighbour_for(&mut self, remote: IpAddr) -> Option<NeighbourId> {
        if self.device.medium == Medium::Ip {
            return None;
        }
        let hop = self.next_hop(remote)?;
        Some(self.neighbours.find_or_add(hop))
    }

    /// Returns the path MTU via this neighbour, as far as it is known before any packet was sent.
    pub(crate) fn path_mtu(&self, neighbour: Option<NeighbourId>) -> u16 {
        let told = neighbour.and_then(|id| self.neighbours.mtu(id));
        told.map_or(self.device.mtu, |mtu| mtu.min(self.device.mtu))
    }

    /// Returns whether there is a route to `remote`.
    pub(crate) fn reaches(&self, remote: IpAddr) -> bool {
        self.next_hop(remote).is_some()
    }
}
