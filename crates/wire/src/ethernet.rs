//! The Ethernet II header.

use std::fmt;

use crate::Unread;
use crate::bytes::{array, be16};

/// Octets of an Ethernet header without a VLAN tag.
pub const HEADER_BYTES: usize = 14;

/// What a frame carries (IEEE's EtherType registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
}

/// A hardware (MAC) address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether it names one station: neither a group address nor all zeros.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The Ethernet header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// Type of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Reads the header, and returns it with the payload. VLAN tags are not skipped: a tagged frame
    /// has the EtherType of its tag.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`].
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), Unread> {
        let header = Self {
            destination: Mac(array(frame, 0)?),
            source: Mac(array(frame, 6)?),
            ethertype: EtherType(be16(frame, 12)?),
        };
        Ok((header, &frame[HEADER_BYTES..]))
    }

    /// Writes the header into the first [`HEADER_BYTES`] octets.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        let frame = &mut frame[..HEADER_BYTES];
        frame[..6].copy_from_slice(&self.destination.0);
        frame[6..12].copy_from_slice(&self.source.0);
        frame[12..14].copy_from_slice(&self.ethertype.0.to_be_bytes());
    }
}
