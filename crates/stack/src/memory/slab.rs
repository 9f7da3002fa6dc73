//! Values at fixed places, in chunks: a million connections are never moved to grow by one.

/// Values in a chunk.
const CHUNK: usize = 256;

/// Values with a place and a generation: a place that is freed and used again gets another generation.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Chunks of constant length, so that indexing within one needs no bounds check at run time.
    chunks: Vec<Box<[Entry<T>; CHUNK]>>,
    /// Places that were ever taken.
    places: u32,
    free: Vec<u32>,
    live: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), places: 0, free: Vec::new(), live: 0 }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.live as usize
    }

    /// Returns the number of places, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.places as usize
    }

    /// Inserts a value, which is made from its place and generation; returns the place.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32, u32) -> T) -> u32 {
        self.live += 1;
        if let Some(place) = self.free.pop() {
            let entry = self.entry_mut(place);
            if let Some(entry) = entry {
                entry.value = Some(make(place, entry.generation));
            }
            return place;
        }
        let place = self.places;
        if self.chunks.len() * CHUNK == self.places() {
            self.chunks.extend(empty_chunk());
        }
        if let Some(entry) = self.entry_mut(place) {
            entry.value = Some(make(place, 0));
        }
        self.places += 1;
        place
    }

    /// Removes the value at a place.
    pub(crate) fn remove(&mut self, place: u32) -> Option<T> {
        let entry = self.entry_mut(place)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(place);
        self.live -= 1;
        Some(value)
    }

    /// Returns the value at a place, whatever its generation.
    #[inline]
    pub(crate) fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?[place % CHUNK].value.as_ref()
    }

    /// Returns the value at a place mutably. Callers for which a change has consequences use their own function besides this one.
    #[inline]
    pub(crate) fn get_quietly(&mut self, place: u32) -> Option<&mut T> {
        self.entry_mut(place)?.value.as_mut()
    }

    /// Returns an iterator over all values, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.chunks.iter().flat_map(|chunk| chunk.iter()))
            .filter_map(|(place, entry)| entry.value.as_ref().map(|value| (place, value)))
    }

    #[inline]
    fn entry_mut(&mut self, place: u32) -> Option<&mut Entry<T>> {
        let place = place as usize;
        Some(&mut self.chunks.get_mut(place / CHUNK)?[place % CHUNK])
    }
}

/// Makes a chunk of free places, on the heap, as it is too large for the stack; it always returns one.
fn empty_chunk<T>() -> Option<Box<[Entry<T>; CHUNK]>> {
    let entries: Vec<_> = (0..CHUNK).map(|_| Entry { generation: 0, value: None }).collect();
    entries.into_boxed_slice().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Slab};

    #[test]
    fn a_place_that_was_freed_is_used_again_under_another_generation() {
        let mut slab = Slab::new();
        let places: Vec<_> = (0..2 * CHUNK + 1)
            .map(|_| slab.insert(|place, generation| (place, generation)))
            .collect();
        assert_eq!((slab.len(), slab.places()), (places.len(), places.len()));
        assert_eq!(slab.remove(places[CHUNK]), Some((places[CHUNK], 0)));
        assert_eq!(slab.remove(places[CHUNK]), None);
        assert_eq!(slab.get(places[CHUNK]), None);
        assert_eq!(slab.iter().count(), places.len() - 1);
        let again = slab.insert(|place, generation| (place, generation));
        assert_eq!(again, places[CHUNK]);
        assert_eq!(slab.get_quietly(again), Some(&mut (again, 1)));
    }
}
