//! Socket addresses as octets (`struct sockaddr_in` and `sockaddr_in6`), and those in the flags.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use uncork_stack::Cidr;

use crate::table::Address;

/// Lengths of the two structures.
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;

/// Parses `address=IP/PREFIX`, separated by commas.
pub(crate) fn from_flags(flags: &str) -> Result<Vec<Cidr>, String> {
    let flags = flags.split(',').filter(|flag| !flag.is_empty());
    let addresses = flags.map(|flag| {
        let address = flag.strip_prefix("address=").and_then(|text| text.parse().ok());
        address.ok_or_else(|| format!("--so_flags: `{flag}` is not address=IP/PREFIX"))
    });
    let addresses: Result<Vec<Cidr>, String> = addresses.collect();
    match addresses {
        Ok(none) if none.is_empty() => {
            Err("--so_flags=address=IP/PREFIX must say which address is the stack's".to_owned())
        }
        result => result,
    }
}

/// Reads an address that the program passes; `None` if its family is AF_UNSPEC.
pub(crate) fn read(bytes: &[u8]) -> Result<Address, Errno> {
    let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family));
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match family.map(i32::from).ok_or(Errno::EINVAL)? {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET => {
            let bytes = bytes.first_chunk::<V4_BYTES>().ok_or(Errno::EINVAL)?;
            let ip = [bytes[4], bytes[5], bytes[6], bytes[7]];
            Ok(Some(SocketAddr::new(ip.into(), port(bytes))))
        }
        libc::AF_INET6 => {
            let bytes = bytes.first_chunk::<V6_BYTES>().ok_or(Errno::EINVAL)?;
            let ip: [u8; 16] = *bytes[8..].first_chunk().ok_or(Errno::EINVAL)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(bytes))))
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Returns an address as the program reads it.
pub(crate) fn write(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2 and 10")]
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.resize(V4_BYTES, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.resize(V6_BYTES, 0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{from_flags, read, write};

    #[test]
    fn what_is_told_is_read_again() {
        for text in ["192.0.2.1:8080", "[fd3d::1]:80"] {
            let address = text.parse().unwrap();
            assert_eq!(read(&write(address)), Ok(Some(address)));
        }
        assert_eq!(read(&[0; 16]), Ok(None));
    }

    #[test]
    fn flags_must_name_an_address() {
        assert_eq!(from_flags("address=10.0.0.1/8,address=fd00::1/64").unwrap().len(), 2);
        assert!(from_flags("").is_err());
        assert!(from_flags("addres=10.0.0.1/8").unwrap_err().contains("`addres=10.0.0.1/8`"));
    }
}
