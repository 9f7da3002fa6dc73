//! Creation of connections, and the handling of a SYN.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;
use uncork_wire::tcp::{Flags, OptionSet};

use super::Stack;
use super::arrive::asks_for_ecn;
use crate::connection::arrival::Segment;
use crate::connection::{Cause, Connection, Offer, Owed, Path, SocketOption};
use crate::demux::Tuple;
use crate::event::Change;
use crate::handle::{ListenerId, SocketId};

impl Stack {
    /// Makes a connection and enters it into the table.
    pub(super) fn insert(&mut self, now: Instant, tuple: Tuple, options: &[SocketOption]) -> u32 {
        let neighbour = self.interface.neighbour_for(tuple.remote().ip());
        let mtu = self.interface.path_mtu(neighbour);
        let path = Path { neighbour, mtu, is_cut: false, soft_error: None };
        let cx = self.shared.at(now);
        let place = self.connections.insert(|place, generation| {
            Connection::new(SocketId { place, generation }, tuple, path, cx)
        });
        if let Some(connection) = self.connections.get_mut(place) {
            for &option in options {
                connection.set_option(cx, option);
            }
        }
        self.demux.insert(self.hash_of(&tuple), place);
        if self.interface.shared {
            let (local, remote) = (tuple.local(), tuple.remote());
            self.changes.push_back(Change::Came { place, local, remote });
        }
        place
    }

    pub(super) fn hash_of(&self, tuple: &Tuple) -> u64 {
        tuple.hash(self.shared.secrets.table)
    }

    /// Opens a connection for a SYN that has come to a listener (RFC 9293 §3.10.7.2).
    pub(super) fn open_passively(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        listener: ListenerId,
        options: &[SocketOption],
    ) -> u32 {
        self.shared.counters.passive_opens += 1;
        let place = self.insert(now, *tuple, options);
        let Some(connection) = self.connections.get_mut(place) else { return place };
        let cx = self.shared.at(now);
        connection.listener = Some(listener);
        connection.take_syn(cx, segment);
        connection.peer.ecn = connection.peer.offer.has(Offer::ECN) && asks_for_ecn(segment);
        connection.change_state(Cause::PassiveOpen);
        connection.owed.add(Owed::SYN_ACK);
        self.settle(place);
        place
    }

    /// Opens a connection from a SYN cookie that has come back; it is established at once.
    pub(super) fn open_from_cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        (offered, ecn): (&OptionSet, bool),
        iss: SeqNumber,
    ) {
        let Some(listener) = self.listeners.find(tuple.local(), self.hash_of(tuple)) else {
            return;
        };
        listener.handshakes += 1;
        let (id, options) = (listener.id, listener.options.clone());
        let syn = Segment {
            seq: segment.seq - 1,
            ack: None,
            flags: Flags::SYN.with(if ecn { Flags::ECE.with(Flags::CWR) } else { Flags(0) }),
            window: segment.window,
            options: offered,
            data: &[],
            segment_bytes: None,
            ecn: 0,
        };
        let place = self.open_passively(now, tuple, &syn, id, &options);
        let Some(connection) = self.connections.get_mut(place) else { return };
        connection.begin_from_cookie(iss, now);
        let cx = self.shared.at(now);
        connection.handle_segment(cx, segment);
        self.settle(place);
    }

    /// Returns the MSS that a SYN-ACK without a connection announces.
    pub(super) fn announced_segment(&self, tuple: &Tuple) -> u16 {
        let headers = crate::frame::ip_header_bytes(tuple.is_ipv6()) + 20;
        let bytes = u32::from(self.interface.device.mtu).saturating_sub(headers);
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}
