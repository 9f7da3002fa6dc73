//! Giving a connection away to the host's kernel, which continues it (TCP_REPAIR; it is described not in tcp(7) but
//! in the documentation of CRIU and in `net/ipv4/tcp.c`).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::Stack;
use crate::connection::{Cause, Connection, ConnectionError, Fast, State};
use crate::handle::SocketId;
use crate::interface::reply::Reply;

/// The state in which a connection is given away. Before it is established there is nothing to give, and when both sides
/// have closed there is nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotState {
    /// Data may go both ways.
    Established,
    /// The peer's FIN has come.
    CloseWait,
    /// This side has closed; its FIN is not acknowledged, and perhaps not sent.
    FinWait1,
    /// This side has closed, and its FIN is acknowledged.
    FinWait2,
    /// Both sides have closed at the same time; this side's FIN is not acknowledged.
    Closing,
    /// Both sides have closed, the peer first; this side's FIN is not acknowledged, and perhaps not sent.
    LastAck,
    /// The peer has reset it, and the user has not been told. Data received before that can be read.
    Reset,
}

impl SnapshotState {
    fn of(connection: &Connection) -> Option<Self> {
        Some(match connection.state {
            State::Established => Self::Established,
            State::CloseWait => Self::CloseWait,
            State::FinWait1 => Self::FinWait1,
            State::FinWait2 => Self::FinWait2,
            State::Closing => Self::Closing,
            State::LastAck => Self::LastAck,
            State::Closed if connection.user.error() == Some(ConnectionError::Reset) => Self::Reset,
            State::Closed | State::SynSent | State::SynReceived | State::TimeWait => return None,
        })
    }

    /// Returns whether the peer's FIN was received.
    #[must_use]
    pub fn peer_has_ended(self) -> bool {
        matches!(self, Self::CloseWait | Self::Closing | Self::LastAck)
    }
}

/// A connection at the moment when it was given away: all that is needed to continue it,
/// except its octets. Sequence numbers are as on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// Its state.
    pub state: SnapshotState,
    /// Whether this side's FIN was sent. A FIN that was not sent follows the last octet.
    pub fin_sent: bool,
    /// The user reads no more (SHUT_RD).
    pub reading_shut: bool,
    /// Sequence number of the first unacknowledged octet, or of the one after the last if all are acknowledged.
    pub send_first: u32,
    /// Octets that were sent and not acknowledged.
    pub unacknowledged_bytes: u32,
    /// Octets that were not sent.
    pub unsent_bytes: u32,
    /// Sequence number of the first unread octet.
    pub receive_first: u32,
    /// Octets that were received in order and acknowledged, but not read. Out-of-order octets are not
    /// counted: the peer sends them again (RFC 2018 §8 lets a receiver discard what it has reported).
    pub unread_bytes: u32,
    /// Sequence number of the segment that last updated the peer's window (SND.WL1).
    pub window_seq: u32,
    /// The peer's window, in octets.
    pub send_window_bytes: u32,
    /// The largest window that the peer ever had, in octets.
    pub largest_send_window_bytes: u32,
    /// The last acknowledgment number that was sent.
    pub acknowledged: u32,
    /// The window that this ACK offered, in octets.
    pub receive_window_bytes: u32,
    /// Largest segment that may be sent, in octets, options included.
    pub segment_bytes: u16,
    /// Window scale shifts of the peer and of this side, if both scale.
    pub window_shifts: Option<(u8, u8)>,
    /// Both sides support SACK.
    pub sack: bool,
    /// The timestamp that a segment sent now would have, in milliseconds, if both sides use timestamps.
    pub timestamp: Option<u32>,
}

/// A connection that was given away, with its octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// Its state, without the octets.
    pub snapshot: Snapshot,
    bytes: Vec<u8>,
}

impl Detached {
    /// Puts a connection together again whose octets were kept apart.
    ///
    /// Returns none if their number is not what the snapshot says.
    #[must_use]
    pub fn new(snapshot: Snapshot, bytes: Vec<u8>) -> Option<Self> {
        let counts = [snapshot.unread_bytes, snapshot.unacknowledged_bytes, snapshot.unsent_bytes];
        let count: usize = counts.into_iter().map(|count| count as usize).sum();
        (bytes.len() == count).then_some(Self { snapshot, bytes })
    }

    /// Returns all octets: unread, unacknowledged, unsent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the octets that were received and not read.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[..self.snapshot.unread_bytes as usize]
    }

    /// Returns the octets that were sent and not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> &[u8] {
        let from = self.snapshot.unread_bytes as usize;
        &self.bytes[from..from + self.snapshot.unacknowledged_bytes as usize]
    }

    /// Returns the octets that were not sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        let sent = self.snapshot.unread_bytes + self.snapshot.unacknowledged_bytes;
        &self.bytes[sent as usize..]
    }
}

