//! Building a frame in the slot that a driver lends: link, IP and transport headers, data,
//! and the checksum, or what the device needs to complete it.

use uncork_packet::{Capabilities, Checksum, Owner, Segmentation, Transmit};
use uncork_wire::checksum::Sum;
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::tcp::{self, Fields, OptionSet};
use uncork_wire::{Protocol, ipv4, ipv6};

use crate::address::Address;

/// The link-layer header of outgoing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// No header before IP.
    Bare,
    /// An Ethernet header, from one hardware address to another.
    Ethernet { source: Mac, destination: Mac },
}

impl Link {
    /// Writes the link-layer header, and returns its length.
    pub(crate) fn emit(self, frame: &mut [u8], ethertype: EtherType) -> usize {
        match self {
            Self::Bare => 0,
            Self::Ethernet { source, destination } => {
                ethernet::Header { destination, source, ethertype }.emit(frame);
                ethernet::HEADER_BYTES
            }
        }
    }
}

/// Returns the octets of an IP header.
pub(crate) const fn ip_header_bytes(ipv6: bool) -> u32 {
    if ipv6 { 40 } else { 20 }
}

/// The fields of an IP header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) source: Address,
    pub(crate) destination: Address,
    pub(crate) protocol: Protocol,
    /// Traffic class with ECN.
    pub(crate) tos: u8,
    pub(crate) hops: u8,
    /// IPv4 identification of its fragments, if routers may fragment it.
    pub(crate) id: Option<u16>,
    /// IPv6 flow label ([`Secrets::flow_label`](crate::secrets::Secrets::flow_label)); zero if there is no flow.
    pub(crate) flow_label: u32,
}

impl Packet {
    pub(crate) fn new(
        source: impl Into<Address>,
        destination: impl Into<Address>,
        protocol: Protocol,
    ) -> Self {
        let (source, destination) = (source.into(), destination.into());
        Self { source, destination, protocol, tos: 0, hops: ipv4::HOPS, id: None, flow_label: 0 }
    }

    /// Writes link and IP headers in front of `payload_bytes` octets; returns the length of both.
    pub(crate) fn emit(&self, frame: &mut [u8], link: Link, payload_bytes: usize) -> usize {
        let link_bytes = link.emit(frame, self.ethertype());
        link_bytes + self.emit_ip(&mut frame[link_bytes..], payload_bytes)
    }

    fn ethertype(&self) -> EtherType {
        if self.destination.is_ipv6() { EtherType::IPV6 } else { EtherType::IPV4 }
    }

    /// Writes an IP header in front of `payload_bytes` octets; returns its length.
    fn emit_ip(&self, packet: &mut [u8], payload_bytes: usize) -> usize {
        match (self.source.as_v4(), self.destination.as_v4()) {
            (Some(source), Some(destination)) => {
                let total = u16::try_from(ipv4::HEADER_BYTES + payload_bytes).unwrap_or(0);
                let whole = ipv4::Header::whole(self.protocol, source, destination, total);
                let dont_fragment = self.id.is_none();
                let id = self.id.unwrap_or(whole.id);
                let tos = self.tos;
                ipv4::Header { tos, id, dont_fragment, ttl: self.hops, ..whole }.emit(packet);
                ipv4::HEADER_BYTES
            }
            _ => {
                ipv6::Header {
                    traffic_class: self.tos,
                    flow_label: self.flow_label,
                    payload_bytes: u16::try_from(payload_bytes).unwrap_or(0),
                    next_header: self.protocol,
                    hop_limit: self.hops,
                    source: self.source.as_v6(),
                    destination: self.destination.as_v6(),
                }
                .emit(packet);
                ipv6::HEADER_BYTES
            }
        }
    }

    /// Returns the sum of the pseudo-header for `bytes` octets of transport header and data.
    pub(crate) fn pseudo(&self, bytes: usize) -> Sum {
        let mut sum = Sum::default();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match (self.source.as_v4(), self.destination.as_v4()) {
            (Some(source), Some(destination)) => {
                sum.add_pseudo_v4(source, destination, self.protocol.0, bytes);
            }
            _ => {
                let (source, destination) = (self.source.as_v6(), self.destination.as_v6());
                sum.add_pseudo_v6(source, destination, self.protocol.0, bytes);
            }
        }
        sum
    }
}

/// A TCP segment, or a train of segments, to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpFrame<'a> {
    pub(crate) packet: Packet,
    pub(crate) fields: Fields,
    pub(crate) options: &'a OptionSet,
    /// The data, in the two pieces in which it lies in a ring.
    pub(crate) data: (&'a [u8], &'a [u8]),
    /// Data octets of each segment, if this is a train.
    pub(crate) train: Option<u16>,
    pub(crate) owner: Option<Owner>,
}

