//! Answers that need no connection: resets, SYN cookies, echoes, ARP and neighbour discovery. They are
//! queued until there is a slot for them, and dropped when there are too many.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use uncork_packet::{Capabilities, Checksum, Medium, Transmit};
use uncork_wire::ethernet::{EtherType, Mac};
use uncork_wire::icmpv6::Listening;
use uncork_wire::tcp::{Fields, OptionSet};
use uncork_wire::{Protocol, arp, icmpv4, icmpv6, ipv6};

use super::Interface;
use super::neighbour::Question;
use crate::frame::{Link, Packet, TcpFrame};

/// Most queued answers: a host that causes more than this before a slot is free gets fewer.
const MOST: usize = 256;

/// An answer to be sent.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A TCP segment without data.
    Tcp {
        link: Link,
        source: IpAddr,
        destination: IpAddr,
        flow_label: u32,
        fields: Fields,
        options: OptionSet,
    },
    /// An ARP reply.
    Arp { link: Link, packet: arp::Packet },
    /// A neighbour advertisement.
    Advertisement {
        link: Link,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        solicited: bool,
        target: Ipv6Addr,
    },
    /// A multicast listener report for the groups of our addresses.
    Groups(Listening),
    /// An echo reply.
    Echo { link: Link, source: IpAddr, destination: IpAddr, id: u16, seq: u16, body: Vec<u8> },
    /// Destination unreachable: no socket has the port of the quoted datagram.
    PortUnreachable { link: Link, source: IpAddr, destination: IpAddr, body: Vec<u8> },
}

/// Queued answers, and buffers of echoes for reuse.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    waiting: VecDeque<Reply>,
    bodies: Vec<Vec<u8>>,
}

impl Replies {
    /// Queues an answer, and returns whether there was room.
    pub(crate) fn push(&mut self, reply: Reply) -> bool {
        let room = self.waiting.len() < MOST;
        if room {
            self.waiting.push_back(reply);
        }
        room
    }

    /// Queues a listener report, if none is queued already.
    fn push_groups(&mut self, listening: Listening) {
        if !self.waiting.iter().any(|reply| matches!(reply, Reply::Groups(_))) {
            self.push(Reply::Groups(listening));
        }
    }

    /// Returns an empty buffer.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        self.bodies.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    fn give(&mut self, mut body: Vec<u8>) {
        body.clear();
        self.bodies.push(body);
    }
}

