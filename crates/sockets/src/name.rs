//! Names of ends, as struct sockaddr has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;

/// Returns an end as a socket of its family tells it: IPv4 in IPv6 is mapped (RFC 4291 §2.5.5.2).
#[must_use]
pub fn octets(end: SocketAddr, ipv6: bool) -> Vec<u8> {
    let family = |number: i32| u16::try_from(number).unwrap_or(0).to_ne_bytes();
    let port = end.port().to_be_bytes();
    match (end.ip(), ipv6) {
        (IpAddr::V4(ip), false) => {
            [&family(libc::AF_INET)[..], &port, &ip.octets(), &[0; 8]].concat()
        }
        (ip, _) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            [&family(libc::AF_INET6)[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// Returns the end that a struct sockaddr names, IPv4 in IPv6 as IPv4.
///
/// # Errors
///
/// EINVAL if it is too short, EAFNOSUPPORT if it is of another family.
pub fn read(octets: &[u8]) -> Result<SocketAddr, Errno> {
    let family = octets.first_chunk().ok_or(Errno::EINVAL)?;
    let port = octets.get(2..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let ip = octets.get(4..).and_then(|rest| rest.first_chunk::<4>());
            Ok(SocketAddr::new(Ipv4Addr::from(*ip.ok_or(Errno::EINVAL)?).into(), port))
        }
        libc::AF_INET6 => {
            let ip = octets.get(8..).and_then(|rest| rest.first_chunk::<16>());
            let ip = Ipv6Addr::from(*ip.ok_or(Errno::EINVAL)?);
            Ok(SocketAddr::new(IpAddr::V6(ip).to_canonical(), port))
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_again() {
        for end in ["10.0.0.1:80", "[2001:db8::1]:443"] {
            let end: SocketAddr = end.parse().unwrap();
            assert_eq!(read(&octets(end, end.is_ipv6())), Ok(end));
            assert_eq!(read(&octets(end, true)), Ok(end));
        }
        assert_eq!(read(&[0; 16]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(read(&[2, 0, 0]), Err(Errno::EINVAL));
    }
}
