//! The peers of a process's TCP sockets, from /proc/PID/fd and /proc/PID/net.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Fills in the unknown peers, by descriptor. A socket that is not connected, or that belongs to
/// another network namespace, is left without.
pub(crate) fn fill_in<'a>(pid: i32, sockets: impl Iterator<Item = (i32, &'a mut Option<String>)>) {
    let unknown: Vec<_> = sockets.filter(|(_, peer)| peer.is_none()).collect();
    if unknown.is_empty() {
        return;
    }
    let mut peers = HashMap::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        peers.extend(text.lines().skip(1).filter_map(entry));
    }
    for (fd, peer) in unknown {
        let found = inode(pid, fd).and_then(|inode| peers.get(&inode));
        *peer = found.map(SocketAddr::to_string);
    }
}

/// Returns the inode in the link of a socket, which reads `socket:[INODE]`.
fn inode(pid: i32, fd: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Parses inode and remote address in a line of /proc/PID/net/tcp or tcp6 (proc_net_tcp in the kernel's
/// documentation): slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode.
fn entry(line: &str) -> Option<(u64, SocketAddr)> {
    let mut fields = line.split_ascii_whitespace();
    let remote = address(fields.nth(2)?)?;
    let inode = fields.nth(6)?.parse().ok()?;
    (inode != 0 && remote.port() != 0).then_some((inode, remote))
}

/// Parses `ADDRESS:PORT` in hexadecimal; the address is in 32-bit words of this machine's byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        // An IPv4 peer of an IPv6 socket is kept in the form that the program sees: ::ffff:ADDRESS.
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    #[test]
    fn the_peer_of_a_connection_is_found_and_a_listener_has_none() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut of_stream, mut of_listener) = (None, None);
            let sockets =
                [(stream.as_raw_fd(), &mut of_stream), (listener.as_raw_fd(), &mut of_listener)];
            fill_in(std::process::id().try_into().unwrap(), sockets.into_iter());
            assert_eq!(of_stream, Some(listener.local_addr().unwrap().to_string()));
            assert_eq!(of_listener, None);
        }
    }
}
