//! Routes as the kernel reports them, and as it takes them back.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::scope::Prefix;
use uncork_netlink::{Line, attribute, attributes, number, push};

// linux/rtnetlink.h
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_QUICKACK: u16 = 15;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// The other route types, in the order of their numbers, from 3.
const OTHER_KINDS: [&str; 9] = [
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
];
const RTM_F_CLONED: u32 = 0x200;
/// The only flag that is part of the configuration; the others tell the next hop's state.
const RTNH_F_ONLINK: u8 = 4;
/// The attributes of a packet's path: a route made from another has the same.
const WAY: [u16; 8] = [
    RTA_OIF,
    RTA_GATEWAY,
    RTA_VIA,
    RTA_MULTIPATH,
    RTA_NH_ID,
    RTA_ENCAP_TYPE,
    RTA_ENCAP,
    RTA_PREFSRC,
];
pub(super) const TABLE_DEFAULT: u32 = 253;
pub(super) const TABLE_MAIN: u32 = 254;
pub(super) const TABLE_LOCAL: u32 = 255;
const STATIC: u8 = 4;
/// `struct rtmsg`, `struct rtnexthop`.
const HEAD_BYTES: usize = 12;
const HOP_HEAD_BYTES: usize = 8;

/// A route: its configuration, as far as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fib {
    head: [u8; HEAD_BYTES],
    attributes: BTreeMap<u16, Vec<u8>>,
    metrics: BTreeMap<u16, Vec<u8>>,
    /// Whether it expires: a router has announced it.
    expires: bool,
}

