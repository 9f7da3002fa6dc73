//! The scope of a change: which connections are meant.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The bits that IPv4 addresses have in common when mapped into IPv6.
const MAPPED_BITS: u8 = 96;

/// A range of addresses: `10.0.0.0/8`, `2001:db8::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// The length of the prefix in bits.
    pub bits: u8,
}

impl Prefix {
    /// Returns whether all addresses of `other` are in this one.
    #[must_use]
    pub fn holds(&self, other: Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && other.bits >= self.bits
            && masked(other.address, self.bits) == masked(self.address, self.bits)
    }

    /// Returns whether any address is in both.
    #[must_use]
    pub fn meets(&self, other: Self) -> bool {
        self.holds(other) || other.holds(*self)
    }

    /// Returns IPv4 addresses as mapped in IPv6 sockets (`::ffff:10.0.0.1`, RFC 4291 §2.5.5.2) as
    /// IPv4: packets to them are, and so are the routes.
    fn canonical(self) -> Self {
        match self.address.to_canonical() {
            address @ IpAddr::V4(_) if self.address.is_ipv6() && self.bits >= MAPPED_BITS => {
                Self { address, bits: self.bits - MAPPED_BITS }
            }
            _ => self,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let wrong = || format!("{text:?} is no address, nor a range of them such as 10.0.0.0/8");
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        if masked(address, bits) != address {
            return Err(format!(
                "{text:?} has bits beyond its length: {}/{bits} is meant?",
                masked(address, bits)
            ));
        }
        Ok(Self { address, bits }.canonical())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_addresses_are_read_and_compared() {
        let of = |text: &str| text.parse::<Prefix>();
        assert_eq!(of("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert!(of("0.0.0.0/0").unwrap().holds(of("10.0.0.0/8").unwrap()));
        assert!(of("10.0.0.0/8").unwrap().holds(of("10.9.0.0/16").unwrap()));
        assert!(!of("10.9.0.0/16").unwrap().holds(of("10.0.0.0/8").unwrap()));
        assert!(!of("0.0.0.0/0").unwrap().holds(of("::/0").unwrap()));
        assert!(of("2001:db8::/32").unwrap().holds(of("2001:db8::1").unwrap()));
        assert!(of("10.0.0.0/8").unwrap().meets(of("10.9.0.0/16").unwrap()));
        assert!(of("10.9.0.0/16").unwrap().meets(of("10.0.0.0/8").unwrap()));
        assert!(!of("10.9.0.0/16").unwrap().meets(of("10.8.0.0/16").unwrap()));
        for wrong in ["10.0.0.0/33", "ten", "10.0.0.0/", "::1/129", "10.0.0.1/8"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
    #[test]
    fn ipv4_written_as_ipv6_is_ipv4() {
        let shown = |text: &str| text.parse::<Prefix>().unwrap().to_string();
        assert_eq!(shown("::ffff:10.0.0.1"), "10.0.0.1/32");
        assert_eq!(shown("::ffff:a00:0/104"), "10.0.0.0/8");
        assert_eq!(shown("::ffff:0:0/96"), "0.0.0.0/0");
        // Some of these addresses are not IPv4.
        assert_eq!(shown("::/0"), "::/0");
        assert_eq!(shown("::/80"), "::/80");
    }
}
