//! Drafts: what threads have written and may go on writing. A message is whole when its thread turns to something else.
//!
//! Nagle's algorithm has no use then: a thread that has turned to reading has said all that it wanted to say, and what is held
//! back would wait for an acknowledgement that the peer delays by 40 ms, as it waits for the rest. So what such a thread has
//! written is declared to be whole ([`uncork_stack::Stack::complete`]). What leaves earlier, as there is much of it or another
//! thread makes a turn, is not, and goes by Nagle's algorithm: a program that writes octet by octet fills segments. A thread
//! that is not seen to turn away is waited for no longer than its octets are (`keeper.rs`).

use std::collections::VecDeque;

use crate::table::Place;

/// How many drafts are remembered; with one more the first is declared to be whole.
const MOST: usize = 256;
/// None of the latest so many is there twice: threads take turns.
const LATEST: usize = 16;

thread_local! {
    /// Its address tells this thread from the others.
    static HERE: u8 = const { 0 };
}

/// A thread that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer(usize);

impl Writer {
    fn me() -> Self {
        Self(HERE.with(|here| std::ptr::from_ref(here).addr()))
    }
}

/// All drafts, of connections on which Nagle's algorithm is at work.
#[derive(Debug, Default)]
pub(crate) struct Drafts(VecDeque<(Writer, Place)>);

impl Drafts {
    /// Notes that this thread has written to a connection. Returns one whose draft is whole.
    pub(crate) fn note(&mut self, place: Place) -> Option<Place> {
        let draft = (Writer::me(), place);
        if self.0.iter().rev().take(LATEST).any(|one| *one == draft) {
            return None;
        }
        let first = if self.0.len() >= MOST { self.0.pop_front() } else { None };
        self.0.push_back(draft);
        first.map(|(_, place)| place)
    }

    /// Takes this thread's draft if that is the only one, as in most cases: cheaper than [`Drafts::take_mine`].
    #[inline]
    pub(crate) fn take_only(&mut self) -> Option<Place> {
        let is_mine = self.0.len() == 1 && self.0[0].0 == Writer::me();
        if is_mine { self.0.pop_front().map(|(_, place)| place) } else { None }
    }

    /// Takes this thread's drafts, as it turns to something else.
    pub(crate) fn take_mine(&mut self) -> Vec<Place> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let me = Writer::me();
        let (mine, others) = self.0.drain(..).partition(|(writer, _)| *writer == me);
        self.0 = others;
        let mine: VecDeque<(Writer, Place)> = mine;
        mine.into_iter().map(|(_, place)| place).collect()
    }

    /// Takes all drafts: no thread is waited for any longer.
    pub(crate) fn take_all(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.0).into_iter().map(|(_, place)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use uncork_stack::SocketId;

    use super::*;

    fn place(number: u64) -> Place {
        Place { link: 0, id: SocketId::from_u64(number) }
    }

    #[test]
    fn a_thread_completes_its_own() {
        let mut drafts = Drafts::default();
        for number in [1, 1, 2] {
            assert_eq!(drafts.note(place(number)), None);
        }
        std::thread::scope(|scope| {
            let another = scope.spawn(|| {
                drafts.note(place(3));
                drafts.note(place(1));
                drafts.take_mine()
            });
            assert_eq!(another.join().unwrap(), [place(3), place(1)]);
        });
        assert_eq!(drafts.take_mine(), [place(1), place(2)]);
        assert!(drafts.take_mine().is_empty());
        drafts.note(place(4));
        assert_eq!(drafts.take_all(), [place(4)]);
    }

    #[test]
    fn the_first_of_too_many_is_whole() {
        let mut drafts = Drafts::default();
        let most = MOST as u64;
        assert!((0..most).all(|number| drafts.note(place(number)).is_none()));
        assert_eq!(drafts.note(place(most)), Some(place(0)));
        assert_eq!(drafts.take_mine().len(), MOST);
    }
}
