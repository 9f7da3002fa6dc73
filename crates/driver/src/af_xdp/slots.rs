//! Tracks which slots are empty, and what the slots in flight hold.

use uncork_packet::{Completion, Owner};

use super::area::Slot;
use super::geometry::Geometry;

/// What a slot in flight holds.
#[derive(Debug, Clone, Copy)]
struct Sent {
    owner: Option<Owner>,
    bytes: u32,
    /// Number of its chunks whose completion has not been reported.
    chunks: u32,
}

/// All slots. Each is either empty, lent, or in flight.
#[derive(Debug)]
pub(super) struct Slots {
    geometry: Geometry,
    /// Empty slots; the most recently used one, which may still be in the processor's cache, is lent first.
    empty: Vec<u32>,
    /// By number: slots in flight.
    sent: Vec<Option<Sent>>,
}

impl Slots {
    /// Makes the slots, all empty.
    pub(super) fn new(geometry: Geometry) -> Self {
        let slots = geometry.slots;
        Self {
            geometry,
            empty: (0..slots).rev().collect(),
            sent: (0..slots).map(|_| None).collect(),
        }
    }

    /// Number of slots in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.sent.len() - self.empty.len()
    }

    /// Whether no slot is empty.
    pub(super) fn is_all_lent(&self) -> bool {
        self.empty.is_empty()
    }

    /// Takes an empty slot.
    pub(super) fn take(&mut self) -> Option<Slot> {
        let number = self.empty.pop()?;
        Some(Slot { number, at: self.geometry.slot(number), bytes: self.geometry.slot_bytes() })
    }

    /// Returns a slot that was not used.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.empty.push(slot.number);
    }

    /// Notes that a slot is sent, in this many chunks.
    pub(super) fn send(&mut self, slot: &Slot, owner: Option<Owner>, bytes: u32, chunks: u32) {
        if let Some(sent) = self.sent.get_mut(slot.number as usize) {
            *sent = Some(Sent { owner, bytes, chunks });
        }
    }

    /// Notes that the chunk at this offset has left, as the kernel says.
    pub(super) fn finish(&mut self, at: u64, completed: &mut Vec<Completion>) {
        let Some(number) = self.geometry.slot_of(at) else { return };
        let place = &mut self.sent[number as usize];
        // What is not in flight cannot have left, whatever the kernel says.
        let Some(sent) = place else { return };
        sent.chunks -= 1;
        if sent.chunks > 0 {
            return;
        }
        if let Some(owner) = sent.owner {
            crate::completed(completed, owner, sent.bytes);
        }
        *place = None;
        self.empty.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_left_when_all_its_chunks_have_and_no_slot_is_given_twice() {
        let geometry = Geometry::new(4, 2, 9018).unwrap();
        let mut slots = Slots::new(geometry);
        let (one, two) = (slots.take().unwrap(), slots.take().unwrap());
        assert!(slots.take().is_none());
        slots.send(&one, Some(Owner(7)), 9000, 3);
        slots.give_back(two);
        let mut told = Vec::new();
        let chunk = |index: u64| one.at + index * 4096;
        for index in [2, 0] {
            slots.finish(chunk(index), &mut told);
            assert!(told.is_empty());
        }
        slots.finish(chunk(1), &mut told);
        assert_eq!(told, [Completion { owner: Owner(7), bytes: 9000 }]);
        assert_eq!(slots.in_flight(), 0);
        // Reported once more, and at offsets outside of the slots.
        slots.finish(chunk(1), &mut told);
        slots.finish(0, &mut told);
        slots.finish(u64::MAX, &mut told);
        assert_eq!((told.len(), slots.in_flight()), (1, 0));
        assert!(slots.take().is_some() && slots.take().is_some() && slots.take().is_none());
    }
}
