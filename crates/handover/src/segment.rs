//! Segments that the peer has sent once and will not send again: its FIN, its ACK of ours, or a reset. They are sent in its
//! place, by a packet from this host to itself.
//!
//! Such a packet comes in by the loopback device with its route attached, so no check of its source stops it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use uncork_stack::Snapshot;
use uncork_wire::checksum::Sum;
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4, ipv6};

use crate::error::Error;

/// Octets of TCP's header without options.
const HEADER_BYTES: usize = 20;

/// What the peer has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its FIN, after all data that has come.
    Fin,
    /// Its ACK of our FIN.
    HasOurFin,
    /// Its reset: there is no connection any more.
    Reset,
}

/// Sends this segment in the peer's place.
pub(crate) fn pretend(snapshot: &Snapshot, said: Said) -> Result<(), Error> {
    if snapshot.local.is_ipv4() != snapshot.remote.is_ipv4() {
        return Err(Error::doing("say what the peer has said")(io::ErrorKind::InvalidInput.into()));
    }
    send(snapshot.local, &packet(snapshot, said))
}

/// Sends a segment in the peer's place that the kernel has not received (the TCP header and what follows it): it arrived at
/// another process while the kernel was taking the connection over. It counts as the peer's at `remote`, whatever its ports are.
///
/// # Errors
///
/// [`Error::RawPrivilege`] without CAP_NET_RAW, or what else the kernel says.
pub fn bring(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> Result<(), Error> {
    // Otherwise there would be no IP header, and the caller could choose what stands in its place.
    if segment.len() < HEADER_BYTES || local.is_ipv4() != remote.is_ipv4() {
        return Err(Error::doing("say what is no segment of this connection")(
            io::ErrorKind::InvalidInput.into(),
        ));
    }
    let mut segment = segment.to_vec();
    segment[..2].copy_from_slice(&remote.port().to_be_bytes());
    segment[2..4].copy_from_slice(&local.port().to_be_bytes());
    send(local, &wrapped(remote, local, segment))
}

/// Sends a packet to this host itself.
fn send(local: SocketAddr, packet: &[u8]) -> Result<(), Error> {
    let v4 = local.is_ipv4();
    let domain = if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let raw = socket(domain, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).map_err(
        |error| match error {
            Errno::EPERM => Error::RawPrivilege,
            error => Error::doing("open a raw socket")(error.into()),
        },
    )?;
    // raw(7): the port of a destination means nothing; in IPv6 it would be a protocol.
    let mut to = local;
    to.set_port(0);
    sendto(raw.as_raw_fd(), packet, &SockaddrStorage::from(to), MsgFlags::empty())
        .map(drop)
        .map_err(|error| Error::doing("say what the peer has said")(error.into()))
}

fn packet(snapshot: &Snapshot, said: Said) -> Vec<u8> {
    let shift = snapshot.window_shifts.map_or(0, |(send, _)| send);
    let flags = match said {
        Said::Fin => Flags::ACK.with(Flags::FIN),
        Said::HasOurFin => Flags::ACK,
        Said::Reset => Flags::ACK.with(Flags::RST),
    };
    // Our FIN follows what was sent.
    let acknowledges = SeqNumber(snapshot.send_first) + u32::from(said == Said::HasOurFin);
    let fields = Fields {
        source_port: snapshot.remote.port(),
        destination_port: snapshot.local.port(),
        seq: SeqNumber(snapshot.receive_first) + snapshot.unread_bytes,
        ack: acknowledges,
        flags,
        // The kernel believes it: the window that the peer has announced last.
        window: u16::try_from(snapshot.send_window_bytes >> shift).unwrap_or(u16::MAX),
    };
    let mut segment = vec![0; HEADER_BYTES];
    let bytes = fields.emit(&OptionSet::default(), &mut segment);
    segment.truncate(bytes);
    wrapped(snapshot.remote, snapshot.local, segment)
}

/// Makes a packet with this segment, and fills in the checksum.
fn wrapped(from: SocketAddr, to: SocketAddr, mut segment: Vec<u8>) -> Vec<u8> {
    let bytes = segment.len();
    let mut packet = header(from, to, bytes);
    segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
    let mut sum = Sum::default();
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            sum.add_pseudo_v4(from, to, Protocol::TCP.0, length);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            sum.add_pseudo_v6(from, to, Protocol::TCP.0, length);
        }
        _ => {}
    }
    sum.add(&segment);
    segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
    packet.extend(segment);
    packet
}

fn header(from: SocketAddr, to: SocketAddr, payload_bytes: usize) -> Vec<u8> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0; ipv4::HEADER_BYTES];
            let total = u16::try_from(ipv4::HEADER_BYTES + payload_bytes).unwrap_or(u16::MAX);
            ipv4::Header::whole(Protocol::TCP, from, to, total).emit(&mut header);
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0; ipv6::HEADER_BYTES];
            ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: u16::try_from(payload_bytes).unwrap_or(u16::MAX),
                next_header: Protocol::TCP,
                hop_limit: 64,
                source,
                destination,
            }
            .emit(&mut header);
            header
        }
        // Both ends of a connection are of one version.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_no_header_of_its_own_is_not_sent() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (v4, v6) = (end("10.0.0.1:80"), end("[::ffff:10.0.0.2]:17664"));
        for (local, remote, bytes) in [(v4, v6, 40), (v6, v4, 40), (v4, v4, HEADER_BYTES - 1)] {
            let error = bring(local, remote, &vec![0; bytes]).unwrap_err().to_string();
            assert!(error.starts_with("cannot say what is no segment"), "{error}");
        }
    }

    #[test]
    fn a_segment_is_the_peer_s_whatever_it_says_of_ports() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let packet = wrapped(end("10.0.0.2:4000"), end("10.0.0.1:80"), vec![0; HEADER_BYTES]);
        assert_eq!(packet[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        let mut sum = Sum::default();
        sum.add_pseudo_v4([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), Protocol::TCP.0, 20);
        sum.add(&packet[20..]);
        assert_eq!(sum.finish(), 0, "the checksum is filled in");
    }
}
