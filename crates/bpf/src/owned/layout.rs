//! Keys and values of the filters' maps, as C has laid them out.

use std::net::{IpAddr, SocketAddr};

use super::{Engine, Protocol, Settings, Sharing};

/// An address as the programs see it: IPv4's are mapped into IPv6, and what is unspecified is all
/// zeros in both.
pub(super) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `struct listener` of `owned/maps.h`.
pub(super) fn port_key(protocol: Protocol, local: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    if !local.ip().is_unspecified() {
        key[..16].copy_from_slice(&mapped(local.ip()));
    }
    key[16..18].copy_from_slice(&local.port().to_be_bytes());
    key[18] = protocol.number();
    key
}

/// `struct standing` of `owned/maps.h`.
pub(super) fn standing_key(protocol: Protocol, local: SocketAddr, engine: Engine) -> [u8; 24] {
    let mut key = [0; 24];
    key[..20].copy_from_slice(&port_key(protocol, local));
    key[20..].copy_from_slice(&engine.0.get().to_ne_bytes());
    key
}

/// `struct connection` of `owned/maps.h`.
pub(super) fn connection_key(
    protocol: Protocol,
    local: SocketAddr,
    remote: SocketAddr,
) -> [u8; 40] {
    let mut key = [0; 40];
    key[..16].copy_from_slice(&mapped(local.ip()));
    key[16..32].copy_from_slice(&mapped(remote.ip()));
    key[32..34].copy_from_slice(&local.port().to_be_bytes());
    key[34..36].copy_from_slice(&remote.port().to_be_bytes());
    key[36] = protocol.number();
    key
}

/// `struct settings` of `owned/packet.h`.
pub(super) fn constants(settings: Settings, engine: Engine, seed: u32, marks: bool) -> [u8; 12] {
    let mut values = [0; 12];
    let switches = [settings.ethernet, settings.neighbours, marks];
    values[..3].copy_from_slice(&switches.map(u8::from));
    values[4..8].copy_from_slice(&engine.0.get().to_ne_bytes());
    values[8..].copy_from_slice(&seed.to_ne_bytes());
    values
}

/// `struct members` of `owned/maps.h`; nothing if they are too many.
pub(super) fn members(engines: &[Engine], sharing: Sharing) -> Option<[u8; 8 + 4 * Engine::MOST]> {
    let mut value = [0; 8 + 4 * Engine::MOST];
    let count = u32::try_from(engines.len()).ok().filter(|_| engines.len() <= Engine::MOST)?;
    let numbers =
        [count, sharing as u32].into_iter().chain(engines.iter().map(|engine| engine.0.get()));
    for (place, number) in value.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_the_same_in_both_versions() {
        let any = |address: &str| port_key(Protocol::Tcp, address.parse().unwrap());
        assert_eq!(any("0.0.0.0:80"), any("[::]:80"));
        assert_ne!(any("10.0.0.1:80"), any("0.0.0.0:80"));
    }

    #[test]
    fn a_port_has_no_more_engines_than_the_kernel_looks_at() {
        assert!(members(&[Engine::ONLY; Engine::MOST], Sharing::Alone).is_some());
        assert!(members(&[Engine::ONLY; Engine::MOST + 1], Sharing::Alone).is_none());
    }
}
