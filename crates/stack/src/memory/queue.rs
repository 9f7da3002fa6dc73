//! A queue of small values. The standard library's takes twice as many steps, as its storage may have any length;
//! that matters only for queues that each segment passes through more than once.

/// A first-in, first-out queue. The length of its storage is a power of two, or zero.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: Box<[T]>,
    /// Index of the first value, not reduced to the length of the storage.
    first: usize,
    len: usize,
}

impl<T: Copy> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Box::default(), first: 0, len: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first value.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<T> {
        if self.len == 0 { None } else { self.slots.get(self.index(0)).copied() }
    }

    /// Removes and returns the first value.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let value = self.front()?;
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Some(value)
    }

    /// Adds a value at the end.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, value: T) {
        if self.len == self.slots.len() {
            self.grow(value);
        }
        let index = self.index(self.len);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = value;
            self.len += 1;
        }
    }

    /// Moves all values of another queue to the end of this one.
    pub(crate) fn append(&mut self, other: &mut Self) {
        while let Some(value) = other.pop_front() {
            self.push_back(value);
        }
    }

    #[inline(always)]
    fn index(&self, at: usize) -> usize {
        self.first.wrapping_add(at) & self.slots.len().wrapping_sub(1)
    }

    /// Doubles the storage; `value` fills the slots that are not in use.
    #[cold]
    fn grow(&mut self, value: T) {
        let mut slots = vec![value; (self.slots.len() * 2).max(16)];
        for (at, slot) in slots.iter_mut().enumerate().take(self.len) {
            *slot = self.slots[self.index(at)];
        }
        self.slots = slots.into_boxed_slice();
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::Queue;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..40), 1..60)) {
            let (mut queue, mut other) = (Queue::new(), Queue::new());
            let mut model = VecDeque::new();
            for (adds, count) in steps {
                for n in 0..count {
                    if adds {
                        queue.push_back(n);
                        model.push_back(n);
                    } else {
                        prop_assert_eq!(queue.front(), model.front().copied());
                        prop_assert_eq!(queue.pop_front(), model.pop_front());
                    }
                }
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
            other.push_back(1000);
            queue.append(&mut other);
            model.push_back(1000);
            while let Some(value) = model.pop_front() {
                prop_assert_eq!(queue.pop_front(), Some(value));
            }
            prop_assert!(queue.pop_front().is_none() && other.is_empty());
        }
    }
}
