//! The alarm, in every order of the steps of the threads that share it.
//!
//! Threads are played one step at a time, a step being one operation on what they share. To take a
//! thread's next step it is run again from its beginning: the results of its earlier steps are
//! remembered, the next one is done, and there it stops. So a state is what the threads share and
//! what each of them remembers, and all states that can be reached are visited once.

use core::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use uncork_cork::Instant;

use crate::alarm::{Alarm, Word};

const BOUND: u64 = 32;
/// Time that passes at once.
const STRIDE: u64 = 12;

/// A hold of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    since: u64,
    /// Time from reading the clock to counting: the push may be this much later.
    delay: u64,
    /// The writer has been told that the hold is pushed in time.
    bounded: bool,
}

/// What the threads share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    expiry: u64,
    count: u64,
    delays: [u64; 2],
    held: [Option<Held>; 2],
    /// The kernel's timer, and its signal.
    timer: Option<u64>,
    signal: bool,
    /// The timer's thread waits for the signal.
    waits: bool,
}

impl World {
    fn set_timer(&mut self, at: u64) {
        // Since Linux 6.13 a signal of the earlier setting is dropped.
        self.signal = false;
        self.timer = Some(at);
        self.ring();
    }

    fn ring(&mut self) {
        if self.timer.is_some_and(|at| at <= self.now) {
            self.timer = None;
            self.signal = true;
        }
    }

    /// Returns whether every hold whose writer has been told so is pushed in time, even if no
    /// thread but the timer's ever runs again.
    fn keeps_its_word(&self) -> bool {
        let sleeps = self.waits && !self.signal;
        self.held
            .iter()
            .flatten()
            .filter(|held| held.bounded && sleeps)
            .all(|held| self.timer.is_some_and(|at| at <= held.since + BOUND + held.delay))
    }
}

/// A thread during one of its steps.
struct Thread<'a> {
    world: &'a RefCell<World>,
    remembered: &'a [u64],
    at: Cell<usize>,
    stepped: Cell<Option<u64>>,
}

/// The panic by which a thread ends a step.
struct Stop;

impl Thread<'_> {
    /// Takes one step, unless `step` returns `None`: then it cannot be taken now.
    fn step(&self, step: impl FnOnce(&mut World) -> Option<u64>) -> u64 {
        let at = self.at.replace(self.at.get() + 1);
        if let Some(value) = self.remembered.get(at) {
            return *value;
        }
        if self.stepped.get().is_none()
            && let Some(value) = step(&mut self.world.borrow_mut())
        {
            self.stepped.set(Some(value));
            return value;
        }
        resume_unwind(Box::new(Stop))
    }

    fn always(&self, step: impl FnOnce(&mut World) -> u64) -> u64 {
        self.step(|world| Some(step(world)))
    }

    fn set_timer(&self, at: Instant) -> bool {
        self.always(|world| {
            world.set_timer(at.0);
            1
        }) == 1
    }
}

impl Word for &Thread<'_> {
    fn load(&self) -> u64 {
        self.always(|world| world.expiry)
    }

    fn store(&self, value: u64) {
        self.always(|world| {
            world.expiry = value;
            0
        });
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        self.always(|world| {
            let same = world.expiry == old;
            if same {
                world.expiry = new;
            }
            u64::from(same)
        }) == 1
    }
}

/// Ends a hold, as [`crate::Posix::end_hold_in`] does.
fn end(thread: &Thread<'_>, socket: usize) {
    if thread.always(|world| u64::from(world.held[socket].take().is_some())) == 1 {
        thread.always(|world| {
            world.count -= 1;
            0
        });
    }
}

