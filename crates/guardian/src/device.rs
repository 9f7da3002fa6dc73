//! Devices that a stack may use, as the guardian found them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An address of this host on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of its network's prefix, in bits.
    pub prefix: u8,
}

/// An Ethernet device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its index.
    pub index: i32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, in octets.
    pub mtu: u16,
    /// The addresses that the kernel has on it.
    pub addresses: Vec<Address>,
}
