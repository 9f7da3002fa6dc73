//! The constants that the programs are loaded with, and their results: `settings.h`, octet by
//! octet.

use std::net::IpAddr;
use std::path::PathBuf;

use super::cure::{Cure, LONGEST_NAME_BYTES};

/// `struct settings`.
pub(super) const BYTES: usize = 168;
/// `struct outcome`: six numbers.
#[cfg(test)]
pub(super) const OUTCOME_BYTES: usize = 48;

/// Selects sockets; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Sockets of this process and of all its descendants.
    pub pid: Option<u32>,
    /// Sockets with this port at either end.
    pub port: Option<u16>,
    /// Sockets whose peer has one of these addresses: the first, and the length of the prefix.
    pub peer: Option<(IpAddr, u8)>,
    /// Sockets of the network namespace with this cookie (SO_NETNS_COOKIE).
    pub netns_cookie: Option<u64>,
    /// Sockets created in this cgroup, or below it: its directory and its id.
    pub cgroup: Option<(PathBuf, u64)>,
    /// Sockets whose route leads over the device with this index. Indices are a network namespace's
    /// own: give that, too.
    pub device: Option<u32>,
    /// Only where no tighter limit is set: of limits, the smaller stays.
    pub looser_only: bool,
}

/// Results for an option, as numbers of sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Set, or restored.
    pub set: u64,
    /// It had the value already, or a tighter one that stays.
    pub already: u64,
    /// Claimed by another entry; when undoing: changed by somebody since.
    pub others: u64,
    /// Refused by the kernel.
    pub refused: u64,
    /// Left alone, because the kernel would not accept the old value again.
    pub unrestorable: u64,
    /// The errno of the last refusal.
    pub errno: i32,
}

/// Returns `struct settings`, to replace the object's zeros.
pub(super) fn bytes(entry: u32, cures: &[Cure], scope: &Scope, pid_namespace: u32) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &scope.netns_cookie.unwrap_or(0).to_ne_bytes());
    put(8, &scope.cgroup.as_ref().map_or(0, |(_, id)| *id).to_ne_bytes());
    put(16, &entry.to_ne_bytes());
    let options = cures.iter().fold(0_u32, |bits, cure| bits | 1 << cure.index());
    put(20, &options.to_ne_bytes());
    for cure in cures {
        put(24 + cure.index() * LONGEST_NAME_BYTES, &cure.value());
    }
    if let Some((address, bits)) = scope.peer {
        let (octets, mask) = as_ipv6(address, bits);
        put(120, &octets);
        put(136, &mask);
    }
    put(152, &scope.port.unwrap_or(0).to_ne_bytes());
    put(154, &[u8::from(scope.pid.is_some()), u8::from(scope.looser_only)]);
    put(156, &scope.pid.unwrap_or(0).to_ne_bytes());
    put(160, &pid_namespace.to_ne_bytes());
    put(164, &scope.device.unwrap_or(0).to_ne_bytes());
    bytes
}

/// Returns an address in the form of IPv6 sockets (IPv4 as `::ffff:10.0.0.1`), and its prefix's mask.
fn as_ipv6(address: IpAddr, bits: u8) -> ([u8; 16], [u8; 16]) {
    let (octets, bits) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), u32::from(bits) + 96),
        IpAddr::V6(address) => (address.octets(), u32::from(bits)),
    };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (octets, mask.to_be_bytes())
}

impl Outcome {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let word = bytes.get(at * 8..at * 8 + 8).and_then(|word| word.try_into().ok());
            u64::from_ne_bytes(word.unwrap_or_default())
        };
        Self {
            set: word(0),
            already: word(1),
            others: word(2),
            refused: word(3),
            unrestorable: word(4),
            errno: i32::try_from(word(5).cast_signed().unsigned_abs()).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_range_is_one_of_mapped_addresses() {
        let (octets, mask) = as_ipv6("10.0.0.0".parse().unwrap(), 8);
        assert_eq!(octets[10..], [0xff, 0xff, 10, 0, 0, 0]);
        assert_eq!(mask[10..], [0xff, 0xff, 0xff, 0, 0, 0]);
        assert_eq!(as_ipv6("::".parse().unwrap(), 0).1, [0; 16]);
        assert_eq!(as_ipv6("::1".parse().unwrap(), 128).1, [0xff; 16]);
    }
}
