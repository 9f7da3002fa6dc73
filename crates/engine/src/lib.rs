//! The loop that joins one stack, one driver and one thread.
//!
//! A turn is what the crate docs of `uncork-stack` and `uncork-driver` ask for, in this order: frames and
//! completions in, timers that are due, news for the program, the program itself, frames out. When a
//! turn finds nothing to do, the thread sleeps until a descriptor or a deadline wakes it, or goes on
//! looking for a while first ([`Engine::spin_for`]).
//!
//! What is done with connections is up to the [`Program`]: the engine does not know.
#![forbid(unsafe_code)]

mod moderation;
mod sleep;

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;

use uncork_driver::clock::{Clock, clock};
use uncork_driver::{Driver, Kick, Offer};
pub use uncork_packet::Instant;
use uncork_stack::{Event, Stack};

use moderation::Moderation;
pub use sleep::{Interest, Watch};

/// How many frames are taken in before the program has its turn: enough to make batches of, few enough
/// that the oldest does not wait for long (a quarter of a millisecond at two microseconds each).
const FRAMES_A_TURN: usize = 128;
/// How often that is done in one turn, if there would soon be no room for more; and in a call that makes no turn.
const BATCHES_A_TURN: usize = 16;
const BATCHES_A_CALL: usize = 4;
/// While the thread never sleeps, the program's descriptors are still looked at, once in so many turns.
const TURNS_BETWEEN_LOOKS: u32 = 64;
/// When to look again at a device that took nothing more and may not say when it does again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// The user of an engine's connections.
pub trait Program {
    /// Takes an event: something has become possible.
    fn on_event(&mut self, stack: &mut Stack, now: Instant, event: Event);

    /// Does the program's work, once a turn, after its events and before frames leave.
    fn on_turn(&mut self, stack: &mut Stack, now: Instant);

    /// Returns the descriptors that are waited for beside the device's.
    fn watched(&self) -> Vec<Watch<'_>> {
        Vec::new()
    }

    /// Gets the device, right before [`Program::on_watched`] with this key, for a program that has to tell it something then.
    fn meet(&mut self, driver: &mut dyn Driver, key: u64) {
        let _ = (driver, key);
    }

    /// Handles an event of the descriptor that is watched under this key.
    ///
    /// # Errors
    ///
    /// What ends the engine.
    fn on_watched(&mut self, stack: &mut Stack, now: Instant, key: u64) -> io::Result<()> {
        let _ = (stack, now, key);
        Ok(())
    }

    /// Returns when [`Program::on_turn`] has to come at the latest.
    fn next_deadline(&self) -> Option<Instant>;

    /// Returns whether the engine may stop. Asked at the end of a turn, when everything that could be sent was.
    fn is_over(&self) -> bool;
}

/// The events of turns, for a caller that deals with them afterwards.
#[derive(Debug, Default)]
pub struct Events(pub Vec<Event>);

impl Program for Events {
    fn on_event(&mut self, _: &mut Stack, _: Instant, event: Event) {
        self.0.push(event);
    }

    fn on_turn(&mut self, _: &mut Stack, _: Instant) {}

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// How much a turn takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// All that has come.
    Whole,
    /// What has come may wait for more ([`Engine::moderate`]).
    Moderated,
    /// Moderated, and if a glance shows no frames and nothing else is waited for, that is all. What a driver may do
    /// before a thread sleeps on its completions is not needed then.
    Glance,
}

/// A stack and a driver.
pub struct Engine<D> {
    driver: D,
    stack: Stack,
    clock: Clock,
    /// When the last turn began.
    turned: Instant,
    spin: Duration,
    moderation: Moderation,
    /// Whether the device took nothing more in the last turn.
    full: bool,
    /// Whether the call that makes the device look at what is to be sent may be put off, and the call that was.
    puts_off: bool,
    kick: Option<Kick>,
}

impl<D> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("stack", &self.stack).finish_non_exhaustive()
    }
}

impl<D: Driver> Engine<D> {
    /// Joins them. The clock starts now.
    #[must_use]
    pub fn new(driver: D, stack: Stack) -> Self {
        let clock = clock();
        let turned = clock();
        let (spin, moderation) = (Duration::ZERO, Moderation::off());
        let (full, puts_off, kick) = (false, false, None);
        Self { driver, stack, clock, turned, spin, moderation, full, puts_off, kick }
    }

    /// Sets how long the engine goes on looking after the last thing that happened, before it sleeps: not at all unless this
    /// is called, as a core is spent on it.
    pub fn spin_for(&mut self, time: Duration) {
        self.spin = time;
    }

    /// Sets the longest time for which frames may wait for others when many requests come: a few requests are then taken in
    /// at once ([`Engine::turn_moderated`]). Frames do not wait unless this is called, nor while the engine spins.
    pub fn moderate(&mut self, longest: Duration) {
        self.moderation.limit(longest);
    }

    /// Returns whether frames wait for others at present.
    #[must_use]
    pub fn is_moderating(&self) -> bool {
        self.moderation.is_on()
    }

