//! Two ports back to back, in memory: what is sent at one is received at the other.
//!
//! The device queue holds what one side has sent and the other not yet received. A frame has left
//! when it was received, and that is when its completion is reported.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use uncork_packet::{Capabilities, Checksum, Completion, Received, Transmit, Trust};

use crate::{Driver, Offer};

/// Room for the header before IP.
const LINK_BYTES: usize = 14;

/// One end of the pair.
#[derive(Debug)]
pub struct Port {
    capabilities: Capabilities,
    outgoing: Arc<Mutex<Way>>,
    incoming: Arc<Mutex<Way>>,
    /// Frames taken off the queue, so that it is not locked while they are processed.
    batch: Vec<Frame>,
}

/// The frames of one direction.
#[derive(Debug, Default)]
struct Way {
    queued: VecDeque<Frame>,
    /// Frames that were received, to be reused.
    empty: Vec<Frame>,
    completed: Vec<Completion>,
}

#[derive(Debug)]
struct Frame {
    bytes: Box<[u8]>,
    transmit: Option<Transmit>,
}

/// Makes two ports, each of which has `slots` frames for what it sends.
#[must_use]
pub fn pair(capabilities: Capabilities, slots: usize) -> (Port, Port) {
    let there = Arc::new(Mutex::new(Way::new(capabilities, slots)));
    let back = Arc::new(Mutex::new(Way::new(capabilities, slots)));
    let port = |outgoing: &Arc<_>, incoming: &Arc<_>| Port {
        capabilities,
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
        batch: Vec::with_capacity(slots),
    };
    (port(&there, &back), port(&back, &there))
}

impl Way {
    fn new(capabilities: Capabilities, slots: usize) -> Self {
        let longest = capabilities.max_train_bytes.max(u32::from(capabilities.mtu));
        let bytes = LINK_BYTES + usize::try_from(longest).unwrap_or(usize::MAX);
        Self {
            queued: VecDeque::with_capacity(slots),
            empty: (0..slots)
                .map(|_| Frame { bytes: vec![0; bytes].into_boxed_slice(), transmit: None })
                .collect(),
            completed: Vec::with_capacity(slots),
        }
    }
}

fn lock(way: &Mutex<Way>) -> std::sync::MutexGuard<'_, Way> {
    // No code here leaves a queue half changed, so a panic elsewhere is no reason to stop.
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, budget: usize, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        {
            let mut way = lock(&self.incoming);
            let count = budget.min(way.queued.len());
            self.batch.extend(way.queued.drain(..count));
        }
        for frame in &self.batch {
            let Some(transmit) = frame.transmit else { continue };
            let bytes = usize::try_from(transmit.frame_bytes).unwrap_or(usize::MAX);
            each(Received {
                bytes: frame.bytes.get(..bytes).unwrap_or(&frame.bytes),
                // As over a virtual link: a checksum that was left to the device was never on a wire.
                trust: match transmit.checksum {
                    Checksum::Partial { .. } => Trust::Good,
                    Checksum::Complete => Trust::Unknown,
                },
                segment_bytes: transmit.segmentation.map(|how| how.segment_bytes),
            });
        }
        let received = self.batch.len();
        if received > 0 {
            let mut way = lock(&self.incoming);
            for mut frame in self.batch.drain(..) {
                if let Some(Transmit { owner: Some(owner), frame_bytes, .. }) =
                    frame.transmit.take()
                {
                    crate::completed(&mut way.completed, owner, frame_bytes);
                }
                way.empty.push(frame);
            }
        }
        Ok(received)
    }

    fn has_frames(&mut self) -> bool {
        !lock(&self.incoming).queued.is_empty()
    }

    fn is_filling(&mut self) -> bool {
        let way = lock(&self.incoming);
        way.queued.len() > way.empty.len()
    }

    fn complete(&mut self, each: &mut dyn FnMut(Completion)) -> io::Result<()> {
        let mut way = lock(&self.outgoing);
        way.completed.drain(..).for_each(each);
        Ok(())
    }

    fn offer(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>) -> io::Result<Offer> {
        // The other side waits while a frame is written: one lock for a frame instead of two.
        let mut way = lock(&self.outgoing);
        let Some(mut frame) = way.empty.pop() else { return Ok(Offer::Full) };
        frame.transmit = fill(&mut frame.bytes);
        Ok(if frame.transmit.is_some() {
            way.queued.push_back(frame);
            Offer::Taken
        } else {
            way.empty.push(frame);
            Offer::Declined
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::{Capabilities, Checksum, Completion, Medium, Owner, Transmit};

    use super::pair;
    use crate::{Driver, Offer};

    fn frame(slot: &mut [u8], text: &[u8], owner: u64) -> Transmit {
        slot[..text.len()].copy_from_slice(text);
        Transmit {
            frame_bytes: u32::try_from(text.len()).unwrap(),
            checksum: Checksum::Complete,
            segmentation: None,
            owner: Some(Owner(owner)),
        }
    }

    #[test]
    fn a_frame_has_left_when_the_other_side_has_received_it() {
        let (mut a, mut b) = pair(Capabilities::plain(Medium::Ip, 1500), 2);
        let mut send = |text: &[u8]| a.offer(&mut |slot| Some(frame(slot, text, 7))).unwrap();
        assert_eq!(send(b"one"), Offer::Taken);
        assert_eq!(send(b"four"), Offer::Taken);
        assert_eq!(send(b"too many"), Offer::Full);
        let mut gone = vec![];
        a.complete(&mut |completion| gone.push(completion)).unwrap();
        assert_eq!(gone, []);

        let mut seen = vec![];
        assert_eq!(b.receive(9, &mut |frame| seen.push(frame.bytes.to_vec())).unwrap(), 2);
        assert_eq!(seen, [b"one".to_vec(), b"four".to_vec()]);
        a.complete(&mut |completion| gone.push(completion)).unwrap();
        assert_eq!(gone, [Completion { owner: Owner(7), bytes: 7 }]);
        assert_eq!(a.offer(&mut |_| None).unwrap(), Offer::Declined);
        assert_eq!(b.receive(9, &mut |_| ()).unwrap(), 0);
    }
}
