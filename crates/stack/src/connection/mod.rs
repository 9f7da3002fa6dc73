//! One connection: everything that RFC 9293 calls a transmission control block.
//!
//! ```text
//!  arrival/   a segment comes ─▶ checks ─▶ ack ─▶ data ─▶ fin
//!                                          │       └──▶ receive/   buffer, gaps, window, ACK policy
//!                                          └──────────▶ recovery/  what was delivered, what is lost
//!                                                       congestion/ how much may be in flight
//!  user.rs    the program sends ─▶ send/ buffer ─▶ decision ─▶ emit ─▶ a frame in the driver's slot
//!  expiry.rs  a timer expires
//!  path.rs    an ICMP error comes
//! ```
//!
//! Nothing here accesses other connections, the device or a clock: [`Context`] holds what is lent for a call.

pub(crate) mod arrival;
pub(crate) mod congestion;
mod deferral;
mod expiry;
pub(crate) mod fast_open;
mod info;
mod options;
mod path;
mod peer;
mod population;
pub(crate) mod receive;
pub(crate) mod recovery;
pub(crate) mod send;
mod spent;
mod state;
mod steady;
pub(crate) mod timers;
mod trouble;
mod user;

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use congestion::Congestion;
pub(crate) use deferral::Deferral;
pub(crate) use fast_open::Fast;
pub use fast_open::FastOpenFailure;
pub use info::Info;
pub use options::{KeepAlive, SocketOption};
pub(crate) use options::{Options, receive_buffer_bytes};
pub(crate) use path::Path;
pub(crate) use peer::Offer;
use peer::Peer;
use population::Counted;
pub(crate) use population::Population;
pub(crate) use receive::Reassembly;
use receive::Receiver;
use receive::ack_policy::AckPolicy;
use receive::window::shift_for;
pub use recovery::Phase;
pub(crate) use recovery::{Bounds, List, Record};
use recovery::{Recovery, Rtt};
use send::Sender;
pub use send::decision::Blocked;
use send::device_queue::DeviceQueue;
pub(crate) use send::pacer::Delivery;
use send::pacer::Pacer;
use spent::Spent;
pub use state::{Cause, State};
use timers::Timers;
use trouble::Trouble;
pub(crate) use user::User;
pub use user::{ConnectionError, RecvError, SendError};

use crate::context::Context;
use crate::demux::Tuple;
use crate::handle::{ListenerId, SocketId};
use crate::memory::LEAST_BYTES;
use crate::units::MaybeInstant;

/// Longest time that a cork holds data (tcp(7), TCP_CORK).
pub(crate) const CORK_CEILING: Duration = Duration::from_millis(200);

/// Linux's estimate for a segment's headers, shared info and sk_buff (tcp_sndbuf_expand).
const HEADROOM_BYTES: u32 = 576;
const SKB_BYTES: u32 = 256;

/// Least size at which a segment is counted when the send buffer follows the window: a peer that announces a smaller one gets
/// no more segments in flight than of this size, as each costs as much to keep track of (Linux counts the memory of each;
/// CVE-2019-11478). The sizes that everybody must accept are larger (RFC 9293 §3.7.1).
const COUNTED_SEGMENT_BYTES: u32 = 512;

/// Least size of a full segment, options and data, however small the peer's MSS or window is: a peer that announces less causes
/// many packets for few octets (tcp_min_snd_mss, and 68 octets with headers in tcp_bound_to_half_wnd).
const LEAST_SEGMENT_BYTES: u32 = 48;