    /// Sets whether frames may stay in the driver until the caller has made a system call ([`Engine::take_kick`]): for a caller
    /// that makes turns under a lock, and the call when others have that.
    pub fn put_off(&mut self, puts_off: bool) {
        self.puts_off = puts_off;
    }

    /// Takes the call that was put off, if there is one.
    pub fn take_kick(&mut self) -> Option<Kick> {
        self.kick.take()
    }

    /// Waits until no such call is about to be made ([`Driver::settle`]).
    pub fn settle(&self) {
        self.driver.settle();
    }

    /// Flushes what such a call has left behind: it leaves, or waits for its time.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        self.driver.flush()
    }

    /// Returns the time as the stack is told it.
    #[must_use]
    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Returns when the last turn began: for a caller that deals with what that has brought, and need not read the clock again.
    #[must_use]
    pub fn turned(&self) -> Instant {
        self.turned
    }

    /// Returns the stack, to be set up or asked.
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Returns the stack, to be asked.
    #[must_use]
    pub fn stack_ref(&self) -> &Stack {
        &self.stack
    }

    /// Returns the driver.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Returns the driver alone, when all is over.
    pub fn into_driver(self) -> D {
        self.driver
    }

    /// Makes one turn, without waiting for anything; returns whether anything has happened.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn turn(&mut self, program: &mut impl Program) -> io::Result<bool> {
        self.turn_so(program, Turn::Whole)
    }

    /// Makes one turn in which frames may wait for others ([`Engine::moderate`]), for a caller that sleeps when nothing has
    /// happened, as [`Engine::rest`] says.
    ///
    /// # Errors
    ///
    /// As [`Engine::turn`].
    pub fn turn_moderated(&mut self, program: &mut impl Program) -> io::Result<bool> {
        self.turn_so(program, Turn::Moderated)
    }

    fn turn_so(&mut self, program: &mut impl Program, how: Turn) -> io::Result<bool> {
        let mut now = (self.clock)();
        self.turned = now;
        let (driver, stack) = (&mut self.driver, &mut self.stack);
        let mut happened = false;
        // A thread that sleeps on completions is woken by frames, too.
        let may_wait = how != Turn::Whole && !self.full && !stack.awaits_completion();
        if !may_wait || !self.moderation.holds(now) || driver.is_filling() {
            let came = take_in(driver, stack, (&mut self.clock, &mut now), BATCHES_A_TURN)?;
            self.turned = now;
            happened = came > 0;
            // What was left for the next turn has waited already.
            if happened && came < FRAMES_A_TURN {
                self.moderation.took(now);
            }
        }
        if self.moderation.is_due(now) {
            self.moderation.reckon(now, &stack.take_requests());
        }
        if how == Turn::Glance && !happened && !self.full && !stack.awaits_completion() {
            return Ok(false);
        }
        driver.complete(&mut |completion| {
            happened = true;
            stack.handle_completion(now, completion);
        })?;
        if stack.poll_timeout().is_some_and(|due| due <= now) {
            happened = true;
            stack.handle_timeout(now);
        }
        while let Some(event) = stack.poll_event() {
            happened = true;
            program.on_event(stack, now, event);
        }
        program.on_turn(stack, now);
        // A frame that could not be written for want of a neighbour has made news.
        Ok(self.send(now)? || happened || self.stack.has_events())
    }

    /// Takes in what has come if the device has no room for much more of it: for a caller that has much to do before the next
    /// turn, which does all else that it leads to.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn relieve(&mut self) -> io::Result<()> {
        if !self.driver.is_filling() {
            return Ok(());
        }
        self.turned = (self.clock)();
        let time = (&mut self.clock, &mut self.turned);
        take_in(&mut self.driver, &mut self.stack, time, BATCHES_A_CALL).map(drop)
    }

    /// Hands over what may leave, ahead of a turn, for a caller that has given the stack something that a peer waits for. Not if
    /// frames have come: what leaves after them acknowledges them, too.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn send_ahead(&mut self) -> io::Result<()> {
        if self.driver.has_frames() {
            return Ok(());
        }
        let now = (self.clock)();
        self.send(now).map(drop)
    }

    /// Hands over what may still leave, and takes nothing in: for a stack whose addresses are someone else's from now on, who
    /// answers what has come meanwhile.
    ///
    /// # Errors
    ///
    /// If the device is gone.
    pub fn send_last(&mut self) -> io::Result<()> {
        let now = (self.clock)();
        self.send(now).map(drop)
    }

    /// Returns whether a turn would find nothing to do, as far as that can be told without a system call and unless
    /// something was given to the stack: for a caller that looks again and again.
    pub fn is_idle(&mut self) -> bool {
        !self.full
            && !self.driver.has_frames()
            && !self.stack.awaits_completion()
            && !self.stack.has_events()
            && self.stack.poll_timeout().is_none_or(|due| due > (self.clock)())
    }

    /// Returns whether the stack has something to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.stack.has_output()
    }

    /// Returns whether frames have come, as far as that can be told without a system call: the one question of
    /// [`Engine::is_idle`] that is worth asking many times in a row.
    pub fn has_frames(&mut self) -> bool {
        self.driver.has_frames()
    }

    /// Hands over what may leave; returns whether there was anything.
    fn send(&mut self, now: Instant) -> io::Result<bool> {
        let sent = self.hand_over(now)?;
        let device = self.driver.capabilities();
        if device == self.stack.device() {
            return Ok(sent);
        }
        // The device's MTU has changed, which was noticed just now: what did not fit goes out again.
        self.stack.set_device(now, device);
        self.hand_over(now)?;
        Ok(true)
    }

    fn hand_over(&mut self, now: Instant) -> io::Result<bool> {
        let (driver, stack) = (&mut self.driver, &mut self.stack);
        let mut sent = false;
        let last = loop {
            match driver.offer(&mut |slot| stack.poll_transmit(now, slot))? {
                Offer::Taken => sent = true,
                last => break last,
            }
        };
        if self.puts_off {
            // The latest call stands for all.
            self.kick = driver.flush_later()?.or(self.kick.take());
        } else {
            driver.flush()?;
        }
        self.full = last == Offer::Full;
        Ok(sent)
    }

    /// Makes turns until the program is over.
    ///
    /// # Errors
    ///
    /// If the device is gone, or as the program returns them.
    pub fn run(&mut self, program: &mut impl Program) -> io::Result<()> {
        let mut turns = 0_u32;
        let mut last = self.now();
        let mut happened = false;
        loop {
            let how = match self.spin.is_zero() {
                true if happened => Turn::Glance,
                true => Turn::Moderated,
                false => Turn::Whole,
            };
            happened = self.turn_so(program, how)?;
            if program.is_over() {
                return Ok(());
            }
            turns = turns.wrapping_add(1);
            if happened && !self.spin.is_zero() {
                last = self.now();
            }
            let awake = happened || !self.spin.is_zero() && self.now().since(last) < self.spin;
            if !awake {
                self.sleep(program)?;
            } else if turns.is_multiple_of(TURNS_BETWEEN_LOOKS) {
                self.look(program, Some(Duration::ZERO))?;
            }
        }
    }

    /// Sleeps until there is something to do.
    ///
    /// # Errors
    ///
    /// As the program returns them for its descriptors.
    pub fn sleep(&mut self, program: &mut impl Program) -> io::Result<()> {
        let now = (self.clock)();
        let due = program.next_deadline().map(|due| due.since(now));
        let (_, limit) = self.rest();
        self.look(program, [due, limit].into_iter().flatten().min())
    }

    /// Returns what wakes a thread that sleeps on the engine, and how long it may sleep at most: for a caller that sleeps by
    /// itself.
    pub fn rest(&mut self) -> (Option<BorrowedFd<'_>>, Option<Duration>) {
        let now = (self.clock)();
        let due = self.stack.poll_timeout().map(|due| due.since(now));
        let again = self.full.then_some(LOOK_AGAIN_AFTER);
        let rest = self.driver.rest_at_most();
        let limit = [due, again, rest].into_iter().flatten().min();
        (self.wakes(now), limit)
    }

    fn wakes(&mut self, now: Instant) -> Option<BorrowedFd<'_>> {
        if self.stack.awaits_completion() || self.full {
            self.driver.wakes()
        } else {
            self.moderation.wakes(now).or_else(|| self.driver.wakes_for_frames())
        }
    }

    /// Returns what a descriptor that wakes a sleeper counts as: the timer that stands for frames for a while counts as their
    /// descriptor, as a thread that watches either has no need to be woken for the other.
    pub fn stands_for(&self, fd: RawFd) -> RawFd {
        let frames = || self.driver.wakes_for_frames().map(|frames| frames.as_raw_fd());
        let is_timer = self.moderation.descriptor() == Some(fd);
        is_timer.then(frames).flatten().unwrap_or(fd)
    }

    /// Returns its own descriptors and its driver's, which the surrounding program does not know of and must not close.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.driver.descriptors();
        all.extend(self.moderation.descriptor());
        all
    }

    fn look(&mut self, program: &mut impl Program, longest: Option<Duration>) -> io::Result<()> {
        let now = (self.clock)();
        let ready = sleep::wait(self.wakes(now), &program.watched(), longest)?;
        if ready.is_empty() {
            return Ok(());
        }
        let now = (self.clock)();
        for key in ready {
            program.meet(&mut self.driver, key);
            program.on_watched(&mut self.stack, now, key)?;
        }
        Ok(())
    }
}

/// Takes in frames, and more of them while what comes meanwhile might find no room; returns how many they were. Of a peer that
/// sends without end no more than so many batches are taken in: something is to be sent, too.
fn take_in<D: Driver>(
    driver: &mut D,
    stack: &mut Stack,
    (clock, now): (&mut Clock, &mut Instant),
    batches: usize,
) -> io::Result<usize> {
    let mut came = 0;
    for batch in 1..=batches {
        let taken = driver.receive(FRAMES_A_TURN, &mut |frame| stack.handle_frame(*now, &frame))?;
        came += taken;
        if taken < FRAMES_A_TURN || batch == batches || !driver.is_filling() {
            break;
        }
        *now = clock();
    }
    Ok(came)
}
