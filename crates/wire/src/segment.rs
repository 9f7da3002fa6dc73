//! A TCP segment, as far as its headers describe it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::ip::Packet;
use crate::link::{self, LinkType};
use crate::tcp::{Flags, Header, TcpOption};
use crate::{SeqNumber, Unread};

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// IP address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address: address.ip(), port: address.port() }
    }
}

/// The headers of one segment. With segmentation offload it may stand for many on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Sender of the segment.
    pub source: Endpoint,
    /// Receiver of the segment.
    pub destination: Endpoint,
    /// Sequence number of the first octet (SEG.SEQ).
    pub seq: SeqNumber,
    /// Acknowledgment number, if the ACK bit is set (SEG.ACK).
    pub ack: Option<SeqNumber>,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire, not scaled (SEG.WND).
    pub window: u16,
    /// Data, in octets; SYN and FIN not counted (SEG.LEN counts them).
    pub payload_bytes: u32,
    /// Maximum segment size that a SYN announces, in octets.
    pub mss: Option<u16>,
    /// Window scale shift that a SYN announces.
    pub window_scale: Option<u8>,
    /// Timestamp value and echo reply (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// First SACK block: left and right edge.
    pub sack: Option<(SeqNumber, SeqNumber)>,
    /// Whether a SYN offers SACK.
    pub sack_permitted: bool,
    /// Whether a router marked congestion on the way.
    pub congestion_experienced: bool,
    /// Whether an option had an impossible length; it and those after it were not read.
    pub option_lies: bool,
}

impl Segment {
    /// Returns the sequence number after the last one that the segment occupies, counting data, SYN and FIN.
    #[must_use]
    pub fn seq_end(&self) -> SeqNumber {
        let syn = u32::from(self.flags.has(Flags::SYN));
        let fin = u32::from(self.flags.has(Flags::FIN));
        self.seq + self.payload_bytes + syn + fin
    }
}

/// Reads the segment in a frame that was `wire_bytes` long before the capture cut it.
///
/// # Errors
///
/// [`Unread`] says whether the frame carries something else, is cut short, or is malformed.
pub fn read_frame(link: LinkType, frame: &[u8], wire_bytes: usize) -> Result<Segment, Unread> {
    let bytes = link::strip(link, frame)?;
    let link_bytes = frame.len() - bytes.len();
    let packet = Packet::read(bytes, wire_bytes.saturating_sub(link_bytes))?;
    let header = Header::read(packet.transport, packet.transport_bytes)?;
    let payload_bytes = packet.transport_bytes - header.header_bytes();
    let mut segment = Segment {
        source: Endpoint { address: packet.source, port: header.source_port() },
        destination: Endpoint { address: packet.destination, port: header.destination_port() },
        seq: header.seq(),
        ack: header.ack(),
        flags: header.flags(),
        window: header.window(),
        payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
        mss: None,
        window_scale: None,
        timestamps: None,
        sack: None,
        sack_permitted: false,
        congestion_experienced: packet.congestion_experienced,
        option_lies: false,
    };
    for option in header.options() {
        match option {
            Ok(option) => segment.note(option),
            Err(_) => segment.option_lies = true,
        }
    }
    Ok(segment)
}

impl Segment {
    fn note(&mut self, option: TcpOption) {
        let syn = self.flags.has(Flags::SYN);
        match option {
            TcpOption::Mss(octets) if syn => self.mss = Some(octets),
            // A shift above 14 means 14 (RFC 7323 §2.3).
            TcpOption::WindowScale(shift) if syn => self.window_scale = Some(shift.min(14)),
            TcpOption::SackPermitted if syn => self.sack_permitted = true,
            TcpOption::Sack(left, right) => self.sack = Some((left, right)),
            TcpOption::Timestamps(value, echo) => self.timestamps = Some((value, echo)),
            _ => {}
        }
    }
}