impl TcpFrame<'_> {
    /// Writes the frame into `slot`, which must have room for it.
    pub(crate) fn emit(&self, slot: &mut [u8], link: Link, device: &Capabilities) -> Transmit {
        let link_bytes = link.emit(slot, self.packet.ethertype());
        self.emit_behind(slot, link_bytes, device)
    }

    /// Writes the frame after a link-layer header of `link_bytes` octets that is already there.
    #[inline(always)]
    pub(crate) fn emit_behind(
        &self,
        slot: &mut [u8],
        link_bytes: usize,
        device: &Capabilities,
    ) -> Transmit {
        let data_bytes = self.data.0.len() + self.data.1.len();
        let tcp_bytes = tcp::HEADER_BYTES + self.options.wire_bytes() + data_bytes;
        let start = link_bytes + self.packet.emit_ip(&mut slot[link_bytes..], tcp_bytes);
        let segment = &mut slot[start..start + tcp_bytes];
        let mut sum = self.packet.pseudo(tcp_bytes);
        let partial = sum.folded();
        let header_bytes = self.fields.emit_summed(self.options, segment, &mut sum);
        let checksum = if device.completes_checksums {
            let (front, back) = segment[header_bytes..].split_at_mut(self.data.0.len());
            front.copy_from_slice(self.data.0);
            back.copy_from_slice(self.data.1);
            put_checksum(segment, partial);
            #[expect(clippy::cast_possible_truncation, reason = "two headers are short")]
            Checksum::Partial { start: start as u16, offset: tcp::CHECKSUM_OFFSET as u16 }
        } else {
            let data = &mut segment[header_bytes..];
            sum.copy(data, self.data.0);
            if !self.data.1.is_empty() {
                sum.copy(&mut data[self.data.0.len()..], self.data.1);
            }
            put_checksum(segment, sum.finish());
            Checksum::Complete
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 64 KiB and some headers")]
        Transmit {
            frame_bytes: (start + tcp_bytes) as u32,
            checksum,
            segmentation: self.train.map(|segment_bytes| Segmentation {
                segment_bytes,
                header_bytes: (start + header_bytes) as u16,
                ipv6: self.packet.destination.is_ipv6(),
                ecn: self.fields.flags.has(tcp::Flags::CWR),
            }),
            owner: self.owner,
        }
    }
}

fn put_checksum(segment: &mut [u8], value: u16) {
    segment[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use uncork_packet::{Capabilities, Checksum, Medium};
    use uncork_wire::checksum::Sum;
    use uncork_wire::link::LinkType;
    use uncork_wire::tcp::{Fields, Flags, OptionSet};
    use uncork_wire::{Protocol, SeqNumber, read_frame};

    use super::{Link, Packet, TcpFrame};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn frame(source: &str, destination: &str, completes: bool) -> (Vec<u8>, Checksum) {
        let device = Capabilities {
            completes_checksums: completes,
            ..Capabilities::plain(Medium::Ip, 1500)
        };
        let packet = Packet::new(ip(source), ip(destination), Protocol::TCP);
        let options = OptionSet { timestamps: Some((1, 2)), ..OptionSet::default() };
        let fields = Fields {
            source_port: 80,
            destination_port: 40_000,
            seq: SeqNumber(7),
            ack: SeqNumber(9),
            flags: Flags::ACK,
            window: 500,
        };
        let mut slot = [0xee; 200];
        let transmit = TcpFrame {
            packet,
            fields,
            options: &options,
            data: (b"odd", b"wrapped"),
            train: None,
            owner: None,
        }
        .emit(&mut slot, Link::Bare, &device);
        (slot[..transmit.frame_bytes as usize].to_vec(), transmit.checksum)
    }

    #[test]
    fn a_frame_is_whole_with_its_checksum_or_as_the_device_wants_it() {
        for (source, destination, ip_bytes) in
            [("10.0.0.1", "10.0.0.2", 20), ("fd00::1", "fd00::2", 40)]
        {
            let (bytes, checksum) = frame(source, destination, false);
            assert_eq!(checksum, Checksum::Complete);
            let segment = read_frame(LinkType::Raw, &bytes, bytes.len()).unwrap();
            assert_eq!((segment.seq, segment.payload_bytes), (SeqNumber(7), 10));
            assert_eq!(&bytes[bytes.len() - 10..], b"oddwrapped");
            let packet =
                Packet::new(segment.source.address, segment.destination.address, Protocol::TCP);
            let mut sum = packet.pseudo(bytes.len() - ip_bytes);
            sum.add(&bytes[ip_bytes..]);
            assert!(sum.is_good());

            // A partial checksum that the device completes gives the same octets.
            let (mut partial, checksum) = frame(source, destination, true);
            let Checksum::Partial { start, offset } = checksum else { panic!("complete") };
            assert_eq!(usize::from(start), ip_bytes);
            let mut sum = Sum::default();
            sum.add(&partial[start.into()..]);
            let at = usize::from(start + offset);
            partial[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
            assert_eq!(partial, bytes);
        }
    }
}
