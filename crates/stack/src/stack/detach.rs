//! Giving a connection away: to the host's kernel, which goes on with it (TCP_REPAIR, tcp(7) does not know
//! it; Documentation of CRIU and `net/ipv4/tcp.c` do).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::Stack;
use crate::connection::{Cause, Connection, ConnectionError, Fast, State};
use crate::handle::SocketId;
use crate::interface::reply::Reply;

/// In which state a connection is given away. Before it is open there is nothing to give, and when both have
/// ended there is nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SnapshotState {
    /// Data may go both ways.
    Established,
    /// The peer has ended.
    CloseWait,
    /// This side has; that is not acknowledged, and perhaps not sent.
    FinWait1,
    /// This side has, and the peer knows.
    FinWait2,
    /// Both have, at once; this side's FIN is not acknowledged.
    Closing,
    /// Both have, the peer first; this side's FIN is not acknowledged, and perhaps not sent.
    LastAck,
    /// The peer has reset it, which the user has not been told. What had come before can be read.
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

    /// Whether the peer's FIN was taken.
    #[must_use]
    pub fn peer_has_ended(self) -> bool {
        matches!(self, Self::CloseWait | Self::Closing | Self::LastAck)
    }
}

/// A connection at the moment in which it was given away: all that somebody else needs to go on with it
/// but its octets. Sequence numbers are as they are on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its state.
    pub state: SnapshotState,
    /// Whether this side's FIN was sent. One that was not follows the last octet.
    pub fin_sent: bool,
    /// The user wants no more of what comes (SHUT_RD).
    pub reading_shut: bool,
    /// Number of the first octet that is not acknowledged; behind the last, if all is.
    pub send_first: u32,
    /// Octets that were sent and are not acknowledged.
    pub unacknowledged_bytes: u32,
    /// Octets that were not sent.
    pub unsent_bytes: u32,
    /// Number of the first octet that was not read.
    pub receive_first: u32,
    /// Octets that have come, are acknowledged, and were not read. Those ahead of their turn are none of
    /// them: the peer sends them again (RFC 2018 §8 lets a receiver go back on what it has reported).
    pub unread_bytes: u32,
    /// Segment that told the peer's window (SND.WL1).
    pub window_seq: u32,
    /// The peer's window, in octets, and the largest it ever had.
    pub send_window_bytes: u32,
    /// See above.
    pub largest_send_window_bytes: u32,
    /// What was acknowledged last, and the window that this ACK offered, in octets.
    pub acknowledged: u32,
    /// See above.
    pub receive_window_bytes: u32,
    /// Largest segment that may be sent, in octets, options counted.
    pub segment_bytes: u16,
    /// Shifts of the peer's windows and of ours, if both scale.
    pub window_shifts: Option<(u8, u8)>,
    /// Both understand SACK.
    pub sack: bool,
    /// The timestamp that a segment of this moment would have, in milliseconds, if both use them.
    pub timestamp: Option<u32>,
}

/// A connection that was given away, with its octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// What it was.
    pub snapshot: Snapshot,
    bytes: Vec<u8>,
}

impl Detached {
    /// Its octets may have been kept apart.
    ///
    /// Nothing if these are not as many as the snapshot says.
    #[must_use]
    pub fn new(snapshot: Snapshot, bytes: Vec<u8>) -> Option<Self> {
        let counts = [snapshot.unread_bytes, snapshot.unacknowledged_bytes, snapshot.unsent_bytes];
        let count: usize = counts.into_iter().map(|count| count as usize).sum();
        (bytes.len() == count).then_some(Self { snapshot, bytes })
    }

    /// All of its octets: unread, unacknowledged, unsent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What has come and was not read.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[..self.snapshot.unread_bytes as usize]
    }

    /// What was sent and is not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> &[u8] {
        let from = self.snapshot.unread_bytes as usize;
        &self.bytes[from..from + self.snapshot.unacknowledged_bytes as usize]
    }

    /// What was not sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        let sent = self.snapshot.unread_bytes + self.snapshot.unacknowledged_bytes;
        &self.bytes[sent as usize..]
    }
}

impl Stack {
    /// Whether [`Stack::detach`] would give this connection away.
    #[must_use]
    pub fn is_detachable(&self, socket: SocketId) -> bool {
        self.connections.get(socket.place).is_some_and(|connection| {
            // Of Fast Open, a name in an accept queue.
            let waits = connection.listener.is_some() && !connection.fast.has(Fast::ACCEPTED);
            connection.id == socket
                && !connection.is_fast_child()
                && SnapshotState::of(connection).is_some()
                && !waits
        })
    }

    /// Gives a connection away, and forgets it: nothing more is sent of it, and segments that still come for it
    /// are not answered for ten seconds, in which somebody else should have begun to get them. Nothing, and
    /// nothing has changed, if it is not in one of the states that can be given away, or was not accepted.
    /// One whose user has closed it can be given away as long as there is something left to be done, and one that its peer has
    /// reset until its user knows. All that has come is
    /// acknowledged, by a segment that leaves with the next turn.
    ///
    /// What is lost: the congestion window and all that was measured of the path; ECN (`TCP_REPAIR` has no word for
    /// it); which octets the peer has reported by SACK. Options that the user has set are his to set again.
    pub fn detach(&mut self, now: Instant, socket: SocketId) -> Option<Detached> {
        self.finish_joining();
        if !self.is_detachable(socket) {
            return None;
        }
        let state = SnapshotState::of(self.connections.get(socket.place)?)?;
        let link = self.link_of(socket.place, now);
        let connection = self.connections.get_mut(socket.place)?;
        let cx = self.shared.at(now);
        // Who goes on knows nothing of one that was held back, and the peer may send no more until it comes (Nagle).
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
        // Numbers of octets: a FIN is none.
        let first = if sender.una.after(sender.end) { sender.end } else { sender.una };
        let next = if sender.nxt.after(sender.end) { sender.end } else { sender.nxt };
        // Nobody will have what a reset left unsent.
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
