//! Names of unsupported link types, for the error message.

use std::fmt;

/// The supported types ([`uncork_wire::link::LinkType`]), as tcpdump names them.
pub(crate) const READ: &str =
    "Ethernet, raw IP, Linux cooked (SLL and SLL2), loopback (null, loop)";

/// An unsupported link type, by its number in the registry of tcpdump.org.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownLink(pub i32);

/// The types that users are most likely to encounter.
const NAMES: [(i32, &str); 16] = [
    (9, "PPP"),
    (105, "802.11"),
    (127, "802.11 with radiotap"),
    (147, "a user's own"),
    (187, "Bluetooth HCI"),
    (189, "USB"),
    (195, "802.15.4"),
    (201, "Bluetooth HCI"),
    (220, "USB"),
    (227, "CAN"),
    (239, "netfilter log"),
    (249, "USB"),
    (251, "Bluetooth LE"),
    (252, "Wireshark's exported PDUs"),
    (253, "netlink"),
    (271, "vsock"),
];

impl fmt::Display for UnknownLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}
