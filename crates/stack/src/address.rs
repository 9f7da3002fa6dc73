//! IP addresses as two words, which are compared, hashed and summed in registers. The octets of an `IpAddr`,
//! assembled one by one and read back eight at a time, made the processor wait for its own stores.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefix of an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
const MAPPED: u64 = 0xffff_0000_0000;

/// Mask of that prefix, in the octets' order.
const PREFIX: u64 = (!(u32::MAX as u64)).to_be();

/// An IP address; IPv4 is kept as an IPv4-mapped IPv6 address. The words hold its octets in network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    front: u64,
    back: u64,
}

impl Address {
    /// Returns the IPv4 address, if it is one.
    #[inline]
    pub(crate) fn as_v4(self) -> Option<Ipv4Addr> {
        let back = u64::from_be(self.back);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the address")]
        let bits = back as u32;
        (self.front == 0 && back & !u64::from(u32::MAX) == MAPPED)
            .then(|| Ipv4Addr::from_bits(bits))
    }

    /// Returns the IPv4 address of one that is known to be IPv4.
    #[inline]
    pub(crate) fn low_v4(self) -> Ipv4Addr {
        debug_assert!(!self.is_ipv6());
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the address")]
        let bits = u64::from_be(self.back) as u32;
        Ipv4Addr::from_bits(bits)
    }

    #[inline]
    pub(crate) fn is_ipv6(self) -> bool {
        self.front != 0 || self.back & PREFIX != MAPPED.to_be()
    }

    #[inline]
    pub(crate) fn as_v6(self) -> Ipv6Addr {
        let [front, back] = [self.front, self.back].map(u64::from_be);
        Ipv6Addr::from_bits(u128::from(front) << 64 | u128::from(back))
    }

    /// Returns the address as a standard type, IPv4 unmapped.
    pub(crate) fn ip(self) -> IpAddr {
        self.as_v4().map_or_else(|| self.as_v6().into(), IpAddr::from)
    }

    /// Returns the words for hashing.
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        [self.front, self.back]
    }
}

impl From<Ipv4Addr> for Address {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self { front: 0, back: (MAPPED | u64::from(address.to_bits())).to_be() }
    }
}

impl From<Ipv6Addr> for Address {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        let bits = address.to_bits();
        #[expect(clippy::cast_possible_truncation, reason = "two halves")]
        let (front, back) = ((bits >> 64) as u64, bits as u64);
        Self { front: front.to_be(), back: back.to_be() }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::Address;

    #[test]
    fn an_address_is_what_it_was() {
        for text in ["10.0.0.1", "255.255.255.255", "fd00::1", "::1", "::", "2001:db8::ffff:a00:1"]
        {
            let address: IpAddr = text.parse().unwrap();
            let kept = Address::from(address);
            assert_eq!(kept.ip(), address);
            assert_eq!(kept.is_ipv6(), address.is_ipv6());
        }
        // The IPv4-mapped form is the same address.
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let plain: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(Address::from(mapped), Address::from(plain));
    }
}
