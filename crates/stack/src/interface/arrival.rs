//! Parsing of a received frame: its protocol, whether it is for this host, and which part of the stack gets it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uncork_packet::{Instant, Medium};
use uncork_wire::ethernet::{self, EtherType, Mac};
use uncork_wire::icmpv6::Listening;
use uncork_wire::{Protocol, Unread, arp, icmpv4, icmpv6, ipv4, ipv6};

use super::Interface;
use super::neighbour::Told;
use super::reply::{Reply, echo_fits};
use crate::address::Address;
use crate::connection::ConnectionError;
use crate::frame::Link;

/// The way back to the sender of a frame: its link-layer address as it stands in the frame, if frames have one.
/// Few packets are answered without a connection, so it is read only for those.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Back<'a>(Option<&'a [u8; 6]>);

impl Back<'_> {
    pub(crate) fn mac(self) -> Option<Mac> {
        self.0.copied().map(Mac).filter(|mac| mac.is_unicast())
    }

    pub(crate) fn link(self, ours: Mac) -> Link {
        self.0.map_or(Link::Bare, |his| Link::Ethernet { source: ours, destination: Mac(*his) })
    }
}

/// An IP packet for this host that another part of the stack handles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) back: Back<'a>,
    pub(crate) source: Address,
    pub(crate) destination: Address,
    pub(crate) payload: &'a [u8],
    /// The whole packet.
    pub(crate) packet: &'a [u8],
    /// The frame's destination was a group or broadcast address.
    pub(crate) to_many: bool,
    /// ECN field of the IP header (RFC 3168 §5).
    pub(crate) ecn: u8,
}

/// An ICMP error about a packet that this host has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// The packet is longer than this MTU of the next hop.
    TooBig(u32),
    /// The packet cannot be delivered.
    Undeliverable(Undelivered),
}

/// Why a packet was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undelivered {
    /// The error for a connection that is being opened or will be given up.
    pub(crate) error: ConnectionError,
    /// There is no route at the moment (RFC 6069 §3).
    pub(crate) is_cut_off: bool,
}

impl Complaint {
    fn undeliverable(error: ConnectionError) -> Self {
        Self::Undeliverable(Undelivered { error, is_cut_off: false })
    }
}

/// Returns the meaning of an ICMP message about a packet, if it is an error (tcp_v4_err).
fn complaint_v4(message: icmpv4::Message) -> Option<Complaint> {
    use icmpv4::Message;
    Some(match message {
        Message::Unreachable { code: icmpv4::FRAGMENTATION_NEEDED, next_hop_mtu } => {
            Complaint::TooBig(next_hop_mtu.into())
        }
        Message::Unreachable { code, .. } if code <= icmpv4::LAST_UNREACHABLE => {
            Complaint::Undeliverable(Undelivered {
                error: unreachable_v4(code),
                is_cut_off: code <= icmpv4::HOST_UNREACHABLE,
            })
        }
        Message::TimeExceeded(_) => Complaint::undeliverable(ConnectionError::Unreachable),
        Message::Other(icmpv4::PARAMETER_PROBLEM, _) => {
            Complaint::undeliverable(ConnectionError::Protocol)
        }
        _ => return None,
    })
}

/// Returns the meaning of an ICMPv6 message about a packet, if it is an error (icmpv6_err_convert).
fn complaint_v6(message: icmpv6::Message) -> Option<Complaint> {
    use icmpv6::Message;
    Some(match message {
        Message::PacketTooBig(mtu) => Complaint::TooBig(mtu),
        Message::Unreachable(code) => Complaint::Undeliverable(Undelivered {
            error: unreachable_v6(code),
            is_cut_off: code == icmpv6::NO_ROUTE,
        }),
        Message::TimeExceeded(_) => Complaint::undeliverable(ConnectionError::Unreachable),
        Message::Other(icmpv6::PARAMETER_PROBLEM, _) => {
            Complaint::undeliverable(ConnectionError::Protocol)
        }
        _ => return None,
    })
}