impl Fib {
    /// Returns all routes of the thread's namespace, those to one destination in the kernel's order.
    pub(super) fn all() -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let routes = dump(u8::try_from(family).unwrap_or_default())?;
            found.extend(routes.iter().filter_map(|route| Self::read(route)));
        }
        Ok(found)
    }

    /// Returns the routes with this one's key. Of the others only the key is parsed: this is called
    /// for one route after the other, among thousands.
    pub(super) fn all_like(&self) -> io::Result<Vec<Self>> {
        let to = self.attributes.get(&RTA_DST).map(Vec::as_slice);
        let may_be_like = |route: &&Vec<u8>| {
            let rest = route.get(HEAD_BYTES..).unwrap_or_default();
            route.get(..4) == self.head.get(..4) && attribute(rest, RTA_DST) == to
        };
        let routes = dump(self.head[0])?;
        let read = routes.iter().filter(may_be_like).filter_map(|route| Self::read(route));
        Ok(read.filter(|route| route.key() == self.key()).collect())
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut head: [u8; HEAD_BYTES] = body.get(..HEAD_BYTES)?.try_into().ok()?;
        let flags = number(&head, 8)?;
        if flags & RTM_F_CLONED != 0 {
            return None;
        }
        head[8..].copy_from_slice(&(flags & u32::from(RTNH_F_ONLINK)).to_ne_bytes());
        let rest = body.get(HEAD_BYTES..)?;
        let mut own: BTreeMap<u16, Vec<u8>> = attributes(rest)
            .into_iter()
            .filter(|(kind, _)| ![RTA_METRICS, RTA_CACHEINFO].contains(kind))
            .map(|(kind, value)| (kind, value.to_vec()))
            .collect();
        if own.contains_key(&RTA_NH_ID) {
            // Reported for programs that do not know of next-hop objects; refused together with one.
            for told in [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH] {
                own.remove(&told);
            }
        }
        if let Some(hops) = own.get_mut(&RTA_MULTIPATH) {
            without_their_fare(hops);
        }
        let metrics = attributes(attribute(rest, RTA_METRICS).unwrap_or_default());
        let metrics = metrics.into_iter().map(|(kind, value)| (kind, value.to_vec())).collect();
        // struct rta_cacheinfo: the third number.
        let expires = attribute(rest, RTA_CACHEINFO).and_then(|info| number(info, 8)) > Some(0);
        Some(Self { head, attributes: own, metrics, expires })
    }

    /// Encodes it as the kernel takes it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        for (kind, value) in &self.attributes {
            push(&mut bytes, *kind, value);
        }
        if !self.metrics.is_empty() {
            let mut metrics = Vec::new();
            for (kind, value) in &self.metrics {
                push(&mut metrics, *kind, value);
            }
            push(&mut bytes, RTA_METRICS, &metrics);
        }
        bytes
    }

    /// Returns the route to replace one with `quickack 1`, with `quickack 0` made explicit. To a
    /// route by next-hop number without any metrics the kernel gives those of any route by that
    /// number that it finds, the one being replaced among them (fib_find_info_nh).
    pub(super) fn with_quickack_said(&self) -> Self {
        let mut said = self.clone();
        said.metrics.entry(RTAX_QUICKACK).or_insert_with(|| 0_u32.to_ne_bytes().to_vec());
        said
    }

    /// Returns whether it carries packets: the others (blackhole, throw, broadcast and so on) keep
    /// TCP from their destinations.
    pub(super) fn carries_tcp(&self) -> bool {
        [RTN_UNICAST, RTN_LOCAL].contains(&self.head[7])
    }

    /// Returns whether its table is consulted where no rule says otherwise (ip-rule(8)).
    pub(super) fn is_of_main_or_local(&self) -> bool {
        [TABLE_MAIN, TABLE_LOCAL].contains(&self.table())
    }

    pub(super) fn is_ipv4(&self) -> bool {
        i32::from(self.head[0]) == libc::AF_INET
    }

    /// Returns whether it is only for one type of service, or for one source (IPv6).
    pub(super) fn is_for_some_packets(&self) -> bool {
        self.head[2] != 0 || self.head[3] != 0
    }

    pub(super) fn table(&self) -> u32 {
        self.number_of(RTA_TABLE).unwrap_or(u32::from(self.head[4]))
    }

    /// Returns the index of its device, if it has one.
    pub(super) fn device(&self) -> Option<i32> {
        self.number_of(RTA_OIF).map(u32::cast_signed)
    }

    fn number_of(&self, kind: u16) -> Option<u32> {
        self.attributes.get(&kind).and_then(|value| number(value, 0))
    }

    pub(super) fn is_of_table_local(&self) -> bool {
        self.table() == TABLE_LOCAL
    }

    /// Returns whether only the kernel makes such a route: the metric 0 means 1024 in an IPv6 route
    /// that anything else adds (rtm_to_fib6_config).
    pub(super) fn is_the_kernels_own(&self) -> bool {
        !self.is_ipv4() && self.number_of(RTA_PRIORITY).unwrap_or(0) == 0
    }

    /// Returns whether it expires, as announced by a router.
    pub(super) fn expires(&self) -> bool {
        self.expires
    }

    /// Returns the key by which the kernel finds a route that is to be replaced.
    pub(super) fn key(&self) -> impl PartialEq + use<> {
        let of = |kind| self.attributes.get(&kind).cloned();
        // Family, lengths and type of service; table, destination and metric.
        (self.head[..4].to_vec(), self.table(), of(RTA_DST), of(RTA_PRIORITY))
    }

    /// Returns its destination.
    pub(super) fn prefix(&self) -> Prefix {
        let bytes = self.attributes.get(&RTA_DST).map(Vec::as_slice);
        Prefix { address: address(self.is_ipv4(), bytes), bits: self.head[1] }
    }

    /// Returns whether both routes send packets the same way.
    pub(super) fn goes_the_way_of(&self, other: &Self) -> bool {
        let same = |kind| self.attributes.get(kind) == other.attributes.get(kind);
        self.head[7..] == other.head[7..] && WAY.iter().all(same)
    }

    /// Describes that way as ip-route(8) does.
    pub(super) fn way(&self, name_of: impl Fn(i32) -> String) -> String {
        let mut words = Vec::new();
        if let Some(kind) = self.other_kind() {
            words.push(kind.to_owned());
        }
        if let Some(id) = self.number_of(RTA_NH_ID) {
            words.push(format!("nhid {id}"));
        }
        if let Some(gateway) = self.attributes.get(&RTA_GATEWAY) {
            words.push(format!("via {}", address(self.is_ipv4(), Some(gateway))));
        }
        // struct rtvia: an address family, and an address of that family.
        if let Some(gateway) = self.attributes.get(&RTA_VIA).and_then(|via| via.get(2..)) {
            words.push(format!("via {}", address(gateway.len() == 4, Some(gateway))));
        }
        if self.attributes.contains_key(&RTA_MULTIPATH) {
            words.push("by several next hops".to_owned());
        }
        words.extend(self.device().map(|index| format!("dev {}", name_of(index))));
        words.join(" ")
    }

    fn other_kind(&self) -> Option<&'static str> {
        let at = usize::from(self.head[7]).checked_sub(usize::from(RTN_LOCAL) + 1)?;
        Some(OTHER_KINDS.get(at).copied().unwrap_or("unknown"))
    }

    /// Returns the route with `quickack 1`.
    pub(super) fn quick(&self) -> Self {
        let mut quick = self.clone();
        quick.metrics.insert(RTAX_QUICKACK, 1_u32.to_ne_bytes().to_vec());
        quick
    }

    /// Returns the route narrowed to fewer addresses.
    pub(super) fn narrowed(&self, to: Prefix) -> Self {
        let mut narrow = self.clone();
        let octets = match to.address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        narrow.attributes.insert(RTA_DST, octets);
        narrow.head[1] = to.bits;
        narrow.head[5] = STATIC;
        narrow
    }
}

