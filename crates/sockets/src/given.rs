//! What a program has given the stack since the last turn, and when that is enough for a turn: the program has not waited
//! yet, and may have more to say.

use std::time::Duration;

use crate::table::Place;

/// How many octets may be given before they are sent without being asked for: about what keeps a device busy while the
/// program makes more.
const BYTES: usize = 64 << 10;
/// How many writes may be: the first must not wait for long until the last is made.
const WRITES: u32 = 32;
/// To how many sockets at least something is given before that leaves. A program that answers all that it was told of before
/// it looks again has the peers wait for it, and then waits for them: eight of them over veth get half of what they
/// could.
const FIRST_SOCKETS: u32 = 2;
/// In how many turns at most the answers to all that a program was told of at once leave.
const PARTS_OF_A_ROUND: u32 = 4;

/// What was given, and to how many sockets something may be before that leaves.
///
/// It leaves when the program turns to one socket more, and not before: whether it is done with a socket shows only then,
/// and the first piece of an answer that left alone would wait for its ACK (Nagle).
#[derive(Debug)]
pub(crate) struct Given {
    bytes: usize,
    writes: u32,
    sockets: u32,
    last: Option<Place>,
    /// The connection that was given something last, and may have more to send than could leave.
    recent: Option<Place>,
    /// For how many sockets a turn is made. As it costs a system call, they are twice as many each time, until the program waits.
    sockets_at_once: u32,
    /// How many writes leave without being asked for: fewer, if the program has turned to something that cannot be seen after
    /// so many, and another thread had to send them.
    writes_at_once: u32,
    /// Whether some have left so since it has waited.
    hastened: bool,
    /// How often in a row it has come back at once after such a turn.
    returns: u8,
}

/// How often in a row a program has to come back to waiting at once until that is expected of it.
const RETURNS: u8 = 8;
/// The longest time that counts as at once.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(1);

