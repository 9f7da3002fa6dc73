//! The way that a connection's packets go, and what routers say of it: how long they may be (RFC 1191, RFC 8201), and that
//! they do not arrive.

use uncork_wire::SeqNumber;

use super::{Cause, Connection, ConnectionError, Fast, Owed, State};
use crate::context::Context;
use crate::interface::NeighbourId;
use crate::interface::arrival::{Complaint, Undelivered};

/// No path of IPv4 gets smaller segments than this one would (Linux's min_pmtu).
const LEAST_MTU_V4: u32 = 552;
/// Nor is there one of IPv6 that takes no more than less (RFC 8200 §5).
const LEAST_MTU_V6: u32 = 1280;

/// The way that its packets go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// Whose hardware address they get; none where packets have none.
    pub(crate) neighbour: Option<NeighbourId>,
    /// Largest packet that gets through, as far as is known.
    pub(crate) mtu: u16,
    /// Not even the smallest does: routers cut them to pieces.
    pub(crate) is_cut: bool,
    /// What is said if the connection is given up: a router's word that its packets do not arrive, until something has
    /// (sk_err_soft).
    pub(crate) soft_error: Option<ConnectionError>,
}

impl Connection {
    /// A router complains about a packet with this number, which may be anybody's who pretends to be one: it is believed
    /// only if that is on its way (RFC 5927 §4).
    pub(crate) fn hear_complaint(
        &mut self,
        cx: &mut Context,
        complaint: Complaint,
        seq: SeqNumber,
    ) {
        let sender = &self.sender;
        let is_on_its_way = !seq.before(sender.una) && seq.before(sender.nxt);
        match complaint {
            Complaint::TooBig(mtu) if is_on_its_way => self.narrow_path(cx, mtu),
            // What has the next number is an ACK, which may be all that is sent (tcp_v4_err).
            Complaint::Undeliverable(what) if is_on_its_way || seq == sender.nxt => {
                self.hear_undelivered(cx, what, seq);
            }
            _ => {}
        }
    }

    fn hear_undelivered(&mut self, cx: &mut Context, what: Undelivered, seq: SeqNumber) {
        if self.gives_up_when_unreachable() {
            self.finish(Cause::GiveUp, Some(what.error), cx);
            return;
        }
        // A soft error for a connection that is open (RFC 1122 §4.2.3.9, RFC 5461): it goes on trying.
        self.path.soft_error = Some(what.error);
        if what.is_cut_off && seq == self.sender.una {
            self.take_doubling_back(cx);
        }
    }

    /// Whether a router's word that nobody is there ends it. A connection that is open goes on trying
    /// (RFC 1122 §4.2.3.9, RFC 5461); so does one that is its user's already (tcp_v4_err).
    fn gives_up_when_unreachable(&self) -> bool {
        match self.state {
            State::SynSent => true,
            State::SynReceived => !self.fast.has(Fast::ACCEPTED),
            _ => false,
        }
    }

    /// Nobody has the address that its packets go to next. Linux hears of that as by a router, of packets that were sent or
    /// would be but for that (arp_error_report); not of probes, whose number has been acknowledged.
    pub(crate) fn hear_of_no_neighbour(&mut self, cx: &Context) {
        let sender = &self.sender;
        let has_more = sender.unsent_bytes() > 0 || sender.owes_fin();
        if sender.una != sender.nxt || has_more && sender.window_room() > 0 {
            self.path.soft_error = Some(ConnectionError::Unreachable);
        }
        // What could not even be sent has no timer yet, and is to be given up as what was sent is.
        if sender.flight.is_empty() {
            self.arm_loss_timer(cx);
        }
    }

    /// Why it is given up: what was said last of the way, if nothing has come through since (tcp_write_err).
    pub(super) fn reason_to_give_up(&self) -> ConnectionError {
        self.path.soft_error.unwrap_or(ConnectionError::TimedOut)
    }

    /// It was the way, and no crowd on it, that the last repetition was lost to: the next one comes as soon as if
    /// that had not been sent, so that one which is there again is found soon (RFC 6069 §4, tcp_ld_RTO_revert).
    fn take_doubling_back(&mut self, cx: &Context) {
        let repeats = self.state.is_synchronised() && self.recovery.timeouts > 0;
        if repeats && self.rtt.backoff > 0 && !self.sender.flight.is_empty() {
            self.rtt.backoff -= 1;
            self.arm_loss_timer(cx);
        }
    }

    /// A router takes no packets longer than `mtu`. That is no reason to send segments as small as anybody says: on a path
    /// that is narrower than any of IPv4 should be the smallest are cut (Linux locks the MTU of the route then,
    /// __ip_rt_update_pmtu); on one of IPv6 there is none (RFC 8201 §4: discarded).
    fn narrow_path(&mut self, cx: &mut Context, mtu: u32) {
        if self.tuple.is_ipv6() {
            if mtu >= LEAST_MTU_V6 {
                self.shrink_path(cx, mtu);
            }
            return;
        }
        self.path.is_cut |= mtu < LEAST_MTU_V4;
        self.shrink_path(cx, mtu.max(LEAST_MTU_V4));
    }

    /// No packet longer than `mtu` gets through: what is in flight counts as lost, once, and goes
    /// out again in smaller segments (RFC 1191 §6.4; no congestion, RFC 8899 §3).
    pub(crate) fn shrink_path(&mut self, cx: &mut Context, mtu: u32) {
        let Ok(mtu) = u16::try_from(mtu) else { return };
        if mtu >= self.path.mtu {
            return;
        }
        self.path.mtu = mtu;
        self.resize_segment();
        if self.state == State::SynSent {
            // A SYN with data was too long: at once without (tcp_simple_retransmit). Its round trip is
            // no longer known.
            if self.fast.has(Fast::SYN_DATA) {
                self.recovery.timeouts = self.recovery.timeouts.max(1);
                self.owed.add(Owed::SYN);
            }
            return;
        }
        let segment_bytes = self.segment_bytes();
        self.sender.flight.resegment(segment_bytes);
        self.arm_loss_timer(cx);
    }

    /// What its next packet is called, that its pieces be put together again and with no other's (RFC 6864 §4.3); none if
    /// routers must not cut it. As in Linux each connection counts from a number that is secret (inet_id).
    #[inline]
    pub(super) fn packet_id(&self) -> Option<u16> {
        #[expect(clippy::cast_possible_truncation, reason = "so is the field")]
        self.path.is_cut.then(|| {
            ((self.sender.iss.0 >> 16) as u16).wrapping_add(self.counts.segments_out as u16)
        })
    }
}
