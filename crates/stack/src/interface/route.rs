//! Networks and the routes to them.

use std::net::IpAddr;
use std::str::FromStr;

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl Cidr {
    /// Returns whether an address is in this network.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(network), IpAddr::V4(other)) => {
                let differs = u32::from(network) ^ u32::from(other);
                self.prefix == 0 || differs >> (32 - u32::from(self.prefix.min(32))) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(other)) => {
                let differs = u128::from(network) ^ u128::from(other);
                self.prefix == 0 || differs >> (128 - u32::from(self.prefix.min(128))) == 0
            }
            _ => false,
        }
    }
}

/// The error for text that is not of the form `ADDRESS/PREFIX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address with a prefix length, such as 10.0.0.1/24 or fd00::1/64")]
pub struct NotCidr;

impl FromStr for Cidr {
    type Err = NotCidr;

    fn from_str(text: &str) -> Result<Self, NotCidr> {
        let (address, prefix) = text.split_once('/').ok_or(NotCidr)?;
        let address: IpAddr = address.parse().map_err(|_| NotCidr)?;
        let prefix = prefix.parse().map_err(|_| NotCidr)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix <= most { Ok(Self { address, prefix }) } else { Err(NotCidr) }
    }
}

/// A route to a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The network; with a prefix length of zero, the default route.
    pub destination: Cidr,
    /// The router on the link; none if the network is on the link itself.
    pub gateway: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn a_network_has_what_shares_its_prefix() {
        let network: Cidr = "10.1.2.3/20".parse().unwrap();
        assert!(network.contains("10.1.15.255".parse().unwrap()));
        assert!(!network.contains("10.1.16.0".parse().unwrap()));
        assert!(!network.contains("fd00::1".parse().unwrap()));
        let all: Cidr = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()));
        assert!("10.0.0.1/33".parse::<Cidr>().is_err() && "10.0.0.1".parse::<Cidr>().is_err());
    }
}