/// A transmission control block.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: SocketId,
    pub(crate) tuple: Tuple,
    pub(crate) state: State,
    /// See [`Connection::is_steady`].
    steady: bool,
    /// It is over, and no longer in the table of connections.
    pub(crate) has_no_ends: bool,
    /// The listener that it came to, until it is accepted.
    pub(crate) listener: Option<ListenerId>,
    pub(crate) path: Path,
    /// Cache of [`Connection::segment_bytes`], which is needed many times per segment.
    segment: u16,
    pub(crate) peer: Peer,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) ack: AckPolicy,
    pub(crate) rtt: Rtt,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Congestion,
    pub(crate) pacer: Pacer,
    pub(crate) device: DeviceQueue,
    pub(crate) options: Options,
    pub(crate) timers: Timers,
    pub(crate) owed: Owed,
    pub(crate) fast: Fast,
    pub(crate) deferral: Deferral,
    pub(crate) user: User,
    pub(crate) counts: Counts,
    pub(crate) spent: Spent,
}

/// Segments that must be sent regardless of the user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Owed {
    bits: u8,
    /// Duplicate ACKs, one for each out-of-order segment: a peer without SACK counts
    /// them (RFC 5681 §3.2).
    pub(crate) duplicate_acks: u8,
}

impl Owed {
    pub(crate) const RESET: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const SYN_ACK: u8 = 4;
    pub(crate) const PROBE: u8 = 8;
    pub(crate) const TAIL_PROBE: u8 = 16;
    pub(crate) const WINDOW_FILL: u8 = 32;

    pub(crate) fn has(self, what: u8) -> bool {
        self.bits & what != 0
    }

    pub(crate) fn add(&mut self, what: u8) {
        self.bits |= what;
    }

    pub(crate) fn clear(&mut self, what: u8) {
        self.bits &= !what;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.bits == 0 && self.duplicate_acks == 0
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::default();
    }
}

/// Counters, and times of the last events.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) segments_in: u64,
    pub(crate) segments_out: u64,
    pub(crate) data_segments_in: u64,
    pub(crate) data_segments_out: u64,
    pub(crate) delivered: u64,
    /// Counters of irregularities. Boxed, as most connections have none.
    trouble: Option<Box<Trouble>>,
    /// When data was last sent, and when anything was last received.
    pub(crate) last_sent: Instant,
    pub(crate) last_heard: Instant,
    /// When an unacceptable segment was last answered.
    pub(crate) challenged_at: MaybeInstant,
    /// Keepalive probes without an answer.
    pub(crate) unanswered: u8,
    /// New data was sent since the stack began to serve this connection.
    pub(crate) sent_in_turn: bool,
    /// Data has come in ECN-capable packets (TCPI_OPT_ECN_SEEN).
    pub(crate) saw_capable: bool,
    /// See [`Delivery`].
    pub(crate) delivery: Delivery,
}

impl Counts {
    /// Returns the counters of irregularities.
    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn trouble_mut(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }
}

impl Connection {
    /// Makes a connection in state CLOSED.
    pub(crate) fn new(id: SocketId, tuple: Tuple, path: Path, cx: &Context) -> Self {
        let mut connection = Self {
            id,
            tuple,
            state: State::Closed,
            steady: false,
            has_no_ends: false,
            listener: None,
            path,
            segment: 0,
            peer: Peer::new(cx.secrets.stamp_offset(&tuple), Offer::of(&cx.config)),
            sender: Sender::new(cx.secrets.initial_sequence(&tuple, cx.now)),
            receiver: Receiver::new(cx.config.receive_buffer_bytes.0),
            ack: AckPolicy::default(),
            rtt: Rtt::default(),
            recovery: Recovery::default(),
            congestion: Congestion::new(cx.config.congestion, cx.config.initial_window_segments),
            pacer: Pacer::default(),
            device: DeviceQueue::default(),
            options: Options {
                not_sent_low_water: cx.config.not_sent_low_water,
                ..Options::default()
            },
            timers: Timers::default(),
            owed: Owed::default(),
            fast: Fast::default(),
            deferral: Deferral::default(),
            user: User::default(),
            counts: Counts { last_sent: cx.now, last_heard: cx.now, ..Counts::default() },
            spent: Spent::default(),
        };
        connection.resize_segment();
        connection
    }

