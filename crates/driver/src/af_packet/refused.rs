//! Frames that the kernel refuses to send.
//!
//! A frame that a device or a queue below has dropped at once stays in its slot as if the kernel had not been asked to
//! send it, and send(2) returns ENOBUFS (tpacket_snd, net_xmit_errno). That happens when a queueing discipline is full,
//! which is over soon, and when a virtual link finds the frame longer than the peer device's MTU (veth_xmit,
//! is_skb_forwardable) or that device down, which may last for ever. With vnet headers, the MTU of the sending device
//! itself is not checked at all. As the ring is sent in order, everything waits for such a frame.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use uncork_packet::{Medium, Transmit};

use super::port::{ETHERNET_BYTES, Port};
use crate::wakeup::RETRY_AFTER;

/// How often a frame is offered before it is dropped, as a wire would have lost it; one attempt a millisecond. A queue
/// that has released nothing in that time does the rest of the ring no good either.
const PATIENCE: u32 = 10;

/// Backoff state after refused frames.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Consecutive attempts in which the kernel took nothing.
    times: u32,
    /// The kernel is not asked again before this.
    until: Option<Instant>,
}

impl Refused {
    /// Resets the backoff: something has left or was taken, so an immediate retry is worth it.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a frame was refused, and none was taken or has left since.
    pub(super) fn is_any(&self) -> bool {
        self.times > 0 || self.until.is_some()
    }

    /// Whether it is too early to ask again.
    pub(super) fn waits(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Length of the longest packet that a frame is on the link, in octets.
pub(super) fn packet_bytes(transmit: &Transmit, medium: Medium) -> u32 {
    let frame = transmit.segmentation.map_or(transmit.frame_bytes, |cut| {
        transmit.frame_bytes.min(u32::from(cut.header_bytes) + u32::from(cut.segment_bytes))
    });
    let link = if medium == Medium::Ethernet { ETHERNET_BYTES } else { 0 };
    frame.saturating_sub(u32::try_from(link).unwrap_or(0))
}

impl Port {
    /// Schedules the next attempt, before which the kernel is not asked unless something leaves.
    pub(super) fn put_off(&mut self) -> io::Result<()> {
        self.refused.until = Some(Instant::now() + RETRY_AFTER);
        self.wakeup.retry_soon()
    }

    /// Looks whether the MTU has changed, if the last look was a while ago.
    pub(super) fn look_at_mtu(&mut self) {
        if let Some(mtu) = self.mtu.look_if_due(&self.opened.socket) {
            self.follow(mtu);
        }
    }

    /// Adopts an MTU; takes back frames in the ring that are too long for it, and returns whether there were any.
    fn follow(&mut self, mtu: u16) -> bool {
        self.opened.capabilities = self.opened.device.capabilities_at(mtu);
        self.take_back(|bytes| bytes > u32::from(mtu))
    }

    /// The kernel has refused the head frame; returns whether to ask again at once, as another frame is the head by now.
    pub(super) fn is_worth_asking_again(&mut self) -> bool {
        self.mtu.look(&self.opened.socket);
        if self.follow(self.mtu.value()) {
            return true;
        }
        if self.is_any_under_way() {
            // There is room once those have left.
            return false;
        }
        self.refused.times = self.refused.times.saturating_add(1);
        if self.refused.times < PATIENCE {
            return false;
        }
        let mut first = true;
        self.take_back(|_| std::mem::take(&mut first))
    }

    /// Whether a frame that the kernel has taken has not left yet.
    fn is_any_under_way(&self) -> bool {
        let transmit = &self.opened.transmit;
        let mut sent = self.sent.iter().enumerate().filter(|(_, sent)| sent.is_some());
        sent.any(|(slot, _)| !transmit.is_empty(slot) && !transmit.is_asked_for(slot))
    }

    /// Takes back frames that wait for the kernel and that `drops` selects by the lengths of their packets; returns
    /// whether there were any.
    fn take_back(&mut self, mut drops: impl FnMut(u32) -> bool) -> bool {
        let kicker = Arc::clone(&self.kicker);
        // A thread that is making the call also sends for others, and retries if the kernel does not take all.
        let Some(kept) = kicker.keep() else { return false };
        let geometry = self.opened.transmit.geometry();
        let (mut slot, mut any) = (self.oldest, false);
        for _ in 0..self.in_flight {
            if let Some(sent) = &mut self.sent[slot]
                && sent.packet_bytes > 0
                && self.opened.transmit.is_asked_for(slot)
                && drops(sent.packet_bytes)
            {
                // Once is enough: the kernel skips the slot at the next call.
                sent.packet_bytes = 0;
                self.opened.transmit.void(slot, &kept);
                any = true;
            }
            slot = geometry.next(slot);
        }
        any
    }
}
