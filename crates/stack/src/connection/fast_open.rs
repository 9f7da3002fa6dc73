//! TCP Fast Open in one connection (RFC 7413): data in its SYN or SYN-ACK, and how it is acknowledged.
//!
//! Every failure ends in an ordinary handshake: a SYN that is retransmitted has neither cookie nor
//! data, and data that the SYN-ACK does not acknowledge is sent again at once.

use serde::{Deserialize, Serialize};
use uncork_wire::SeqNumber;
use uncork_wire::tcp::{Flags, OptionSet};

use super::arrival::{Outcome, Segment};
use super::recovery::Delivered;
use super::recovery::judging::Judgement;
use super::{Connection, ConnectionError, Owed, State};
use crate::context::Context;
use crate::event::Ready;
use crate::fast_open::cache::Lesson;
use crate::fast_open::{Judgement as Answer, ends};

/// Octets of a SYN that are left free for options, which routers may add (MAX_TCP_OPTION_SPACE, as
/// in Linux).
const OPTION_ROOM: u32 = 40;

/// Fast Open flags of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fast(u16);

impl Fast {
    /// The user wants it: the SYN has a cookie, requests one, or has data without one.
    pub(crate) const WANTED: u16 = 1;
    /// The option was the experimental one (kind 254).
    pub(crate) const EXPERIMENTAL: u16 = 1 << 1;
    /// The SYN waits for the first bytes that the user sends.
    pub(crate) const DEFERRED: u16 = 1 << 2;
    /// The SYN had data.
    pub(crate) const SYN_DATA: u16 = 1 << 3;
    /// The data of a SYN was accepted, by the peer or by this side (TCPI_OPT_SYN_DATA).
    pub(crate) const TAKEN: u16 = 1 << 4;
    /// The user needs no cookie (TCP_FASTOPEN_NO_COOKIE).
    pub(crate) const WITHOUT_COOKIE: u16 = 1 << 5;
    /// It came to a listener and belongs to the user already, and its handshake is not complete.
    pub(crate) const CHILD: u16 = 1 << 6;
    /// The first SYN-ACK issues a cookie.
    pub(crate) const GIVES: u16 = 1 << 7;
    /// It was accepted before its handshake was complete.
    pub(crate) const ACCEPTED: u16 = 1 << 8;
    /// No cookie was known.
    pub(crate) const NO_COOKIE_KNOWN: u16 = 1 << 9;
    /// The SYN-ACK did not acknowledge the data.
    pub(crate) const NOT_ACKNOWLEDGED: u16 = 1 << 10;
    /// The SYN had to be retransmitted.
    pub(crate) const SYN_REPEATED: u16 = 1 << 11;

    pub(crate) fn has(self, what: u16) -> bool {
        self.0 & what != 0
    }

    pub(crate) fn add(&mut self, what: u16) {
        self.0 |= what;
    }

    pub(crate) fn clear(&mut self, what: u16) {
        self.0 &= !what;
    }
}

/// Why data in a SYN was not accepted (tcpi_fastopen_client_fail).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum FastOpenFailure {
    /// It was accepted, or not tried (TFO_STATUS_UNSPEC).
    #[default]
    None,
    /// No cookie was known (TFO_COOKIE_UNAVAILABLE).
    CookieUnavailable,
    /// The peer acknowledged only the SYN (TFO_DATA_NOT_ACKED).
    DataNotAcknowledged,
    /// The SYN was lost (TFO_SYN_RETRANSMITTED).
    SynRepeated,
}

impl Fast {
    pub(crate) fn failure(self) -> FastOpenFailure {
        if self.has(Self::TAKEN) {
            FastOpenFailure::None
        } else if self.has(Self::SYN_REPEATED) {
            FastOpenFailure::SynRepeated
        } else if self.has(Self::NOT_ACKNOWLEDGED) {
            FastOpenFailure::DataNotAcknowledged
        } else if self.has(Self::NO_COOKIE_KNOWN) {
            FastOpenFailure::CookieUnavailable
        } else {
            FastOpenFailure::None
        }
    }
}