/// Returns the error for a code of destination unreachable (`icmp_err_convert`).
fn unreachable_v4(code: u8) -> ConnectionError {
    match code {
        // Network unreachable, unknown, prohibited, or unreachable for the type of service.
        0 | 6 | 9 | 11 => ConnectionError::NetworkUnreachable,
        2 => ConnectionError::NoProtocol,
        icmpv4::PORT_UNREACHABLE => ConnectionError::Refused,
        7 => ConnectionError::HostUnknown,
        _ => ConnectionError::Unreachable,
    }
}

/// Returns the error for a code of ICMPv6's destination unreachable (`tab_unreach`).
fn unreachable_v6(code: u8) -> ConnectionError {
    match code {
        0 => ConnectionError::NetworkUnreachable,
        // Prohibited by administration, by source address policy, or by a reject route.
        1 | 5 | 6 => ConnectionError::Prohibited,
        icmpv6::PORT_UNREACHABLE => ConnectionError::Refused,
        2 | 3 => ConnectionError::Unreachable,
        _ => ConnectionError::Protocol,
    }
}

/// Result of parsing a frame.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    /// A TCP segment.
    Tcp(Incoming<'a>),
    /// A UDP datagram.
    Udp(Incoming<'a>),
    /// An ICMP error with the start of the packet that it is about.
    Complaint(Complaint, &'a [u8]),
    /// A neighbour's address has been learned: these connections can go on.
    Neighbour(Vec<u32>),
    /// It was handled.
    Done,
    /// It was for other hosts, or of a protocol that the stack does not implement.
    NotForUs,
}

impl Interface {
    /// Returns the packet after the link-layer header, if the frame is addressed to this host alone and has IPv4 in it.
    #[inline]
    pub(crate) fn packet_v4<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        if self.device.medium == Medium::Ip {
            return Some(frame);
        }
        let (head, packet) = frame.split_first_chunk::<{ ethernet::HEADER_BYTES }>()?;
        let &[a, b, c, d, e, f, .., high, low] = head;
        let ours = [a, b, c, d, e, f] == self.mac.0;
        (ours && u16::from_be_bytes([high, low]) == EtherType::IPV4.0).then_some(packet)
    }

    /// Parses a frame, and queues an answer if that needs no connection.
    #[inline]
    pub(crate) fn arrive<'a>(
        &mut self,
        bytes: &'a [u8],
        now: Instant,
    ) -> Result<Frame<'a>, Unread> {
        match self.device.medium {
            Medium::Ethernet => {
                let (header, packet) = ethernet::Header::read(bytes)?;
                let group = header.destination.0[0] & 1 == 1;
                if header.destination != self.mac && !group {
                    return Ok(Frame::NotForUs);
                }
                let back = Back(bytes.get(6..).and_then(<[u8]>::first_chunk));
                match header.ethertype {
                    EtherType::IPV4 => self.arrive_v4(packet, (back, group)),
                    EtherType::IPV6 => self.arrive_v6(packet, (back, group), now),
                    EtherType::ARP if !self.shared => {
                        self.arrive_arp(packet, back.link(self.mac), now)
                    }
                    _ => Ok(Frame::NotForUs),
                }
            }
            Medium::Ip => match bytes.first().map(|first| first >> 4) {
                Some(6) => self.arrive_v6(bytes, (Back(None), false), now),
                _ => self.arrive_v4(bytes, (Back(None), false)),
            },
        }
    }

    #[inline(always)]
    fn arrive_v4<'a>(
        &mut self,
        packet: &'a [u8],
        (back, to_many): (Back<'a>, bool),
    ) -> Result<Frame<'a>, Unread> {
        let (header, payload) = ipv4::Header::read(packet)?;
        let (source, destination) = (header.source, header.destination);
        // Fragments are not reassembled: TCP never asks for any.
        if !self.has(destination.into()) || !header.is_whole() || !is_host(source) {
            return Ok(Frame::NotForUs);
        }
        match header.protocol {
            protocol @ (Protocol::TCP | Protocol::UDP) => {
                let incoming = Incoming {
                    back,
                    source: source.into(),
                    destination: destination.into(),
                    payload,
                    packet: packet.get(..header.total_bytes.into()).unwrap_or(packet),
                    to_many,
                    ecn: header.tos & 3,
                };
                let tcp = protocol == Protocol::TCP;
                Ok(if tcp { Frame::Tcp(incoming) } else { Frame::Udp(incoming) })
            }
            Protocol::ICMP => self.arrive_icmp(source, destination, payload, back.link(self.mac)),
            _ => Ok(Frame::NotForUs),
        }
    }

    fn arrive_icmp<'a>(
        &mut self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        payload: &'a [u8],
        back: Link,
    ) -> Result<Frame<'a>, Unread> {
        use icmpv4::Message;
        let (message, body) = Message::read(payload)?;
        Ok(match message {
            // The kernel answers.
            Message::EchoRequest(..) if self.shared => Frame::Done,
            Message::EchoRequest(id, seq) => {
                self.echo((destination.into(), source.into()), (id, seq), body, back)
            }
            _ => complaint_v4(message).map_or(Frame::Done, |it| Frame::Complaint(it, body)),
        })
    }

    fn arrive_v6<'a>(
        &mut self,
        packet: &'a [u8],
        (back, to_many): (Back<'a>, bool),
        now: Instant,
    ) -> Result<Frame<'a>, Unread> {
        let (header, rest) = ipv6::Header::read(packet)?;
        let (protocol, payload) = ipv6::upper_layer(header.next_header, rest)?;
        let (source, destination) = (header.source, header.destination);
        let for_us = self.has(destination.into());
        let group = destination.is_multicast() && self.listens_to(destination);
        // No IPv6 packet may come from an IPv4-mapped address (draft-itojun-v6ops-v4mapped-harmful;
        // ipv6_rcv_core drops it, too).
        let mapped = source.to_ipv4_mapped().is_some();
        if !for_us && !group || source.is_multicast() || mapped {
            return Ok(Frame::NotForUs);
        }
        match protocol {
            Protocol::TCP | Protocol::UDP if for_us => {
                let incoming = Incoming {
                    back,
                    source: source.into(),
                    destination: destination.into(),
                    payload,
                    packet: packet.get(..ipv6::HEADER_BYTES + rest.len()).unwrap_or(packet),
                    to_many,
                    ecn: header.traffic_class & 3,
                };
                let tcp = protocol == Protocol::TCP;
                Ok(if tcp { Frame::Tcp(incoming) } else { Frame::Udp(incoming) })
            }
            Protocol::ICMPV6 => {
                let back = back.link(self.mac);
                self.arrive_icmpv6(source, destination, payload, (back, header.hop_limit, now))
            }
            _ => Ok(Frame::NotForUs),
        }
    }

    fn arrive_icmpv6<'a>(
        &mut self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        payload: &'a [u8],
        (back, hop_limit, now): (Link, u8, Instant),
    ) -> Result<Frame<'a>, Unread> {
        use icmpv6::Message;
        let near = hop_limit == icmpv6::NEIGHBOUR_HOP_LIMIT;
        let (message, body) = Message::read(payload, source, destination)?;
        Ok(match message {
            Message::EchoRequest(..)
            | Message::ListenerQuery
            | Message::NeighbourSolicitation { .. }
            | Message::NeighbourAdvertisement { .. }
                if self.shared =>
            {
                Frame::Done
            }
            Message::EchoRequest(id, seq) if !destination.is_multicast() => {
                self.echo((destination.into(), source.into()), (id, seq), body, back)
            }
            // RFC 4861 §7.1: a node on another link cannot have sent this.
            Message::NeighbourSolicitation { target, source: asker } if near => {
                self.answer_solicitation(source, target, asker, back, now)
            }
            Message::NeighbourAdvertisement { target, solicited, overrides, mac }
                if near && mac.is_none_or(Mac::is_unicast) =>
            {
                // A multicast advertisement is not an answer to a solicitation (§7.1.2).
                let solicited = solicited && !destination.is_multicast();
                let told = Told { mac, solicited, overrides };
                Frame::Neighbour(self.neighbours.advertised(target.into(), told, now))
            }
            // From a router of this link (RFC 3810 §6.2). It is answered at once, not after a random delay within the time
            // that it gives all nodes: one host makes no storm. Queriers of version 1 (§8.2.1) get no answer.
            Message::ListenerQuery
                if hop_limit == icmpv6::LISTENER_HOP_LIMIT && source.is_unicast_link_local() =>
            {
                self.report_groups(Listening::IsSo);
                Frame::Done
            }
            _ => complaint_v6(message).map_or(Frame::Done, |it| Frame::Complaint(it, body)),
        })
    }

    fn answer_solicitation(
        &mut self,
        asker: Ipv6Addr,
        target: Ipv6Addr,
        mac: Option<Mac>,
        back: Link,
        now: Instant,
    ) -> Frame<'static> {
        if !self.is_ours(target.into()) {
            return Frame::NotForUs;
        }
        // A solicitation from the unspecified address is duplicate address detection: answer to all nodes
        // (RFC 4861 §7.2.4).
        let all: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (destination, solicited, link) = if asker.is_unspecified() {
            let mac = icmpv6::multicast_mac(all);
            (all, false, Link::Ethernet { source: self.mac, destination: mac })
        } else {
            (asker, true, back)
        };
        self.replies.push(Reply::Advertisement {
            link,
            source: target,
            destination,
            solicited,
            target,
        });
        match mac {
            Some(mac) if solicited && mac.is_unicast() => {
                Frame::Neighbour(self.neighbours.learn(asker.into(), mac, now, true))
            }
            _ => Frame::Done,
        }
    }

    fn arrive_arp(
        &mut self,
        packet: &[u8],
        back: Link,
        now: Instant,
    ) -> Result<Frame<'static>, Unread> {
        let packet = arp::Packet::read(packet)?;
        let for_us = self.is_ours(packet.target.into());
        if for_us && packet.operation == arp::Operation::Request {
            self.replies.push(Reply::Arp {
                link: back,
                packet: arp::Packet {
                    operation: arp::Operation::Reply,
                    sender_mac: self.mac,
                    sender: packet.target,
                    target_mac: packet.sender_mac,
                    target: packet.sender,
                },
            });
        }
        if !packet.sender_mac.is_unicast() || !is_host(packet.sender) {
            return Ok(Frame::Done);
        }
        // RFC 826: a known sender is updated; one that asks for this host is added, as it will be answered.
        let waiting = self.neighbours.learn(packet.sender.into(), packet.sender_mac, now, for_us);
        Ok(Frame::Neighbour(waiting))
    }

    fn echo(
        &mut self,
        (source, destination): (IpAddr, IpAddr),
        (id, seq): (u16, u16),
        data: &[u8],
        link: Link,
    ) -> Frame<'static> {
        if echo_fits(&self.device, data.len(), source.is_ipv6()) {
            let mut body = self.replies.body();
            body.extend_from_slice(data);
            self.replies.push(Reply::Echo { link, source, destination, id, seq, body });
        }
        Frame::Done
    }

    /// Returns whether this is the all-nodes group or the solicited-node group of one of our addresses (RFC 4291 §2.8).
    fn listens_to(&self, group: Ipv6Addr) -> bool {
        group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
            || self.addresses.iter().any(|ours| {
                matches!(ours.address, IpAddr::V6(address) if icmpv6::solicited_node(address) == group)
            })
    }
}

/// Returns whether a host can have this address (RFC 1122 §3.2.1.3).
fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast()
}
