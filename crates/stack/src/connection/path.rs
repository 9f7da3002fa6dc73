//! The path of a connection, and what ICMP errors say about it: its MTU (RFC 1191, RFC 8201), and that
//! packets are not delivered.

use uncork_wire::SeqNumber;

use super::{Cause, Connection, ConnectionError, Fast, Owed, State};
use crate::context::Context;
use crate::interface::NeighbourId;
use crate::interface::arrival::{Complaint, Undelivered};

/// Least MTU that an IPv4 path is taken to have (Linux's min_pmtu).
const LEAST_MTU_V4: u32 = 552;
/// Least MTU of IPv6 (RFC 8200 §5).
const LEAST_MTU_V6: u32 = 1280;

/// The path of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// The next hop, whose link-layer address packets get; none on links without addresses.
    pub(crate) neighbour: Option<NeighbourId>,
    /// Path MTU, as far as it is known.
    pub(crate) mtu: u16,
    /// Even the least MTU is too large: packets leave without DF, and routers fragment them.
    pub(crate) is_cut: bool,
    /// The error that is reported if the connection times out: the last ICMP error, until something has been acknowledged
    /// (sk_err_soft).
    pub(crate) soft_error: Option<ConnectionError>,
}

impl Connection {
    /// Handles an ICMP error about a packet with this sequence number. It may be spoofed, so it is believed
    /// only if that packet is in flight (RFC 5927 §4).
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
            // SND.NXT is the number of a pure ACK, which may be all that is sent (tcp_v4_err).
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
        // A soft error for an established connection (RFC 1122 §4.2.3.9, RFC 5461): it goes on trying.
        self.path.soft_error = Some(what.error);
        if what.is_cut_off && seq == self.sender.una {
            self.take_doubling_back(cx);
        }
    }

    /// Returns whether an unreachable destination ends the connection. An established one goes on trying
    /// (RFC 1122 §4.2.3.9, RFC 5461), and so does one that its user already has (tcp_v4_err).
    fn gives_up_when_unreachable(&self) -> bool {
        match self.state {
            State::SynSent => true,
            State::SynReceived => !self.fast.has(Fast::ACCEPTED),
            _ => false,
        }
    }

    /// Handles a failed resolution of the next hop. Linux treats it like an ICMP error about packets that were sent, or
    /// would have been (arp_error_report); not about probes, whose sequence number has been acknowledged.
    pub(crate) fn hear_of_no_neighbour(&mut self, cx: &Context) {
        let sender = &self.sender;
        let has_more = sender.unsent_bytes() > 0 || sender.owes_fin();
        if sender.una != sender.nxt || has_more && sender.window_room() > 0 {
            self.path.soft_error = Some(ConnectionError::Unreachable);
        }
        // What could not even be sent has no timer yet, and has to time out like what was sent.
        if sender.flight.is_empty() {
            self.arm_loss_timer(cx);
        }
    }

    /// Returns the error for a timeout: the last soft error, if nothing has been acknowledged since (tcp_write_err).
    pub(super) fn reason_to_give_up(&self) -> ConnectionError {
        self.path.soft_error.unwrap_or(ConnectionError::TimedOut)
    }

    /// Reverts one backoff: the last retransmission was lost to the broken path, not to congestion. The next one comes as soon
    /// as if that one had not been sent, so that a restored path is found soon (RFC 6069 §4, tcp_ld_RTO_revert).
    fn take_doubling_back(&mut self, cx: &Context) {
        let repeats = self.state.is_synchronised() && self.recovery.timeouts > 0;
        if repeats && self.rtt.backoff > 0 && !self.sender.flight.is_empty() {
            self.rtt.backoff -= 1;
            self.arm_loss_timer(cx);
        }
    }

    /// Handles a router's report that packets longer than `mtu` do not pass. Segments do not become as small as anybody claims:
    /// on an IPv4 path below the least MTU, packets of that size are fragmented (Linux locks the MTU of the route then,
    /// __ip_rt_update_pmtu); on an IPv6 path the report is discarded (RFC 8201 §4).
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

    /// Lowers the path MTU to `mtu`: what is in flight counts as lost, once, and is sent
    /// again in smaller segments (RFC 1191 §6.4; no congestion, RFC 8899 §3).
    pub(crate) fn shrink_path(&mut self, cx: &mut Context, mtu: u32) {
        let Ok(mtu) = u16::try_from(mtu) else { return };
        if mtu >= self.path.mtu {
            return;
        }
        self.path.mtu = mtu;
        self.resize_segment();
        if self.state == State::SynSent {
            // A SYN with data was too long: send it at once without (tcp_simple_retransmit). Its round trip
            // can no longer be measured.
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

    /// Returns the IPv4 identification of the next packet, unique so that fragments of two are not mixed (RFC 6864 §4.3); none
    /// if routers must not fragment it. As in Linux each connection counts from a secret number (inet_id).
    #[inline]
    pub(super) fn packet_id(&self) -> Option<u16> {
        #[expect(clippy::cast_possible_truncation, reason = "so is the field")]
        self.path.is_cut.then(|| {
            ((self.sender.iss.0 >> 16) as u16).wrapping_add(self.counts.segments_out as u16)
        })
    }
}