impl Connection {
    /// Begins an active open whose SYN may have data; returns whether the SYN waits for data.
    pub(crate) fn open_fast(&mut self, cx: &Context, without_cookie: bool) -> bool {
        self.open();
        self.fast.add(Fast::WANTED);
        if without_cookie {
            self.fast.add(Fast::WITHOUT_COOKIE);
        }
        let waits = cx.fast_open.offer(&self.tuple, without_cookie).with_data;
        if waits {
            self.owed.clear(Owed::SYN);
            self.fast.add(Fast::DEFERRED);
            self.user.news |= Ready::WRITABLE;
        }
        waits
    }

    /// Sends a SYN that has waited for data.
    pub(crate) fn launch(&mut self) {
        if self.fast.has(Fast::DEFERRED) && self.state == State::SynSent {
            self.fast.clear(Fast::DEFERRED);
            self.owed.add(Owed::SYN);
        }
    }

    /// Returns how many octets of data the SYN has room for: a segment of the size that the peer announced last time, less
    /// the room for options (tcp_send_syn_data).
    pub(crate) fn syn_room(&self, cx: &Context) -> u32 {
        let known = cx.fast_open.offer(&self.tuple, true).mss.map_or(u32::MAX, u32::from);
        self.segment_bytes().min(known).saturating_sub(OPTION_ROOM)
    }

    /// Fills in option and data of a SYN; only the first one has any (RFC 7413 §4.2.1). Returns the octets of data.
    pub(crate) fn fill_syn(&mut self, cx: &mut Context, options: &mut OptionSet) -> u32 {
        if !self.fast.has(Fast::WANTED) {
            return 0;
        }
        if self.sender.nxt != self.sender.iss {
            if self.fast.has(Fast::SYN_DATA) {
                self.fast.add(Fast::SYN_REPEATED);
            }
            return 0;
        }
        let offer = cx.fast_open.offer(&self.tuple, self.fast.has(Fast::WITHOUT_COOKIE));
        options.fast_open = offer.cookie;
        if offer.cookie.is_some_and(|cookie| cookie.is_experimental()) {
            self.fast.add(Fast::EXPERIMENTAL);
        }
        if !offer.with_data {
            self.fast.add(Fast::NO_COOKIE_KNOWN);
            return 0;
        }
        let bytes = self.syn_room(cx).min(self.sender.unsent_bytes());
        if bytes == 0 {
            return 0;
        }
        self.fast.add(Fast::SYN_DATA);
        let first = self.sender.iss + 1;
        self.sender.flight.push((first, first + bytes), 1, (cx.now, cx.now), &mut cx.pool);
        self.sender.nxt = first + bytes;
        self.counts.bytes_sent += u64::from(bytes);
        self.counts.data_segments_out += 1;
        self.counts.last_sent = cx.now;
        bytes
    }

    /// Handles a SYN-ACK: stores its cookie, and marks data that it does not acknowledge for retransmission
    /// (RFC 7413 §4.2.1 and §4.1.3; tcp_rcv_fastopen_synack). Returns whether there is any.
    pub(super) fn finish_fast_open(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
        repeated: bool,
    ) -> bool {
        if !self.fast.has(Fast::WANTED) {
            return false;
        }
        let cookie = segment.options.fast_open.filter(|cookie| !cookie.is_request());
        // A cookie that was not requested is not stored.
        let asked = !self.goes_without_cookie(cx);
        let refused = asked && cookie.is_none() && !repeated && !self.fast.has(Fast::SYN_DATA);
        cx.fast_open.cache.learn(
            ends(&self.tuple),
            Lesson {
                mss: segment.options.mss.or(Some(self.peer.mss)),
                cookie: cookie.filter(|_| asked),
                refused: refused.then(|| self.fast.has(Fast::EXPERIMENTAL)),
            },
        );
        if !self.fast.has(Fast::SYN_DATA) {
            return false;
        }
        if self.sender.flight.is_empty() {
            cx.counters.fast_open_active += 1;
            self.fast.add(Fast::TAKEN);
            return false;
        }
        cx.counters.fast_open_active_failed += 1;
        self.fast.add(Fast::NOT_ACKNOWLEDGED);
        // The SYN's data stays a segment of its own, however often it is sent (tcp_send_syn_data).
        self.sender.push_here();
        // This is no congestion: the peer did not accept it (tcp_non_congestion_loss_retransmit).
        let mss = self.segment_bytes();
        self.sender.flight.resegment(mss);
        self.sender.flight.judge(|_| Judgement::Lost);
        self.recovery.enter_resending(self.sender.nxt);
        true
    }

