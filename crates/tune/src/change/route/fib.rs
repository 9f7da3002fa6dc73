//! A route as the kernel tells it, and as it takes it back.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::netlink::{Line, attribute, attributes, number, push};
use crate::scope::Prefix;

// linux/rtnetlink.h
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_NH_ID: u16 = 30;
const RTAX_QUICKACK: u16 = 15;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTM_F_CLONED: u32 = 0x200;
/// The one flag that belongs to what was asked for; the others tell how it fares.
const RTNH_F_ONLINK: u32 = 4;
const TABLE_MAIN: u32 = 254;
const TABLE_LOCAL: u32 = 255;
const STATIC: u8 = 4;
/// `struct rtmsg`.
const HEAD_BYTES: usize = 12;

/// A route: what was asked for to make it, as far as the kernel tells.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fib {
    head: [u8; HEAD_BYTES],
    attributes: BTreeMap<u16, Vec<u8>>,
    metrics: BTreeMap<u16, Vec<u8>>,
    /// It ends by itself: a router has announced it.
    expires: bool,
}

impl Fib {
    /// All routes of the thread's namespace that can carry TCP.
    pub(super) fn all() -> io::Result<Vec<Self>> {
        let mut line = Line::open()?;
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut body = vec![0; HEAD_BYTES];
            body[0] = u8::try_from(family).unwrap_or_default();
            let routes = match line.dump(RTM_GETROUTE, &body) {
                // A kernel without IPv6.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
                routes => routes?,
            };
            found.extend(routes.iter().filter_map(|route| Self::read(route)));
        }
        found.retain(Self::carries_tcp);
        Ok(found)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut head: [u8; HEAD_BYTES] = body.get(..HEAD_BYTES)?.try_into().ok()?;
        let flags = number(&head, 8)?;
        if flags & RTM_F_CLONED != 0 {
            return None;
        }
        head[8..].copy_from_slice(&(flags & RTNH_F_ONLINK).to_ne_bytes());
        let rest = body.get(HEAD_BYTES..)?;
        let mut own: BTreeMap<u16, Vec<u8>> = attributes(rest)
            .into_iter()
            .filter(|(kind, _)| ![RTA_METRICS, RTA_CACHEINFO].contains(kind))
            .map(|(kind, value)| (kind, value.to_vec()))
            .collect();
        if own.contains_key(&RTA_NH_ID) {
            // Told for those who do not know of next hops by number; not taken along with that.
            for told in [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH] {
                own.remove(&told);
            }
        }
        let metrics = attributes(attribute(rest, RTA_METRICS).unwrap_or_default());
        let metrics = metrics.into_iter().map(|(kind, value)| (kind, value.to_vec())).collect();
        // struct rta_cacheinfo: the third number.
        let expires = attribute(rest, RTA_CACHEINFO).and_then(|info| number(info, 8)) > Some(0);
        Some(Self { head, attributes: own, metrics, expires })
    }

    /// As the kernel takes it.
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

    fn carries_tcp(&self) -> bool {
        [TABLE_MAIN, TABLE_LOCAL].contains(&self.table())
            && [RTN_UNICAST, RTN_LOCAL].contains(&self.head[7])
    }

    fn table(&self) -> u32 {
        let long = self.attributes.get(&RTA_TABLE).and_then(|value| number(value, 0));
        long.unwrap_or(u32::from(self.head[4]))
    }

    pub(super) fn is_of_table_local(&self) -> bool {
        self.table() == TABLE_LOCAL
    }

    /// Whether it is of a kind that only the kernel makes: the metric 0 that somebody else gives to
    /// an IPv6 route means 1024 (rtm_to_fib6_config).
    pub(super) fn is_the_kernels_own(&self) -> bool {
        let metric = self.attributes.get(&RTA_PRIORITY).and_then(|value| number(value, 0));
        i32::from(self.head[0]) == libc::AF_INET6 && metric.unwrap_or(0) == 0
    }

    /// Whether a router's announcement ends it after a while.
    pub(super) fn expires(&self) -> bool {
        self.expires
    }

    /// By what the kernel finds a route that is to be replaced.
    pub(super) fn key(&self) -> impl PartialEq + use<> {
        let of = |kind| self.attributes.get(&kind).cloned();
        // Family, lengths and type of service; table, destination and metric.
        (self.head[..4].to_vec(), self.table(), of(RTA_DST), of(RTA_PRIORITY))
    }

    /// Where it leads to.
    pub(super) fn prefix(&self) -> Prefix {
        let bytes = self.attributes.get(&RTA_DST).map(Vec::as_slice);
        let address = if i32::from(self.head[0]) == libc::AF_INET {
            let octets: [u8; 4] = bytes.and_then(|b| b.try_into().ok()).unwrap_or_default();
            IpAddr::V4(Ipv4Addr::from(octets))
        } else {
            let octets: [u8; 16] = bytes.and_then(|b| b.try_into().ok()).unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        Prefix { address, bits: self.head[1] }
    }

    /// The same with `quickack 1`.
    pub(super) fn quick(&self) -> Self {
        let mut quick = self.clone();
        quick.metrics.insert(RTAX_QUICKACK, 1_u32.to_ne_bytes().to_vec());
        quick
    }

    /// The same to fewer addresses.
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

impl fmt::Display for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = if self.is_of_table_local() { "local" } else { "main" };
        write!(f, "{} of table {table}", self.prefix())
    }
}

impl fmt::Debug for Fib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(self.clone()))
    }
}

/// In the journal: the octets, in hexadecimal.
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
