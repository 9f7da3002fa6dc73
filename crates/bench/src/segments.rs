//! The kernel's own count of the segments of one TCP connection, asked over netlink (sock_diag).

use std::net::SocketAddr;

use anyhow::{Context, Result};
use uncork_sockdiag::{Name, SockDiag};

/// Returns the segments with data that arrived on the connection from `peer` to `local`
/// (`tcpi_data_segs_in` of the socket whose own address is `local`).
pub(crate) fn data_segments_in(local: SocketAddr, peer: SocketAddr) -> Result<u32> {
    let mut kernel = SockDiag::open().context("opening a sock_diag socket")?;
    let answer = kernel
        .connection(&Name::of(local, peer))
        .context("asking the kernel about a connection")?
        .with_context(|| format!("the kernel does not know the connection {peer} to {local}"))?;
    Ok(answer.info.data_segs_in)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn each_write_with_nodelay_is_one_segment() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_nodelay(true).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        assert_eq!(data_segments_in(address, peer).unwrap(), 0);
        for _ in 0..7 {
            client.write_all(b"x").unwrap();
        }
        server.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(data_segments_in(address, peer).unwrap(), 7);
    }

    #[test]
    fn an_unknown_connection_is_an_error() {
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert!(data_segments_in(nobody, nobody).is_err());
    }
}