/// Returns what the kernel reports of a family's routes; nothing, if it lacks that family.
fn dump(family: u8) -> io::Result<Vec<Vec<u8>>> {
    let mut body = vec![0; HEAD_BYTES];
    body[0] = family;
    match Line::open()?.dump(RTM_GETROUTE, &body) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
        routes => routes,
    }
}

impl fmt::Display for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.other_kind().map(|kind| format!("{kind} ")).unwrap_or_default();
        write!(f, "{kind}{} of table {}", self.prefix(), table_name(self.table()))?;
        // What distinguishes it from others to the same addresses; IPv6 routes all have a metric.
        if self.head[3] != 0 {
            write!(f, " for type of service {:#04x}", self.head[3])?;
        }
        match self.number_of(RTA_PRIORITY) {
            Some(metric) if self.is_ipv4() && metric > 0 => write!(f, " with metric {metric}"),
            _ => Ok(()),
        }
    }
}

/// Names a table as ip-route(8) does.
pub(super) fn table_name(table: u32) -> String {
    match table {
        TABLE_DEFAULT => "default".to_owned(),
        TABLE_MAIN => "main".to_owned(),
        TABLE_LOCAL => "local".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the address of these octets; without octets, the all-zero address.
pub(super) fn address(is_ipv4: bool, octets: Option<&[u8]>) -> IpAddr {
    if is_ipv4 {
        let octets: [u8; 4] = octets.and_then(|b| b.try_into().ok()).unwrap_or_default();
        IpAddr::V4(Ipv4Addr::from(octets))
    } else {
        let octets: [u8; 16] = octets.and_then(|b| b.try_into().ok()).unwrap_or_default();
        IpAddr::V6(Ipv6Addr::from(octets))
    }
}

/// Removes from next hops (`struct rtnexthop`: length, flags, weight, device) the flags of their
/// state: it changes with the carrier, and the kernel does not take it back (fib_get_nhs).
fn without_their_fare(hops: &mut [u8]) {
    let mut at = 0;
    while let Some(hop) = hops.get_mut(at..).filter(|hop| hop.len() >= HOP_HEAD_BYTES) {
        hop[2] &= RTNH_F_ONLINK;
        let length = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
        at += length.max(HOP_HEAD_BYTES).next_multiple_of(4);
    }
}

impl fmt::Debug for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(self.clone()))
    }
}

/// The form in the journal: the octets, in hexadecimal.
impl From<Fib> for String {
    fn from(fib: Fib) -> Self {
        fib.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Fib {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let octet =
            |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
        octets.and_then(|octets| Self::read(&octets)).ok_or_else(|| format!("{text} is no route"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_comes_back_from_the_journal_as_it_went() {
        for fib in Fib::all().unwrap() {
            let text = String::from(fib.clone());
            let back = Fib::try_from(text.clone()).unwrap();
            assert!(Fib { expires: false, ..fib.clone() } == back, "{fib:?} {back:?}");
            assert!(fib.quick() != fib || text.contains(&String::from(fib.quick())));
        }
        assert!(Fib::try_from("02zz".to_owned()).is_err());
    }
}