    /// Touches the fields that are used late when a segment is sent or received. If the connection was quiet, none
    /// is in a cache: loads that are issued together are waited for once.
    #[inline]
    pub(crate) fn fetch(&self) {
        std::hint::black_box((
            self.recovery.progress_at,
            self.counts.bytes_sent,
            self.counts.last_heard,
            self.congestion.window,
            self.rtt.backoff,
            self.timers.loss,
        ));
    }

    /// Ends the steady state: the connection may change other than by its ordinary segments.
    #[inline]
    pub(crate) fn disturb(&mut self) {
        self.steady = false;
    }

    /// Changes the state as `cause` requires; returns whether there is such a transition.
    pub(crate) fn change_state(&mut self, cause: Cause) -> bool {
        let Some(next) = self.state.after(cause) else { return false };
        self.state = next;
        true
    }

    /// Returns the octets of data in a full segment.
    #[inline]
    pub(crate) fn segment_bytes(&self) -> u32 {
        debug_assert_eq!(
            u32::from(self.segment),
            self.reckon_segment(),
            "it has changed unnoticed"
        );
        self.segment.into()
    }

    /// Updates the size of a full segment after a change of path, peer, option, or the peer's largest window.
    pub(crate) fn resize_segment(&mut self) {
        self.segment = u16::try_from(self.reckon_segment()).unwrap_or(u16::MAX);
    }

    /// Computes the octets of data in a full segment: what peer, path and user allow, less the options that every segment
    /// has (RFC 9293 §3.7.1, RFC 6691).
    fn reckon_segment(&self) -> u32 {
        let headers = crate::frame::ip_header_bytes(self.tuple.is_ipv6()) + 20;
        let path = u32::from(self.path.mtu).saturating_sub(headers);
        let mut bytes = path.min(u32::from(self.peer.mss));
        if let Some(most) = self.options.most_segment_bytes {
            bytes = bytes.min(u32::from(most));
        }
        let stamps = if self.peer.stamps { peer::TIMESTAMP_BYTES } else { 0 };
        // A segment is at most half of the peer's largest window: otherwise no second segment
        // would ever fit beside one (Linux's tcp_bound_to_half_wnd).
        let window = self.sender.max_window;
        let half = if window > 536 { window / 2 } else { window };
        if half > 0 {
            bytes = bytes.min(half);
        }
        bytes.max(LEAST_SEGMENT_BYTES) - stamps
    }

    /// Returns the MSS that this side's SYN announces (RFC 9293 §3.7.1).
    pub(crate) fn announced_segment_bytes(&self) -> u32 {
        let headers = crate::frame::ip_header_bytes(self.tuple.is_ipv6()) + 20;
        let path = u32::from(self.path.mtu).saturating_sub(headers);
        self.options.most_segment_bytes.map_or(path, |most| path.min(most.into()))
    }

    /// Returns the octets of the IP and TCP headers of a data segment.
    pub(crate) fn header_bytes(&self) -> u32 {
        let stamps = if self.peer.stamps { peer::TIMESTAMP_BYTES } else { 0 };
        crate::frame::ip_header_bytes(self.tuple.is_ipv6()) + 20 + stamps
    }

