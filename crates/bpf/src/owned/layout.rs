//! Keys and values of the filters' maps, in their C layout.

use std::net::{IpAddr, SocketAddr};

use super::{Engine, Protocol, Seat, Settings, Sharing, Whence};

/// Returns an address as the programs see it: IPv4 addresses are mapped into IPv6. An unspecified
/// one, which is to be all zeros in both families, is left out by the caller.
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

/// `struct entered` of `owned/maps.h`.
pub(super) fn entered(engine: u32, whence: Whence) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&engine.to_ne_bytes());
    value[4..].copy_from_slice(&whence.device().to_ne_bytes());
    value
}

/// `struct settings` of `owned/packet.h`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub(super) settings: Settings,
    pub(super) marks: bool,
    pub(super) engine: Engine,
    /// Seed of the hash that distributes connections.
    pub(super) seed: u32,
    pub(super) seat: Option<Seat>,
}

impl Constants {
    /// Returns the constants of the only engine, which is in no group.
    pub(super) fn new(settings: Settings, seed: u32) -> Self {
        Self { settings, marks: false, engine: Engine::ONLY, seed, seat: None }
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        let mut values = [0; 16];
        let switches = [self.settings.ethernet, self.settings.neighbours, self.marks];
        values[..3].copy_from_slice(&switches.map(u8::from));
        values[4..8].copy_from_slice(&self.engine.0.get().to_ne_bytes());
        values[8..12].copy_from_slice(&self.seed.to_ne_bytes());
        let seat = self.seat.map_or(0, |seat| seat.0.get());
        values[12..].copy_from_slice(&seat.to_ne_bytes());
        values
    }
}

/// `struct seat_key` of `owned/group.h`.
pub(super) fn seat_key(device: i32, engine: Engine) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&device.to_ne_bytes());
    key[4..].copy_from_slice(&engine.0.get().to_ne_bytes());
    key
}

/// `struct seat` of `owned/group.h`, before any wrong guess.
pub(super) fn seat_value(seat: Seat, place: u32) -> [u8; 12] {
    let mut value = [0; 12];
    value[..4].copy_from_slice(&seat.0.get().to_ne_bytes());
    value[4..8].copy_from_slice(&place.to_ne_bytes());
    value
}

/// `struct members` of `owned/maps.h`; `None` if there are too many engines.
pub(super) fn members(
    whence: Whence,
    engines: &[Engine],
    sharing: Sharing,
) -> Option<[u8; 12 + 4 * Engine::MOST]> {
    let mut value = [0; 12 + 4 * Engine::MOST];
    let count = u32::try_from(engines.len()).ok().filter(|_| engines.len() <= Engine::MOST)?;
    let numbers = [count, sharing as u32, whence.device()];
    let numbers = numbers.into_iter().chain(engines.iter().map(|engine| engine.0.get()));
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
        let of = |engines: &[Engine]| members(Whence::Anywhere, engines, Sharing::Alone);
        assert!(of(&[Engine::ONLY; Engine::MOST]).is_some());
        assert!(of(&[Engine::ONLY; Engine::MOST + 1]).is_none());
    }

    #[test]
    fn the_device_stands_between_what_is_to_be_expected_and_the_engines() {
        let value = members(Whence::Device(7), &[Engine::ONLY], Sharing::Shared).unwrap();
        let words = value.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        assert_eq!(words.take(5).collect::<Vec<_>>(), [1, 1, 7, 1, 0]);
    }
}