impl Stack {
    /// Returns whether [`Stack::detach`] would give this connection away.
    #[must_use]
    pub fn is_detachable(&self, socket: SocketId) -> bool {
        self.connections.get(socket.place).is_some_and(|connection| {
            // A Fast Open connection that was accepted keeps its listener until its handshake is complete.
            let waits = connection.listener.is_some() && !connection.fast.has(Fast::ACCEPTED);
            connection.id == socket
                && !connection.is_fast_child()
                && SnapshotState::of(connection).is_some()
                && !waits
        })
    }

    /// Gives a connection away, and forgets it: nothing more is sent for it, and segments that still come for it
    /// are not answered for ten seconds, in which the new owner should have begun to get them. Returns none, and
    /// changes nothing, if it is not in one of the states that can be given away, or was not accepted.
    /// One that its user has closed can be given away as long as there is something left to do, and one that its peer has
    /// reset until the user has been told. All that was received is
    /// acknowledged, by a segment that leaves with the next turn.
    ///
    /// What is lost: the congestion window and all measurements of the path; ECN (`TCP_REPAIR` cannot express
    /// it); which octets the peer has reported by SACK. Options that the user has set are for the user to set again.
    pub fn detach(&mut self, now: Instant, socket: SocketId) -> Option<Detached> {
        self.finish_joining();
        if !self.is_detachable(socket) {
            return None;
        }
        let state = SnapshotState::of(self.connections.get(socket.place)?)?;
        let link = self.link_of(socket.place, now);
        let connection = self.connections.get_mut(socket.place)?;
        let cx = self.shared.at(now);
        // The new owner does not know of an ACK that was held back, and the peer may send no more until it comes (Nagle).
        let speaks = link.filter(|_| state != SnapshotState::Reset);
        let owed = speaks.and_then(|link| Some((link, connection.take_owed_ack(cx)?)));
        let detached = connection.snapshot(now, state);
        let tuple = connection.tuple;
        connection.user.attached = false;
        connection.finish(Cause::Abort, None, cx);
        self.quiet.add_connection(&tuple, now);
        self.settle(socket.place);
        if let Some((link, (fields, options))) = owed {
            let (source, destination) = (tuple.local().ip(), tuple.remote().ip());
            let flow_label = self.shared.secrets.flow_label(&tuple);
            self.say(Reply::Tcp { link, source, destination, flow_label, fields, options });
        }
        Some(detached)
    }
}

impl Connection {
    fn snapshot(&self, now: Instant, state: SnapshotState) -> Detached {
        let (sender, receiver, peer) = (&self.sender, &self.receiver, &self.peer);
        let count = |from: SeqNumber, to: SeqNumber| (to - from).max(0).unsigned_abs();
        // Sequence numbers of octets, without that of a FIN.
        let first = if sender.una.after(sender.end) { sender.end } else { sender.una };
        let next = if sender.nxt.after(sender.end) { sender.end } else { sender.nxt };
        // Nobody needs what a reset left unsent.
        let end = if state == SnapshotState::Reset { first } else { sender.end };
        let next = if next.after(end) { end } else { next };
        let received = receiver.nxt - u32::from(receiver.is_finished());
        let acknowledged = receiver.acknowledged;
        let told = if acknowledged.after(received) { received } else { acknowledged };
        let user = self.options.most_segment_bytes.unwrap_or(u16::MAX);
        let snapshot = Snapshot {
            local: self.tuple.local(),
            remote: self.tuple.remote(),
            state,
            fin_sent: sender.fin_sent,
            reading_shut: self.user.closed_reading,
            send_first: first.0,
            unacknowledged_bytes: count(first, next),
            unsent_bytes: count(next, end),
            receive_first: (received - receiver.readable_bytes()).0,
            unread_bytes: receiver.readable_bytes(),
            window_seq: sender.window_seq.0,
            send_window_bytes: sender.window,
            largest_send_window_bytes: sender.max_window.max(sender.window),
            acknowledged: told.0,
            receive_window_bytes: receiver.window + count(told, acknowledged),
            segment_bytes: peer.mss.min(user),
            window_shifts: peer.scales.then_some((peer.send_shift, peer.receive_shift)),
            sack: peer.sacks,
            timestamp: peer.stamps.then(|| peer.stamp(now)),
        };
        let (queued, queued_rest) = sender.buffer.slices(0, count(first, end));
        let (unread, unread_rest) = receiver.readable();
        Detached { snapshot, bytes: [unread, unread_rest, queued, queued_rest].concat() }
    }
}
