//! Turns: what has come is taken in, and what is to be sent leaves; and how much of that each kind of caller needs.

use std::time::Duration;

use uncork_engine::Instant;

use super::World;
use uncork_driver::Kick;

use crate::link::{self, Link, Pace, Told};
use crate::lost::Lost;
use crate::table::Place;
use crate::tick;

/// A call that asks without waiting is answered from what was there, for so long or so often: a program that has
/// looked at all that its set has told it turns to waiting by itself, and what it has written leaves in one go.
const DUE_AFTER: Duration = Duration::from_micros(200);
const ASKED_OFTEN: u32 = 16;
/// A turn is made once in so many glances, whether there is anything to do or not: a few microseconds.
const GLANCES_A_TURN: u32 = 64;
/// How often a glance looks for what has come: most of what is waited for comes between two glances, as the rest of a
/// glance takes longer than all of these looks.
const LOOKS_A_GLANCE: u32 = 16;
/// The system calls of so many devices are put off; those of others are made at once.
pub(crate) const PUT_OFF: usize = 2;

impl World {
    /// Makes one turn of every engine; returns whether anything has happened.
    pub(crate) fn turn(&mut self) -> bool {
        self.turn_at(Pace::Whole)
    }

    fn turn_at(&mut self, pace: Pace) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.given.leave();
        self.asked = 0;
        // Before SYNs that have come are looked at.
        if self.fast_open.is_wanted() {
            self.look_at_fast_open();
        }
        let happened = self.turn_links(pace);
        self.one_each.reckon(self.turned);
        self.pass_waiting();
        self.take_passed();
        self.review_ways();
        self.look_at_shared();
        self.refresh_shown();
        self.listen_again();
        self.watch_on();
        // A link that is out of use makes no turn.
        self.turned = self.links().iter().map(Link::turned).max().unwrap_or(Instant::ZERO);
        if self.ports.are_due(self.turned) {
            self.tidy_ports();
        }
        if let Some(tick) = self.tick.as_ref().filter(|tick| tick.goes())
            && self.turned.since(self.moved) >= tick::MOVES
        {
            // If that fails, the keeper sees to it.
            let _ = tick.move_on();
            self.moved = self.turned;
            // A thread that has written may have turned to what is not seen: the keeper would find that, but does not look now.
            self.complete_all();
        }
        happened
    }

    /// Makes a turn for a caller that then releases the lock and has told no thread of what leaves: the system call that ends the
    /// turn is made when others may have the lock, or they would wait for it as long as for all the rest.
    fn turn_and_let_go(&mut self, pace: Pace) -> bool {
        // What the kernel does not take at once is known before the thread falls asleep, where a call is not put off.
        self.links().iter_mut().take(PUT_OFF).for_each(|link| link.put_off(true));
        let happened = self.turn_at(pace);
        self.links().iter_mut().take(PUT_OFF).for_each(|link| link.put_off(false));
        happened
    }

    /// Takes the system calls that were put off.
    pub(crate) fn take_kicks(&mut self) -> [Option<Kick>; PUT_OFF] {
        let mut links = self.links().iter_mut();
        std::array::from_fn(|_| links.next()?.take_kick())
    }

    /// Flushes, as the kernel has not taken all in such a call: sleepers are to be woken by what is waited for now.
    pub(crate) fn flush(&mut self) {
        self.links().iter_mut().for_each(Link::flush);
        self.watch_on();
    }

    /// Tells instances what was said of a listener: it counts from now on, and no call may follow for a while.
    pub(crate) fn tell_instances(&mut self) {
        if self.links().iter().any(Link::is_attached) {
            self.turn_between();
        }
    }

    /// Makes room for what comes while a program has much to do before it waits, call by call. A thousand connections
    /// that are accepted one after the other take as long as their requests need to fill any ring.
    #[inline]
    pub(crate) fn relieve(&mut self) {
        self.links().iter_mut().for_each(Link::relieve);
    }

    /// Takes in what has come, and sends what is to be sent.
    pub(crate) fn turn_links(&mut self, pace: Pace) -> bool {
        let mut told = std::mem::take(&mut self.told);
        let mut happened = false;
        let (links, host) = self.links_and_host();
        for link in links {
            happened |= link.turn(pace, host, &mut told);
        }
        self.deal_with(&mut told);
        self.told = told;
        happened
    }

    /// Makes a turn for a thread that begins to wait, and sleeps for so long at most if there is nothing. A thread that has no
    /// time left looks for the last time.
    pub(crate) fn begin_sleep(&mut self, left: Option<Duration>) {
        self.begin_round();
        let is_last = left == Some(Duration::ZERO);
        let _ = self.turn_and_let_go(if is_last { Pace::Whole } else { Pace::Moderated });
    }

    /// Makes a turn for a thread that looks again before it sleeps, or does not wait at all.
    pub(crate) fn begin_look(&mut self) {
        self.begin_round();
        let _ = self.turn_and_let_go(Pace::Whole);
    }

    /// Declares what the calling thread has written to be whole messages, as it turns to something else.
    #[inline]
    pub(crate) fn complete_mine(&mut self) {
        if let Some(place) = self.drafts.take_only() {
            return self.complete(place);
        }
        for place in self.drafts.take_mine() {
            self.complete(place);
        }
    }

    /// Declares all that was written to be as whole as it gets.
    pub(crate) fn complete_all(&mut self) {
        for place in self.drafts.take_all() {
            self.complete(place);
        }
    }

    pub(crate) fn complete(&mut self, place: Place) {
        if let Ok((link, now)) = self.link_as_turned(place) {
            link.stack().complete(now, place.id);
        }
    }

    /// Makes a turn for threads that have turned to something else while this thread held the lock.
    pub(crate) fn turn_for_others(&mut self) {
        self.complete_all();
        self.turn();
    }

    fn begin_round(&mut self) {
        self.complete_mine();
        self.given.begin_round();
        if self.given.is_hasty() {
            let behind = self.now().since(self.turned);
            self.given.came_back(behind);
        }
    }

    /// Returns whether something waits for a turn: what was given, or the news of a window that has opened.
    pub(crate) fn has_to_send(&mut self) -> bool {
        !self.given.is_nothing() || self.links().iter().any(Link::has_output)
    }

    /// Makes a turn for a thread that turns to something else. Returns whether something of what it has given last stays and no
    /// thread would send it: none sleeps in a call of ours.
    pub(crate) fn turn_away(&mut self) -> bool {
        let recent = self.given.take_recent();
        self.complete_mine();
        self.turn();
        recent.is_some_and(|place| self.is_some_left(place)) && !self.is_anybody_asleep()
    }

    fn is_some_left(&mut self, place: Place) -> bool {
        let Ok((link, now)) = self.link(place) else { return false };
        link.stack().waits_for_a_turn(now, place.id)
    }

    /// Sends a close at once, if the program turns away unseen.
    pub(crate) fn turn_if_hasty(&mut self) {
        if self.given.is_hasty() {
            self.turn_between();
        }
    }

    /// Makes a turn for a thread that will try for a while before it sleeps: what the other end waits for leaves before the
    /// rest of the turn. A thread that sleeps has frames to take in when it wakes, and what it sends acknowledges those, too, if
    /// it leaves after them: nginx with a connection for each request takes a tenth more otherwise.
    pub(crate) fn begin_trying(&mut self) {
        if !self.given.is_nothing() {
            self.complete_mine();
            self.links().iter_mut().for_each(Link::send_ahead);
        }
        self.begin_look();
    }

    /// Makes a turn for what was given by a thread that has more to do: what has come can wait as if it slept.
    pub(crate) fn turn_between(&mut self) {
        let _ = self.turn_at(Pace::Moderated);
    }

    /// Makes a turn if there is something to do, for a thread that looks again and again; from time to time in any case.
    pub(crate) fn glance(&mut self) {
        self.glances = self.glances.wrapping_add(1);
        let is_idle = self.given.is_nothing() && self.links().iter_mut().all(Link::is_idle);
        let comes = is_idle
            && (0..LOOKS_A_GLANCE).any(|_| self.links().iter_mut().any(|link| link.has_come()));
        if !is_idle || comes || self.glances.is_multiple_of(GLANCES_A_TURN) {
            self.turn();
        }
    }

    /// Makes a turn, if the last one was a while ago, for a thread that asks again and again without waiting.
    pub(crate) fn turn_if_due(&mut self) {
        self.asked += 1;
        self.complete_mine();
        if self.asked >= ASKED_OFTEN || self.now().since(self.turned) >= DUE_AFTER {
            self.turn();
        }
    }

    /// Makes the keeper look soon whether any thread sends what of a write to this connection has to wait for ACKs, unless a
    /// thread sleeps in a call of ours. What could leave has left.
    pub(crate) fn look_soon_if_some_is_left(&mut self, place: Place) {
        let again =
            self.given.is_hasty() || self.turned.since(self.brought_forward) >= tick::BETWEEN_SOON;
        if !again || self.is_anybody_asleep() {
            return;
        }
        let Some(tick) = self.tick.clone() else { return };
        if self.is_some_left(place) {
            tick.bring_forward();
            (self.brought_forward, self.moved) = (self.turned, self.turned);
        }
    }

    /// Makes the keeper look now.
    pub(crate) fn look_now(&mut self) {
        if let Some(tick) = self.tick.as_ref().filter(|tick| tick.goes()) {
            tick.look_now();
        }
    }

    /// Notes that the program was told of so many sockets at once.
    pub(crate) fn told_of(&mut self, sockets: usize) {
        let all_at_once = self.links().iter().any(Link::is_moderating);
        self.given.told_of(sockets, all_at_once);
    }

    pub(super) fn deal_with(&mut self, told: &mut Vec<Told>) {
        for told in told.drain(..) {
            match told {
                Told::Socket(slot) => self.note(slot),
                Told::Neighbour(link, remote) => self.ask_way(link, remote),
                Told::Change(link, change) => self.keep_list(link, change),
                Told::Came(link, place, entry) => self.stands_there(link, place, Some(entry)),
                Told::InstanceGone => {
                    self.leave_listeners_to_kernel(link::INSTANCE_GONE);
                    self.lose_ports();
                    self.lost = Some(Lost::now());
                }
            }
        }
    }
}
