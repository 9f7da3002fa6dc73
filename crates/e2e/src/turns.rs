//! Turns between tests. Tests that measure time run alone; a few of the others run side by side.
//!
//! Most of the others wait most of the time. A test that waits to be alone does not keep the next of them from
//! beginning: otherwise the processors would idle until the last that runs has ended, and again for each test that
//! measures. So those that measure gather until they have all threads of the test runner except those that the others
//! need, or until there are no others, and then run one after the other.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Tests that run side by side on each processor.
const ON_EACH: usize = 2;

static TURNS: Mutex<Turns> = Mutex::new(Turns::new());
static CHANGED: Condvar = Condvar::new();

#[derive(Debug)]
struct Turns {
    /// Number of tests that run side by side with others.
    beside: usize,
    /// Tickets of tests that wait for that, in the order of their arrival.
    behind: BTreeSet<u64>,
    /// Number of tests that have ever waited for it.
    came: u64,
    /// Number of tests that wait to be alone.
    gathered: usize,
    /// Whether the turn is theirs.
    measured: bool,
    /// Whether one of them is alone now.
    alone: bool,
}

impl Turns {
    const fn new() -> Self {
        Self {
            beside: 0,
            behind: BTreeSet::new(),
            came: 0,
            gathered: 0,
            measured: false,
            alone: false,
        }
    }

    /// Gives the turn to the tests that gather to be alone, or takes it from them; at most `most` may gather.
    fn turn(&mut self, most: usize) {
        let nobody_else = self.beside == 0 && self.behind.is_empty();
        if self.gathered == 0 {
            self.measured = self.alone;
        } else if self.gathered >= most || nobody_else {
            self.measured = true;
        }
    }

    fn may_be_alone(&self) -> bool {
        self.measured && self.beside == 0 && !self.alone
    }

    fn may_begin(&self, ticket: u64, limit: usize) -> bool {
        !self.measured && self.beside < limit && self.behind.first() == Some(&ticket)
    }
}

/// While it lives, no other test of this program runs.
#[derive(Debug)]
pub struct Alone {
    _private: (),
}

/// While it lives, no test of this program runs that is [`alone`].
#[derive(Debug)]
pub struct Beside {
    _private: (),
}

/// Waits until the other tests of this program are done or wait, and keeps them away: those that have [`crate::Hosts`],
/// and those that say so ([`beside_others`]).
pub fn alone() -> Alone {
    let most = gather_at_most();
    let mut turns = lock();
    turns.gathered += 1;
    turns.turn(most);
    let mut turns = wait(turns, Turns::may_be_alone);
    turns.gathered -= 1;
    turns.alone = true;
    Alone { _private: () }
}

/// Waits until others may run beside this test. A test that has had it once must not wait for it again.
pub fn beside_others() -> Beside {
    let limit = limit();
    let mut turns = lock();
    let ticket = turns.came;
    turns.came += 1;
    turns.behind.insert(ticket);
    let mut turns = wait(turns, |turns| turns.may_begin(ticket, limit));
    turns.behind.remove(&ticket);
    turns.beside += 1;
    // The next test may begin, too, if there is room.
    CHANGED.notify_all();
    Beside { _private: () }
}

impl Drop for Alone {
    fn drop(&mut self) {
        changed(|turns| turns.alone = false);
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        changed(|turns| turns.beside -= 1);
    }
}

fn lock() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(
    turns: MutexGuard<'static, Turns>,
    mut until: impl FnMut(&Turns) -> bool,
) -> MutexGuard<'static, Turns> {
    // The newcomer may be the test for which the others had to gather.
    CHANGED.notify_all();
    let waited = CHANGED.wait_while(turns, |turns| !until(turns));
    waited.unwrap_or_else(PoisonError::into_inner)
}

fn changed(change: impl FnOnce(&mut Turns)) {
    let most = gather_at_most();
    let mut turns = lock();
    change(&mut turns);
    turns.turn(most);
    CHANGED.notify_all();
}

/// Returns how many tests run side by side.
fn limit() -> usize {
    ON_EACH * processors()
}

/// Returns how many may wait to be alone while others begin: the threads of the test runner that these do not need.
fn gather_at_most() -> usize {
    let wanted = std::env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok());
    wanted.unwrap_or_else(processors).saturating_sub(limit()).max(1)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns turns in which two of four tests side by side have begun, and one waits to be alone.
    fn one_gathers() -> Turns {
        let mut turns = Turns::new();
        turns.beside = 2;
        turns.behind.extend([7, 8]);
        turns.gathered = 1;
        turns.turn(2);
        turns
    }

    #[test]
    fn the_next_begins_in_the_order_in_which_they_came_while_there_is_room() {
        let turns = one_gathers();
        assert!(turns.may_begin(7, 4) && !turns.may_begin(8, 4));
        assert!(!turns.may_begin(7, 2));
        assert!(!turns.may_be_alone());
    }

    #[test]
    fn when_as_many_have_gathered_as_may_nobody_else_begins_and_they_are_alone_in_turn() {
        let mut turns = one_gathers();
        turns.gathered = 2;
        turns.turn(2);
        assert!(!turns.may_begin(7, 4) && !turns.may_be_alone());
        turns.beside = 0;
        assert!(turns.may_be_alone());
        (turns.gathered, turns.alone) = (1, true);
        turns.turn(2);
        assert!(!turns.may_be_alone());
        turns.alone = false;
        turns.turn(2);
        assert!(turns.may_be_alone() && !turns.may_begin(7, 4));
        (turns.gathered, turns.alone) = (0, true);
        turns.turn(2);
        assert!(!turns.may_begin(7, 4));
        turns.alone = false;
        turns.turn(2);
        assert!(turns.may_begin(7, 4));
    }

    #[test]
    fn who_waits_to_be_alone_waits_for_nobody_where_nobody_else_is_left() {
        let mut turns = one_gathers();
        turns.behind.clear();
        turns.beside = 1;
        turns.turn(2);
        assert!(!turns.may_be_alone());
        turns.beside = 0;
        turns.turn(2);
        assert!(turns.may_be_alone());
    }
}
