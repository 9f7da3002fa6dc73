//! A device's own hardware address, which an administrator may change, and which a bridge changes by itself
//! (`struct ifinfomsg`, rtnetlink(7)).

use std::io;

use uncork_netlink::{Line, attribute, number};

// linux/rtnetlink.h, linux/if_link.h
const RTM_GETLINK: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
/// `struct ifinfomsg`.
const HEAD_BYTES: usize = 16;
const AF_UNSPEC: u8 = 0;

/// A device's index and its hardware address.
pub(crate) type Address = (u32, [u8; 6]);

/// Reads a message about a device. Messages of bridges about their ports are of another kind.
pub(crate) fn read(body: &[u8]) -> Option<Address> {
    let device = number(body, 4).filter(|_| body.first() == Some(&AF_UNSPEC))?;
    let mac = attribute(body.get(HEAD_BYTES..)?, IFLA_ADDRESS)?;
    Some((device, mac.try_into().ok()?))
}

/// Returns the addresses of all devices.
pub(crate) fn all(line: &mut Line) -> io::Result<Vec<Address>> {
    let told = line.dump(RTM_GETLINK, &[0; HEAD_BYTES])?;
    Ok(told.iter().filter_map(|body| read(body)).collect())
}

#[cfg(test)]
mod tests {
    use uncork_netlink::push;

    use super::{HEAD_BYTES, IFLA_ADDRESS, read};

    #[test]
    fn an_address_is_a_device_s_own_and_has_six_octets() {
        let told = |family: u8, mac: &[u8]| {
            let mut body = vec![family, 0, 1, 0, 7, 0, 0, 0];
            body.resize(HEAD_BYTES, 0);
            push(&mut body, IFLA_ADDRESS, mac);
            read(&body)
        };
        assert_eq!(told(0, &[2, 0, 0, 0, 0, 1]), Some((7, [2, 0, 0, 0, 0, 1])));
        // Of a port of a bridge (AF_BRIDGE); of IPv4 over IPv4.
        assert_eq!(told(7, &[2, 0, 0, 0, 0, 1]), None);
        assert_eq!(told(0, &[10, 0, 0, 1]), None);
        assert_eq!(read(&[0; 5]), None);
    }
}
