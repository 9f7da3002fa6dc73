//! IP addresses as two words, which are compared, hashed and summed in registers. Octets of an `IpAddr`,
//! put together one by one and read back eight at a time, made the processor wait for its own stores.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What stands before an IPv4 address where it is kept as IPv6 has it (RFC 4291 §2.5.5.2).
const MAPPED: u64 = 0xffff_0000_0000;

/// Where that stands, in the machine's order.
const PREFIX: u64 = (!(u32::MAX as u64)).to_be();

/// An IP address, IPv4 as IPv6 has it. The words are in the machine's order of its octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    front: u64,
    back: u64,
}

impl Address {
    /// The IPv4 address, if it is one.
    #[inline]
    pub(crate) fn as_v4(self) -> Option<Ipv4Addr> {
        let back = u64::from_be(self.back);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the address")]
        let bits = back as u32;
        (self.front == 0 && back & !u64::from(u32::MAX) == MAPPED)
            .then(|| Ipv4Addr::from_bits(bits))
    }

    /// The same of one that is known to be.
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

    /// As it is written.
    pub(crate) fn ip(self) -> IpAddr {
        self.as_v4().map_or_else(|| self.as_v6().into(), IpAddr::from)
    }

    /// To be hashed.
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
        // However it is written, it is one address.
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let plain: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(Address::from(mapped), Address::from(plain));
    }
}