/// Holds something `times` times, ending all holds but the last.
fn write(thread: &Thread<'_>, socket: usize, times: u32) {
    let alarm = Alarm::over(thread);
    for time in 1..=times {
        let since = thread.always(|world| world.now);
        let alone = thread.always(|world| {
            world.delays[socket] = world.now - since;
            world.count += 1;
            world.count - 1
        }) == 0;
        thread.always(|world| {
            let held = Held { since, delay: world.delays[socket], bounded: false };
            assert_eq!(world.held[socket].replace(held), None);
            0
        });
        assert!(alarm.set_for_hold(since, alone, BOUND, |at| thread.set_timer(at)));
        thread.always(|world| {
            if let Some(held) = world.held[socket].as_mut() {
                held.bounded = true;
            }
            0
        });
        if time < times {
            end(thread, socket);
        }
    }
}

/// Plays the timer's thread, for this many looks.
fn keep(thread: &Thread<'_>, looks: u32) {
    let alarm = Alarm::over(thread);
    for _ in 0..looks {
        thread.always(|world| {
            world.waits = true;
            0
        });
        thread.step(|world| {
            let rung = core::mem::take(&mut world.signal);
            world.waits &= !rung;
            rung.then_some(0)
        });
        let now = thread.always(|world| world.now);
        alarm.begin_look();
        let mut earliest = None;
        for socket in 0..2 {
            // As two steps: a hold may end meanwhile.
            let since = thread.always(|world| world.held[socket].map_or(0, |held| held.since));
            if since != 0 && now.saturating_sub(since) + BOUND / 16 >= BOUND {
                end(thread, socket);
            } else if since != 0 {
                earliest = earliest.into_iter().chain([Instant(since + BOUND)]).min();
            }
        }
        if let Some(deadline) = earliest {
            assert!(alarm.set_after_look(deadline, |at| thread.set_timer(at)));
        }
    }
}

fn pass_time(thread: &Thread<'_>, strides: u32) {
    for _ in 0..strides {
        thread.always(|world| {
            world.now += STRIDE;
            world.ring();
            0
        });
    }
}

type Play = Box<dyn Fn(&Thread<'_>)>;

/// A hash in place of a state, which is large: two of a million collide once in 40 million times.
fn print_of(state: &(World, Vec<Vec<u64>>)) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Visits all states; returns how many there are.
fn explore(threads: &[Play]) -> usize {
    let begin = (World { now: 1000, ..World::default() }, vec![Vec::new(); threads.len()]);
    let mut seen = HashSet::from([print_of(&begin)]);
    let mut open = vec![begin];
    while let Some((world, memory)) = open.pop() {
        for (number, play) in threads.iter().enumerate() {
            let world = RefCell::new(world.clone());
            let thread = Thread {
                world: &world,
                remembered: &memory[number],
                at: Cell::new(0),
                stepped: Cell::new(None),
            };
            if let Err(cause) = catch_unwind(AssertUnwindSafe(|| play(&thread)))
                && !cause.is::<Stop>()
            {
                resume_unwind(cause);
            }
            let Some(value) = thread.stepped.get() else { continue };
            let mut memory = memory.clone();
            memory[number].push(value);
            let world = world.into_inner();
            assert!(world.keeps_its_word(), "{world:?} after {memory:?}");
            let state = (world, memory);
            if seen.insert(print_of(&state)) {
                open.push(state);
            }
        }
    }
    seen.len()
}

fn writer(socket: usize, times: u32) -> Play {
    Box::new(move |thread| write(thread, socket, times))
}

fn keeper(looks: u32) -> Play {
    Box::new(move |thread| keep(thread, looks))
}

fn clock(strides: u32) -> Play {
    Box::new(move |thread| pass_time(thread, strides))
}

#[test]
fn two_threads_that_hold_are_both_looked_at_in_time() {
    let states = explore(&[writer(0, 1), writer(1, 1), keeper(1), clock(1)]);
    assert!(states > 300_000, "only {states}");
}

#[test]
fn a_look_and_the_next_hold_do_not_miss_each_other() {
    let states = explore(&[writer(0, 3), keeper(2), clock(4)]);
    assert!(states > 10_000, "only {states}");
}

#[test]
fn who_keeps_turning_moves_the_alarm_away_from_nobody() {
    let states = explore(&[writer(0, 2), writer(1, 1), clock(2)]);
    assert!(states > 50_000, "only {states}");
}
