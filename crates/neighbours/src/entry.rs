//! An entry of the kernel's neighbour table (neighbour(8), `struct ndmsg`).

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;
use uncork_netlink::{Line, attribute, number, push};

use crate::way::{family, read_address};

// linux/rtnetlink.h, linux/neighbour.h
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_INCOMPLETE: u16 = 1;
const NUD_REACHABLE: u16 = 2;
const NUD_STALE: u16 = 4;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
/// `struct ndmsg`.
const HEAD_BYTES: usize = 12;

/// The state of a neighbour entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Its hardware address is known.
    Known([u8; 6]),
    /// Its hardware address is known, but unconfirmed for a while, and the kernel is not probing it.
    Old([u8; 6]),
    /// It has none: the device is not Ethernet.
    Bare,
    /// The kernel is resolving it.
    Sought,
    /// Resolution failed: the neighbour did not answer.
    Failed,
    /// There is no entry.
    Unknown,
}

impl Entry {
    /// Looks up an entry (a single one: Linux 5.0).
    pub(crate) fn look_up(line: &mut Line, hop: (u32, IpAddr)) -> io::Result<Option<Self>> {
        let (device, address) = hop;
        let mut body = vec![family(address), 0, 0, 0];
        body.extend(device.to_ne_bytes());
        body.resize(HEAD_BYTES, 0);
        match address {
            IpAddr::V4(address) => push(&mut body, NDA_DST, &address.octets()),
            IpAddr::V6(address) => push(&mut body, NDA_DST, &address.octets()),
        }
        match line.get(RTM_GETNEIGH, &body) {
            Ok(answer) => Ok(Self::read(&answer).map(|(_, entry)| entry)),
            // No entry; or the device is gone.
            Err(error)
                if [Errno::ENOENT as i32, Errno::ENODEV as i32]
                    .map(Some)
                    .contains(&error.raw_os_error()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a message about an entry: its device and address, and its state. Messages of bridges are of
    /// another kind.
    pub(crate) fn read(body: &[u8]) -> Option<((u32, IpAddr), Self)> {
        let device = number(body, 4)?;
        let state = u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?);
        let attributes = body.get(HEAD_BYTES..)?;
        let address = read_address(*body.first()?, attribute(attributes, NDA_DST)?)?;
        let mac = attribute(attributes, NDA_LLADDR);
        let entry = match mac.map(<[u8; 6]>::try_from) {
            _ if state & NUD_INCOMPLETE != 0 => Self::Sought,
            _ if state & NUD_FAILED != 0 => Self::Failed,
            Some(Ok(mac)) if state & (NUD_REACHABLE | NUD_PERMANENT | NUD_NOARP) != 0 => {
                Self::Known(mac)
            }
            Some(Ok(mac)) if state & NUD_STALE != 0 => Self::Old(mac),
            // NUD_DELAY, NUD_PROBE: the kernel is checking whether the neighbour is still there.
            Some(Ok(mac)) if state != 0 => Self::Known(mac),
            _ if state & NUD_NOARP != 0 => Self::Bare,
            Some(Err(_)) => Self::Bare,
            _ => Self::Unknown,
        };
        Some(((device, address), entry))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use std::net::IpAddr;

    use uncork_netlink::push;

    use super::{Entry, NDA_DST, NDA_LLADDR};

    fn told(family: u8, state: u16, mac: &[u8]) -> Option<((u32, IpAddr), Entry)> {
        let mut body = vec![family, 0, 0, 0, 7, 0, 0, 0];
        body.extend(state.to_ne_bytes());
        body.extend([0, 1]);
        push(&mut body, NDA_DST, &[10, 0, 0, 2]);
        if !mac.is_empty() {
            push(&mut body, NDA_LLADDR, mac);
        }
        Entry::read(&body)
    }

    #[test]
    fn states_say_what_is_to_be_believed() {
        const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
        let (hop, entry) = told(2, 2, &MAC).unwrap();
        assert_eq!((hop, entry), ((7, "10.0.0.2".parse().unwrap()), Entry::Known(MAC)));
        let says = |state, mac: &[u8]| told(2, state, mac).unwrap().1;
        assert_eq!(says(0x80, &MAC), Entry::Known(MAC));
        assert_eq!(says(4, &MAC), Entry::Old(MAC));
        assert_eq!(says(8, &MAC), Entry::Known(MAC));
        assert_eq!(says(1, &[]), Entry::Sought);
        assert_eq!(says(0x20, &MAC), Entry::Failed);
        assert_eq!(says(0x40, &[]), Entry::Bare);
        // InfiniBand's addresses have twenty octets.
        assert_eq!(says(2, &[1; 20]), Entry::Bare);
        assert_eq!(says(0, &[]), Entry::Unknown);
        assert_eq!(told(7, 2, &MAC), None, "a bridge's");
    }
}
