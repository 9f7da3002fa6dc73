//! The kernel's own count of the segments of one TCP connection, asked over netlink (sock_diag).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// Segments with data that arrived on the connection from `peer` to `local`
/// (`tcpi_data_segs_in` of the socket whose own address is `local`).
pub(crate) fn data_segments_in(local: SocketAddr, peer: SocketAddr) -> Result<u32> {
    Ok(tcp_info(local, peer)?.data_segs_in)
}

fn tcp_info(local: SocketAddr, peer: SocketAddr) -> Result<TcpInfo> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .context("opening a sock_diag socket")?;
    let request = request(local, peer);
    sendto(fd.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())
        .context("asking the kernel about a connection")?;
    let mut answer = vec![0; 8192];
    let bytes = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())
        .context("reading the kernel's answer about a connection")?;
    let message = NetlinkMessage::<SockDiagMessage>::deserialize(&answer[..bytes])
        .context("understanding the kernel's answer about a connection")?;
    match message.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => response
            .nlas
            .into_iter()
            .find_map(|nla| if let Nla::TcpInfo(info) = nla { Some(info) } else { None })
            .context("the kernel's answer about a connection has no TCP_INFO"),
        NetlinkPayload::Error(error) => {
            bail!("the kernel does not know the connection {peer} to {local}: {error}")
        }
        _ => bail!("the kernel answered something else about a connection"),
    }
}

fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let socket_id = SocketId {
        source_port: local.port(),
        destination_port: peer.port(),
        source_address: local.ip(),
        destination_address: peer.ip(),
        interface_id: 0,
        // INET_DIAG_NOCOOKIE: any socket with these addresses.
        cookie: [0xff; 8],
    };
    let request = InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all(),
        socket_id,
    };
    debug_assert!(matches!(local.ip(), IpAddr::V4(_)));
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
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