impl Given {
    pub(crate) fn nothing() -> Self {
        Self {
            bytes: 0,
            writes: 0,
            sockets: 0,
            last: None,
            recent: None,
            sockets_at_once: FIRST_SOCKETS,
            writes_at_once: WRITES,
            hastened: false,
            returns: 0,
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.bytes == 0 && self.writes == 0
    }

    /// Notes that a turn has sent it.
    pub(crate) fn leave(&mut self) {
        (self.bytes, self.writes, self.sockets, self.last) = (0, 0, 0, None);
    }

    /// Takes the connection that was given something last, even if that has left; it is told once.
    pub(crate) fn take_recent(&mut self) -> Option<Place> {
        self.recent.take()
    }

    /// Notes that the program has not waited, and another thread has to send this.
    pub(crate) fn was_left(&mut self) {
        self.writes_at_once = self.writes.clamp(1, WRITES);
        self.returns = 0;
    }

    /// Returns whether the program turns away unseen.
    pub(crate) fn is_hasty(&self) -> bool {
        self.writes_at_once < WRITES
    }

    /// Notes that the program waits, so long after the last turn.
    pub(crate) fn came_back(&mut self, behind: Duration) {
        if !std::mem::take(&mut self.hastened) {
            return;
        }
        self.returns = if behind < AT_ONCE { self.returns + 1 } else { 0 };
        if self.returns >= RETURNS {
            (self.writes_at_once, self.returns) = (WRITES, 0);
        }
    }

    /// Begins a round: the program waits, and what it gives next is of a new one.
    pub(crate) fn begin_round(&mut self) {
        self.sockets_at_once = FIRST_SOCKETS;
    }

    /// Notes that it was told of so many sockets. Where there are many, the peers have enough to do with a part of the answers;
    /// or with what they have still, so that all leave at once.
    pub(crate) fn told_of(&mut self, sockets: usize, all_at_once: bool) {
        let parts = if all_at_once { 1 } else { PARTS_OF_A_ROUND };
        let part = u32::try_from(sockets).unwrap_or(u32::MAX) / parts;
        self.sockets_at_once = part.clamp(FIRST_SOCKETS, WRITES);
    }

    /// Notes that the program turns to this connection; returns whether what it has given to others is to leave before.
    pub(crate) fn turns_to(&mut self, place: Place) -> bool {
        let is_enough = self.last != Some(place) && self.sockets >= self.sockets_at_once;
        if is_enough {
            self.sockets_at_once = (self.sockets_at_once * 2).min(WRITES);
        }
        is_enough
    }

    /// Notes that it has given so much to this connection; returns whether all is to leave now.
    pub(crate) fn add(&mut self, place: Place, bytes: usize) -> bool {
        self.bytes += bytes;
        self.writes += 1;
        self.recent = Some(place);
        self.sockets += u32::from(self.last.replace(place) != Some(place));
        let is_enough = self.bytes >= BYTES || self.writes >= self.writes_at_once;
        self.hastened |= is_enough;
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use uncork_stack::SocketId;

    use super::*;

    fn place(number: u64) -> Place {
        Place { link: 0, id: SocketId::from_u64(number) }
    }

    /// Answers so many connections, by some writes each; returns how many of the answers left at a time.
    fn answered(given: &mut Given, connections: u64, writes: u32) -> Vec<u64> {
        let (mut left, mut before) = (Vec::new(), 0);
        for number in 0..connections {
            for write in 0..writes {
                if given.turns_to(place(number)) {
                    assert_eq!(write, 0, "an answer is not cut in two");
                    left.push(number - before);
                    before = number;
                    given.leave();
                }
                if given.add(place(number), 100) {
                    left.push(number + 1 - before);
                    before = number + 1;
                    given.leave();
                }
            }
        }
        left
    }

    #[test]
    fn the_first_answers_leave_while_the_others_are_made() {
        let mut given = Given::nothing();
        assert_eq!(answered(&mut given, 2, 1), [0; 0]);
        given.leave();
        given.begin_round();
        assert_eq!(answered(&mut given, 8, 1), [2, 4]);
        given.leave();
        // It has not waited since.
        assert_eq!(answered(&mut given, 9, 1), [8]);
    }

    #[test]
    fn of_many_more_leave_at_once() {
        let mut given = Given::nothing();
        given.told_of(64, false);
        assert_eq!(answered(&mut given, 64, 1), [16, 32]);
        given.leave();
        given.told_of(1000, false);
        assert_eq!(given.sockets_at_once, WRITES);
        given.told_of(1, false);
        assert_eq!(given.sockets_at_once, FIRST_SOCKETS);
        given.told_of(24, true);
        assert_eq!(answered(&mut given, 24, 1), [0; 0], "they have something to do");
    }

    #[test]
    fn an_answer_leaves_whole() {
        let mut given = Given::nothing();
        assert_eq!(answered(&mut given, 7, 3), [2, 4]);
    }

    #[test]
    fn who_turns_away_unseen_is_not_waited_for_until_it_comes_back_often() {
        let mut given = Given::nothing();
        assert!(!given.add(place(1), 100) && !given.add(place(1), 100));
        given.was_left();
        given.leave();
        assert!(given.is_hasty());
        let answer = |given: &mut Given, behind: Duration| {
            assert!(
                !given.add(place(1), 100) && given.add(place(1), 100),
                "it leaves with the second"
            );
            given.leave();
            given.came_back(behind);
            // A wait without such a turn before it tells nothing.
            given.came_back(Duration::ZERO);
        };
        for _ in 1..RETURNS {
            answer(&mut given, Duration::ZERO);
        }
        answer(&mut given, AT_ONCE);
        for _ in 1..RETURNS {
            answer(&mut given, Duration::ZERO);
            assert!(given.is_hasty());
        }
        answer(&mut given, Duration::ZERO);
        assert!(!given.is_hasty());
    }

    #[test]
    fn one_socket_gathers_until_it_is_much() {
        let mut given = Given::nothing();
        for write in 1..=WRITES {
            assert!(!given.turns_to(place(1)));
            assert_eq!(given.add(place(1), 1), write == WRITES);
        }
        given.leave();
        assert!(given.is_nothing());
        assert!(!given.add(place(1), BYTES - 1) && given.add(place(1), 1));
    }
}
