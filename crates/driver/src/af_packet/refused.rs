//! Frames that the kernel does not take.
//!
//! What a device or a queue below has dropped at once, the kernel leaves in its slot as if it had not been asked for
//! it, and says ENOBUFS (tpacket_snd, net_xmit_errno): so it does when a queueing discipline is full, which is over
//! soon, and when a virtual link finds the frame longer than the other end's MTU (veth_xmit, is_skb_forwardable) or
//! that end down, which may last for ever. Of its own device's MTU it says nothing at all to who gives it vnet
//! headers. As the ring is sent from in order, everything waits behind such a frame.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use uncork_packet::{Medium, Transmit};

use super::port::{ETHERNET_BYTES, Port};
use crate::wakeup::RETRY_AFTER;

/// How often a frame is offered before it is given up, as a wire would have lost it: so many milliseconds. A queue that
/// has let nothing go in that time does the rest of the ring no good either.
const PATIENCE: u32 = 10;

/// What became of what the kernel was asked for.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// How often nothing of it was taken, in a row.
    times: u32,
    /// Not before this is it asked again.
    until: Option<Instant>,
}

impl Refused {
    /// Something has left, or was taken: it is worth trying again at once.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether something was refused, and nothing taken or gone since.
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
    /// Asks the kernel again in a while, and not before, unless something leaves.
    pub(super) fn put_off(&mut self) -> io::Result<()> {
        self.refused.until = Some(Instant::now() + RETRY_AFTER);
        self.wakeup.retry_soon()
    }

    /// Looks whether the MTU is another one by now, if the last look was a while ago.
    pub(super) fn look_at_mtu(&mut self) {
        if let Some(mtu) = self.mtu.look_if_due(&self.opened.socket) {
            self.follow(mtu);
        }
    }

    /// The device has this MTU; what is in the ring and too long for it is taken back, if there is anything.
    fn follow(&mut self, mtu: u16) -> bool {
        self.opened.capabilities = self.opened.device.capabilities_at(mtu);
        self.take_back(|bytes| bytes > u32::from(mtu))
    }

    /// The kernel has refused the next frame; whether to ask again at once, as another one is the next by now.
    pub(super) fn is_worth_asking_again(&mut self) -> bool {
        self.mtu.look(&self.opened.socket);
        if self.follow(self.mtu.value()) {
            return true;
        }
        if self.is_any_under_way() {
            // When those have left there is room.
            return false;
        }
        self.refused.times = self.refused.times.saturating_add(1);
        if self.refused.times < PATIENCE {
            return false;
        }
        let mut first = true;
        self.take_back(|_| std::mem::take(&mut first))
    }

    /// Whether something that the kernel has taken has not left.
    fn is_any_under_way(&self) -> bool {
        let transmit = &self.opened.transmit;
        let mut sent = self.sent.iter().enumerate().filter(|(_, sent)| sent.is_some());
        sent.any(|(slot, _)| !transmit.is_empty(slot) && !transmit.is_asked_for(slot))
    }

    /// Takes those back that the kernel was asked for and that are to be dropped, by the lengths of their packets;
    /// whether there were any.
    fn take_back(&mut self, mut drops: impl FnMut(u32) -> bool) -> bool {
        let kicker = Arc::clone(&self.kicker);
        // Who is at it has others behind it, and comes back if the kernel does not take all.
        let Some(kept) = kicker.keep() else { return false };
        let geometry = self.opened.transmit.geometry();
        let (mut slot, mut any) = (self.oldest, false);
        for _ in 0..self.in_flight {
            if let Some(sent) = &mut self.sent[slot]
                && sent.packet_bytes > 0
                && self.opened.transmit.is_asked_for(slot)
                && drops(sent.packet_bytes)
            {
                // Once is enough: its slot is passed over when the kernel is asked.
                sent.packet_bytes = 0;
                self.opened.transmit.void(slot, &kept);
                any = true;
            }
            slot = geometry.next(slot);
        }
        any
    }
}