impl Interface {
    /// Returns whether there is neither an answer nor a solicitation to send.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.replies.waiting.is_empty() && !self.neighbours.has_question()
    }

    /// Writes the next answer or solicitation into `slot`, if there is one.
    #[inline]
    pub(crate) fn transmit(&mut self, slot: &mut [u8]) -> Option<Transmit> {
        if self.is_silent() { None } else { self.transmit_answer(slot) }
    }

    fn transmit_answer(&mut self, slot: &mut [u8]) -> Option<Transmit> {
        while let Some(question) = self.neighbours.poll_question() {
            if let Some(transmit) = self.ask(question, slot) {
                return Some(transmit);
            }
        }
        let reply = self.replies.waiting.pop_front()?;
        Some(match reply {
            Reply::Tcp { link, source, destination, flow_label, fields, options } => {
                let mut packet = Packet::new(source, destination, Protocol::TCP);
                packet.flow_label = flow_label;
                let frame = TcpFrame {
                    packet,
                    fields,
                    options: &options,
                    data: (&[], &[]),
                    train: None,
                    owner: None,
                };
                frame.emit(slot, link, &self.device)
            }
            Reply::Arp { link, packet } => emit_arp(slot, link, &packet),
            Reply::Advertisement { link, source, destination, solicited, target } => {
                let message = icmpv6::Message::NeighbourAdvertisement {
                    target,
                    solicited,
                    overrides: true,
                    mac: Some(self.mac),
                };
                emit_neighbour(slot, link, (source, destination), &message)
            }
            Reply::Groups(listening) => self.emit_groups(slot, listening),
            Reply::Echo { link, source, destination, id, seq, body } => {
                let messages =
                    (icmpv4::Message::EchoReply(id, seq), icmpv6::Message::EchoReply(id, seq));
                let transmit = emit_icmp(slot, link, (source, destination), messages, &body);
                self.replies.give(body);
                transmit
            }
            Reply::PortUnreachable { link, source, destination, body } => {
                let code = icmpv4::PORT_UNREACHABLE;
                let messages = (
                    icmpv4::Message::Unreachable { code, next_hop_mtu: 0 },
                    icmpv6::Message::Unreachable(icmpv6::PORT_UNREACHABLE),
                );
                let transmit = emit_icmp(slot, link, (source, destination), messages, &body);
                self.replies.give(body);
                transmit
            }
        })
    }

    /// Queues a report of the neighbour discovery groups that are listened to (RFC 4291 §2.8), so that switches with MLD snooping
    /// let them through (RFC 4541 §3). It is sent once when listening begins (RFC 3810 §9.1 has it twice: a router that missed it
    /// gets it with its next query).
    pub(crate) fn report_groups(&mut self, listening: Listening) {
        let ethernet = self.device.medium == Medium::Ethernet;
        if ethernet && !self.shared && self.groups().next().is_some() {
            self.replies.push_groups(listening);
        }
    }

    fn groups(&self) -> impl Iterator<Item = Ipv6Addr> {
        let all = self.addresses.iter().filter_map(|ours| match ours.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        all.clone().enumerate().filter_map(move |(place, address)| {
            let group = icmpv6::solicited_node(address);
            let told = all.clone().take(place).any(|one| icmpv6::solicited_node(one) == group);
            (!told).then_some(group)
        })
    }

    fn emit_groups(&self, slot: &mut [u8], listening: Listening) -> Transmit {
        let destination = icmpv6::LISTENER_REPORTS;
        // RFC 3810 §5.2.13, RFC 3590 §4: a link-local address, or the unspecified one.
        let near = self.addresses.iter().find_map(|ours| match ours.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        });
        let source = near.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let room = usize::from(self.device.mtu)
            .saturating_sub(ipv6::HEADER_BYTES + ipv6::ROUTER_ALERT_BYTES);
        let fits = |&count: &usize| icmpv6::listener_report_bytes(count) <= room;
        let count = (1..=self.groups().count()).take_while(fits).count();
        let bytes = ipv6::ROUTER_ALERT_BYTES + icmpv6::listener_report_bytes(count);
        let mut packet = Packet::new(source, destination, Protocol::HOP_BY_HOP);
        packet.hops = icmpv6::LISTENER_HOP_LIMIT;
        let mac = icmpv6::multicast_mac(destination);
        let link = Link::Ethernet { source: self.mac, destination: mac };
        let start = packet.emit(slot, link, bytes);
        let (alert, report) = slot[start..start + bytes].split_at_mut(ipv6::ROUTER_ALERT_BYTES);
        alert.copy_from_slice(&ipv6::router_alert(Protocol::ICMPV6));
        icmpv6::emit_listener_report(report, listening, self.groups(), source);
        whole(start + bytes)
    }

    /// Writes an ARP request or a neighbour solicitation, to the stale address, or to broadcast or multicast.
    fn ask(&self, question: Question, slot: &mut [u8]) -> Option<Transmit> {
        let source = self.source_for(question.address)?;
        Some(match (source, question.address) {
            (IpAddr::V4(sender), IpAddr::V4(target)) => {
                let destination = question.mac.unwrap_or(Mac::BROADCAST);
                let packet = arp::Packet {
                    operation: arp::Operation::Request,
                    sender_mac: self.mac,
                    sender,
                    target_mac: Mac::default(),
                    target,
                };
                emit_arp(slot, Link::Ethernet { source: self.mac, destination }, &packet)
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let group = icmpv6::solicited_node(target);
                let (address, mac) = match question.mac {
                    Some(mac) => (target, mac),
                    None => (group, icmpv6::multicast_mac(group)),
                };
                let message =
                    icmpv6::Message::NeighbourSolicitation { target, source: Some(self.mac) };
                let link = Link::Ethernet { source: self.mac, destination: mac };
                emit_neighbour(slot, link, (source, address), &message)
            }
            _ => return None,
        })
    }
}

fn emit_arp(slot: &mut [u8], link: Link, packet: &arp::Packet) -> Transmit {
    let start = link.emit(slot, EtherType::ARP);
    packet.emit(&mut slot[start..]);
    whole(start + arp::PACKET_BYTES)
}

fn emit_neighbour(
    slot: &mut [u8],
    link: Link,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    message: &icmpv6::Message,
) -> Transmit {
    let mut packet = Packet::new(source, destination, Protocol::ICMPV6);
    packet.hops = icmpv6::NEIGHBOUR_HOP_LIMIT;
    let start = packet.emit(slot, link, icmpv6::NEIGHBOUR_BYTES);
    message.emit(&mut slot[start..start + icmpv6::NEIGHBOUR_BYTES], source, destination);
    whole(start + icmpv6::NEIGHBOUR_BYTES)
}

fn emit_icmp(
    slot: &mut [u8],
    link: Link,
    (source, destination): (IpAddr, IpAddr),
    (v4, v6): (icmpv4::Message, icmpv6::Message),
    body: &[u8],
) -> Transmit {
    let bytes = icmpv4::HEADER_BYTES + body.len();
    let protocol = if source.is_ipv4() { Protocol::ICMP } else { Protocol::ICMPV6 };
    let start = Packet::new(source, destination, protocol).emit(slot, link, bytes);
    let message = &mut slot[start..start + bytes];
    message[icmpv4::HEADER_BYTES..].copy_from_slice(body);
    if let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) {
        v6.emit(message, source, destination);
    } else {
        v4.emit(message);
    }
    whole(start + bytes)
}

fn whole(bytes: usize) -> Transmit {
    Transmit {
        frame_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        checksum: Checksum::Complete,
        segmentation: None,
        owner: None,
    }
}

/// Returns whether a slot of this device has room for an echo with this many octets of data.
pub(crate) fn echo_fits(device: &Capabilities, body_bytes: usize, ipv6: bool) -> bool {
    let headers = crate::frame::ip_header_bytes(ipv6) as usize + icmpv4::HEADER_BYTES;
    headers + body_bytes <= usize::from(device.mtu)
}
