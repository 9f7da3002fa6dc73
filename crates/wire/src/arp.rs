//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::bytes::{array, be16};
use crate::ethernet::Mac;
use crate::{Malformed, Unread};

/// Octets of a packet.
pub const PACKET_BYTES: usize = 28;

/// Hardware type Ethernet, protocol IPv4, and the lengths of their addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// The operation of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Asks for the hardware address of the target.
    Request,
    /// Tells the hardware address of the sender.
    Reply,
}

/// An ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    /// IPv4 address of the sender; 0.0.0.0 in a probe (RFC 5227).
    pub sender: Ipv4Addr,
    /// Hardware address of the target; meaningless in a request.
    pub target_mac: Mac,
    /// IPv4 address that is asked for; in a reply, that of the requester.
    pub target: Ipv4Addr,
}

impl Packet {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`], or [`Malformed::Arp`] if it is for other address types or is
    /// neither request nor reply.
    pub fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let kind: [u8; 6] = array(bytes, 0)?;
        let operation = match be16(bytes, 6)? {
            _ if kind != ETHERNET_IPV4 => return Err(Unread::Malformed(Malformed::Arp)),
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Unread::Malformed(Malformed::Arp)),
        };
        Ok(Self {
            operation,
            sender_mac: Mac(array(bytes, 8)?),
            sender: array::<4>(bytes, 14)?.into(),
            target_mac: Mac(array(bytes, 18)?),
            target: array::<4>(bytes, 24)?.into(),
        })
    }

    /// Writes the packet into the first [`PACKET_BYTES`] octets.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..6].copy_from_slice(&ETHERNET_IPV4);
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[6..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target.octets());
    }
}