    fn goes_without_cookie(&self, cx: &Context) -> bool {
        cx.fast_open.offer(&self.tuple, self.fast.has(Fast::WITHOUT_COOKIE)).cookie.is_none()
    }

    /// Processes the SYN-ACK's acknowledgment of the SYN's data.
    pub(super) fn acknowledge_syn_data(&mut self, cx: &mut Context, ack: SeqNumber) {
        let mss = self.segment_bytes();
        let octets = (ack - self.sender.buffer_start()).max(0).unsigned_abs();
        self.counts.bytes_acked += u64::from(octets);
        let mut delivered = Delivered::default();
        self.sender.flight.acknowledge(ack, mss, &mut delivered, |_| {});
        self.sender.acknowledge(ack, &mut cx.pool);
    }

    /// Takes the data of a SYN-ACK, if this side wants Fast Open (RFC 7413 §4.2.2).
    pub(super) fn take_syn_ack_data(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
    ) -> Result<(), Outcome> {
        if !self.fast.has(Fast::WANTED) {
            return Ok(());
        }
        let behind = behind_syn(segment);
        self.take_data(cx, &behind)?;
        self.take_fin(cx, &behind);
        Ok(())
    }

    /// Handles a SYN whose data is accepted, or that gets a cookie (RFC 7413 §4.2.2).
    pub(crate) fn answer_fast(&mut self, cx: &mut Context, segment: &Segment<'_>, answer: Answer) {
        let experimental = segment.options.fast_open.is_some_and(|one| one.is_experimental());
        if experimental {
            self.fast.add(Fast::EXPERIMENTAL);
        }
        if matches!(answer, Answer::Give | Answer::Accept { gives: true }) {
            self.fast.add(Fast::GIVES);
        }
        if !matches!(answer, Answer::Accept { .. }) {
            return;
        }
        cx.counters.fast_open_passive += 1;
        self.fast.add(Fast::CHILD);
        self.user.attached = true;
        let behind = behind_syn(segment);
        let window = self.receiver.limit.min(u32::from(u16::MAX)) as usize;
        let data = &behind.data[..behind.data.len().min(window)];
        if !data.is_empty() {
            self.fast.add(Fast::TAKEN);
            self.receiver.take(behind.seq, data, &mut cx.pool);
            self.counts.bytes_received += data.len() as u64;
            self.counts.data_segments_in += 1;
            self.user.news |= Ready::READABLE;
        }
        self.user.news |= Ready::CONNECTED | Ready::WRITABLE;
        self.ack.begin(self.segment_bytes(), self.receiver.limit, cx.now);
    }

    /// Adds the cookie to a SYN-ACK: only to the first one, as in Linux.
    pub(crate) fn fill_syn_ack(&mut self, cx: &Context, options: &mut OptionSet) {
        if self.fast.has(Fast::GIVES) {
            self.fast.clear(Fast::GIVES);
            let cookie = cx.fast_open.keys(self.listener).cookie(ends(&self.tuple));
            options.fast_open = Some(cookie.in_experiment(self.fast.has(Fast::EXPERIMENTAL)));
        }
    }

    /// Returns whether the connection may send data before its handshake is complete.
    pub(crate) fn is_fast_child(&self) -> bool {
        self.fast.has(Fast::CHILD) && self.state == State::SynReceived
    }

    /// Returns whether a reset ended it, and not its user.
    pub(crate) fn was_reset(&self) -> bool {
        self.state == State::Closed && self.user.error() == Some(ConnectionError::Reset)
    }
}

/// Returns the segment without its SYN.
fn behind_syn<'a>(segment: &Segment<'a>) -> Segment<'a> {
    Segment { seq: segment.seq + 1, flags: Flags(segment.flags.0 & !Flags::SYN.0), ..*segment }
}