    /// Returns the number of segments that are considered in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.sender.flight.in_flight().saturating_sub(self.recovery.duplicates)
    }

    /// Returns the window scale shift of our windows: the one that the SYN has announced stays (RFC 7323 §2.2), whatever happens
    /// to the buffer.
    pub(crate) fn receive_shift(&self, cx: &Context) -> u8 {
        let has_told = self.sender.nxt != self.sender.iss;
        let most = self.options.receive_buffer_bytes.unwrap_or(cx.config.receive_buffer_bytes.1);
        if has_told { self.peer.receive_shift } else { shift_for(most) }
    }

    /// Returns how many bytes the send buffer may hold: twice the largest congestion window so far, so that a full one can be
    /// refilled while it is acknowledged, each segment counted with what it takes of Linux's memory. A user that writes to a peer
    /// that does not read yet can thus queue as much as there (tcp_sndbuf_expand, which does not shrink it either).
    pub(crate) fn send_limit(&self, cx: &Context) -> u32 {
        let (least, most) = cx.config.send_buffer_bytes;
        if cx.pool.is_short() {
            let bytes = self.options.send_buffer_bytes.unwrap_or(least);
            return if cx.pool.is_full() { bytes.min(LEAST_BYTES) } else { bytes };
        }
        if let Some(bytes) = self.options.send_buffer_bytes {
            return bytes;
        }
        let segment = (self.segment_bytes() + HEADROOM_BYTES).next_power_of_two() + SKB_BYTES;
        let most = most / COUNTED_SEGMENT_BYTES * self.segment_bytes().min(COUNTED_SEGMENT_BYTES);
        self.congestion.largest().saturating_mul(2 * segment).min(most).max(least)
    }

    /// Ends the connection, and tells the user why; after this only an owed reset is sent.
    pub(crate) fn finish(
        &mut self,
        cause: Cause,
        error: Option<ConnectionError>,
        cx: &mut Context,
    ) {
        let one_sided = matches!(cause, Cause::GiveUp | Cause::Abort);
        if one_sided && self.state.is_synchronised() && cx.config.shares_addresses {
            cx.given_up.add(&self.tuple, cx.now);
        }
        self.count_as(Counted::No, cx);
        self.change_state(cause);
        self.state = State::Closed;
        self.timers.stop_all();
        let reset = self.owed.has(Owed::RESET);
        self.owed.clear_all();
        if reset {
            self.owed.add(Owed::RESET);
        }
        self.sender.release(&mut cx.pool);
        // Data received before a reset can still be read, as in Linux.
        if !self.user.attached {
            self.receiver.release(&mut cx.pool);
        }
        self.user.note_end(error);
    }

    /// Continues the handshake of a SYN cookie, with what the SYN-ACK announced.
    pub(crate) fn begin_from_cookie(&mut self, iss: SeqNumber, now: Instant) {
        self.sender = Sender::new(iss);
        self.resize_segment();
        self.sender.nxt = iss + 1;
        self.receiver.window = self.receiver.limit.min(u32::from(u16::MAX));
        self.owed.clear(Owed::SYN_ACK);
        self.recovery.progress_at = now;
        self.deferral = Deferral::of_cookie();
    }

    /// Moves the initial sequence number beyond those of the previous connection with the same ends (RFC 9293 §3.6.1), with the
    /// gap that Linux leaves (tcp_timewait_state_process).
    pub(crate) fn begin_behind(&mut self, last: SeqNumber) {
        const GAP: u32 = 65_535 + 2;
        let has_begun = self.sender.nxt != self.sender.iss;
        if !has_begun && !self.sender.iss.after(last) {
            self.sender.renumber(last + GAP);
        }
    }

    /// Begins an active open (RFC 9293 §3.10.1).
    pub(crate) fn open(&mut self) {
        self.change_state(Cause::ActiveOpen);
        self.owed.add(Owed::SYN);
    }

    /// Returns whether an acknowledgment number acknowledges something new that was sent
    /// (SND.UNA < SEG.ACK =< SND.NXT).
    pub(crate) fn is_acceptable_ack(&self, ack: SeqNumber) -> bool {
        ack.after(self.sender.una) && !ack.after(self.sender.nxt)
    }
}

#[cfg(test)]
mod tests {
    use super::Connection;

    /// Room for a million idle connections at a kibibyte each: with its entries in slab, wheel and table, and
    /// their reserves, a connection takes about a hundred octets more than its own.
    #[test]
    fn a_connection_stays_small() {
        let bytes = size_of::<Connection>();
        assert!(bytes <= 912, "{bytes}");
    }
}
