//! A route as the kernel would take it for one packet (RTM_GETROUTE, `ip route get`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::AddressFamily;
use uncork_netlink::{Line, attribute, number, push};

use crate::Question;

// linux/rtnetlink.h
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
/// These three since Linux 4.18; kernels before ignore them.
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
/// TCP's number (IANA).
const TCP: u8 = 6;
const RTAX_MTU: u16 = 2;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// `struct rtmsg`.
const HEAD_BYTES: usize = 12;

/// The kernel's errors if there is no route, or one that says so (unreachable, prohibit,
/// blackhole; fib_props).
const NO_WAY: [Option<i32>; 4] = [
    Some(Errno::ENETUNREACH as i32),
    Some(Errno::EHOSTUNREACH as i32),
    Some(Errno::EACCES as i32),
    Some(Errno::EINVAL as i32),
];

/// The kind of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Out of a device, unmodified.
    Link,
    /// To this host itself.
    Local,
    /// Multicast or broadcast, or encapsulated (in a tunnel that the route itself makes, such as MPLS).
    Other,
}

/// The route of packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Kind of the route.
    pub kind: Kind,
    /// The device's index.
    pub device: u32,
    /// The next hop on the link: the address itself, or a router.
    pub next_hop: IpAddr,
    /// The source address, one of this host's.
    pub source: Option<IpAddr>,
    /// The path MTU, if the route or a router's error has set one.
    pub mtu: Option<u16>,
    /// Rules (ip-rule(8)) lead connections with these ports another way than others to this address.
    pub by_ports: bool,
}

/// The ports of a connection, each 0 where it is not to be asked about.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ports {
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

impl Way {
    pub(crate) fn look_up(
        line: &mut Line,
        asked: Question,
        ports: Ports,
    ) -> io::Result<Option<Self>> {
        let Question { remote, source, .. } = asked;
        // There is none from an address of the other version. If asked, the kernel refuses, and complains in its log.
        if source.is_some_and(|source| source.is_ipv4() != remote.is_ipv4()) {
            return Ok(None);
        }
        match line.get(RTM_GETROUTE, &question(asked, ports)) {
            Ok(answer) => Ok(Self::read(&answer, remote, source)),
            Err(error) if NO_WAY.contains(&error.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(body: &[u8], remote: IpAddr, source: Option<IpAddr>) -> Option<Self> {
        let (family, kind) = (*body.first()?, *body.get(7)?);
        let attributes = body.get(HEAD_BYTES..)?;
        let device = attribute(attributes, RTA_OIF).and_then(|value| number(value, 0))?;
        let tunnel = attribute(attributes, RTA_ENCAP_TYPE).is_some();
        let kind = match kind {
            RTN_UNICAST if !tunnel => Kind::Link,
            RTN_LOCAL => Kind::Local,
            _ => Kind::Other,
        };
        let address =
            |kind| attribute(attributes, kind).and_then(|octets| read_address(family, octets));
        // struct rtvia: a family, and an address of that, which need not be the destination's.
        let via = attribute(attributes, RTA_VIA).and_then(|via| {
            let (head, octets) = via.split_at_checked(2)?;
            read_address(*head.first()?, octets)
        });
        let metrics = attribute(attributes, RTA_METRICS).unwrap_or_default();
        let mtu = attribute(metrics, RTAX_MTU).and_then(|value| number(value, 0));
        Some(Self {
            kind,
            device,
            next_hop: address(RTA_GATEWAY).or(via).unwrap_or(remote),
            source: address(RTA_PREFSRC).or(source),
            mtu: mtu.filter(|&mtu| mtu > 0).map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
            by_ports: false,
        })
    }
}

fn question(Question { remote, source, device }: Question, ports: Ports) -> Vec<u8> {
    let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let mut body = vec![family(remote), bits(remote), source.map_or(0, bits)];
    body.resize(HEAD_BYTES, 0);
    for (kind, address) in [(RTA_DST, Some(remote)), (RTA_SRC, source)] {
        match address {
            Some(IpAddr::V4(address)) => push(&mut body, kind, &address.octets()),
            Some(IpAddr::V6(address)) => push(&mut body, kind, &address.octets()),
            None => {}
        }
    }
    // With any other address that would ask about routes by that device only.
    if let (Some(device), IpAddr::V6(address)) = (device, remote)
        && address.is_unicast_link_local()
    {
        push(&mut body, RTA_OIF, &device.to_ne_bytes());
    }
    push(&mut body, RTA_IP_PROTO, &[TCP]);
    for (kind, port) in [(RTA_SPORT, ports.local), (RTA_DPORT, ports.remote)] {
        if port != 0 {
            push(&mut body, kind, &port.to_be_bytes());
        }
    }
    body
}

/// Returns the number of an address's family.
pub(crate) fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    u8::try_from(family as i32).unwrap_or(0)
}

/// Reads an address of the family with this number.
pub(crate) fn read_address(number: u8, octets: &[u8]) -> Option<IpAddr> {
    if number == family(Ipv4Addr::UNSPECIFIED.into()) {
        return octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets));
    }
    if number == family(Ipv6Addr::UNSPECIFIED.into()) {
        return octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets));
    }
    None
}
