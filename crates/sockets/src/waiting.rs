//! Waiting: for a socket, for an epoll set, for any of a list; with the kernel's descriptors beside the
//! stack's.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::bell::{self, Bell};
use crate::eye::{self, What};
use crate::outside::{Outside, Tried};
use crate::parts::Parts;
use crate::sleepers::For;
use crate::world::{Rest, Wakes, World};
use crate::{HAS_GIVEN, KeptErrno, Sockets, Whole};

/// How a wait is to be done.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) waits_for: For,
    /// The parts where these are; those of a set are kept with the set.
    pub(crate) parts: Parts,
    /// Whether connections may become the kernel's as the wait begins: nothing is half done.
    pub(crate) may_leave: bool,
    /// The time limit; none for ever.
    pub(crate) limit: Option<Duration>,
    /// The signals that are blocked during the wait, as the program says.
    pub(crate) mask: Option<&'a libc::sigset_t>,
    /// The kernel's descriptors that end the wait, too, when the next attempt is made.
    pub(crate) kernel: &'a mut [libc::pollfd],
    /// Whether the wait goes on after a signal whose handler was installed with SA_RESTART. Any handler ends a transfer that
    /// has moved something, as it has something to return (signal(7)).
    pub(crate) restarts: &'a Cell<bool>,
}

/// Whether an attempt has to ask the kernel by a system call what its descriptors have ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// It asks: nobody else does.
    Ask,
    /// It does not: if the stack has nothing, the sleep after the attempt tells, or a later attempt asks.
    Leave,
}

/// What an attempt is told. A wait for several parts makes one look at each; what the attempt finds before the last look
/// it keeps until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) kernel: Kernel,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// Looks for what is waited for, and returns it if it is there.
type Attempt<'a, T> = dyn FnMut(&mut World, Look) -> Option<T> + 'a;

thread_local! {
    /// Looks that this thread has made at several parts: each begins with another part, or only the first would be heard
    /// of while it is busy.
    static ROUNDS: Cell<u8> = const { Cell::new(0) };
    /// A kernel descriptor has what this thread waits for, but another process is taking it, or was suspended in the
    /// middle of that.
    static STANDS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the calling thread from looking at the kernel's descriptors again at once.
pub(crate) fn stand_back() {
    STANDS_BACK.set(true);
}

/// Of so many glances of a thread that tries before it sleeps, one asks the kernel.
const GLANCES_A_QUESTION: u32 = 8;

/// Returns the poll(2) entry of a descriptor that only wakes.
pub(crate) fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// The guard of a thread's sleep, dropped when the thread wakes or is cancelled.
struct Asleep<'a, O: Outside> {
    sockets: &'a Sockets<O>,
    parts: Parts,
    bell: &'a Bell,
    /// Whether the thread looks again after this; one that is cancelled does not.
    comes_back: bool,
}

impl<O: Outside> Drop for Asleep<'_, O> {
    fn drop(&mut self) {
        self.sockets.outside.wake_by(None);
        if self.comes_back {
            // The next look removes it from the sleepers.
            self.parts.iter().for_each(|part| self.bell.wakes(part));
        } else {
            self.sockets.leave_asleep(self.parts, self.bell);
        }
        for part in self.parts.iter() {
            // It was possibly the last thread that made turns.
            self.sockets.keeper_must_look(part);
        }
    }
}

/// The guard of a changed signal mask: restores the former one when dropped.
struct Masked<'a, O: Outside> {
    sockets: &'a Sockets<O>,
    before: libc::sigset_t,
}

impl<O: Outside> Drop for Masked<'_, O> {
    fn drop(&mut self) {
        self.sockets.outside.block(&self.before);
    }
}

/// Attempts in a row that have given the stack something to send, or made room for more to come: another turn sends that
/// before the thread sleeps; after so many the thread takes a breath.
const HURRIES: u32 = 256;
/// How long it then sleeps at most: what the last attempt has given leaves after that.
const BREATH: Duration = Duration::from_millis(1);

/// How long a thread sleeps that nobody can wake.
const DOZE: Duration = Duration::from_millis(2);

/// Returns how long the thread may sleep at most after so many of them.
fn hurry(hurried: &mut u32) -> Option<Duration> {
    match *hurried {
        0 => None,
        1..HURRIES => Some(Duration::ZERO),
        _ => {
            *hurried = 0;
            Some(BREATH)
        }
    }
}

/// Lists all that wakes a sleeper: the kernel's descriptors, unless it stands back from them, its bell, and the rest.
fn lay_out(fds: &mut Vec<libc::pollfd>, kernel: &[libc::pollfd], bell: &Bell, rest: &Rest) {
    fds.clear();
    fds.extend_from_slice(kernel);
    if rest.stands_back {
        // Not looked at.
        fds.iter_mut().for_each(|one| one.fd = -1);
    }
    fds.push(readable(bell.as_raw_fd()));
    fds.extend(rest.all().map(|(fd, _)| readable(fd)));
}

impl<O: Outside> Sockets<O> {
    /// Calls `attempt` after each turn until it returns something. `Ok(None)`: time ran out.
    pub(crate) fn wait<T>(
        &self,
        mut wait: Wait<'_>,
        attempt: &mut Attempt<'_, T>,
    ) -> Result<Option<T>, Errno> {
        let _kept = KeptErrno::now();
        let _whole = Whole::keep(&self.outside);
        if let Some(mask) = wait.mask.take() {
            return self.wait_masked(mask, wait, attempt);
        }
        let parts = self.parts_waited_for(&wait);
        // The turns of the parts that are waited for are made below.
        let elsewhere = HAS_GIVEN.replace(Parts::NONE).without(parts);
        if !elsewhere.is_empty() {
            HAS_GIVEN.set(elsewhere);
            self.flush();
        }
        let looks_only = wait.limit == Some(Duration::ZERO);
        let tries = self.outside.tries();
        // A thread that does not try for a while looks once, where it falls asleep; one that can have no bell looks all the same.
        if !looks_only
            && !tries
            && let Ok(bell) = bell::mine(self.process())
        {
            return self.sleep(wait, bell, true, attempt);
        }
        let (mut found, mut begins) = (None, true);
        let mut look = |look: fn(&mut World), kernel| {
            let parts = self.parts_waited_for(&wait);
            found = self.look(parts, kernel, &mut |world, told| {
                self.comes_to_wait(world, &wait, std::mem::take(&mut begins));
                look(world);
                attempt(world, told)
            });
            found.is_some()
        };
        let begin = if tries { World::begin_trying } else { World::begin_look };
        if look(begin, Kernel::Ask) || looks_only {
            return Ok(found);
        }
        let mut glances = 0_u32;
        let mut glance = || {
            glances = glances.wrapping_add(1);
            let asks = glances.is_multiple_of(GLANCES_A_QUESTION);
            look(World::glance, if asks { Kernel::Ask } else { Kernel::Leave })
        };
        // After the first look, which has sent what the other end waits for.
        let begun = Instant::now();
        let Ok(bell) = bell::mine(self.process()) else {
            let limit = wait.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            return self.doze(Wait { limit, ..wait }, attempt);
        };
        match self.outside.try_for_a_while(wait.limit, &mut glance) {
            Tried::Done => return Ok(found),
            Tried::Interrupted if self.is_ended(&wait) => return Err(Errno::EINTR),
            _ => {}
        }
        let limit = wait.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let slept = self.sleep(Wait { limit, ..wait }, bell, false, attempt);
        self.outside.learn(begun.elapsed());
        slept
    }

    /// Waits with these signals blocked meanwhile. Pending ones that the mask lets in are handled when nothing was found, and
    /// end the wait; those that it blocks are handled when the wait is over.
    fn wait_masked<T>(
        &self,
        mask: &libc::sigset_t,
        wait: Wait<'_>,
        attempt: &mut Attempt<'_, T>,
    ) -> Result<Option<T>, Errno> {
        let found = self.look(self.parts_waited_for(&wait), Kernel::Ask, &mut |world, told| {
            world.begin_look();
            attempt(world, told)
        });
        if found.is_some() {
            return Ok(found);
        }
        let _masked = Masked { sockets: self, before: self.outside.block(mask) };
        if self.outside.was_interrupted() && self.is_ended(&wait) {
            return Err(Errno::EINTR);
        }
        self.wait(wait, attempt)
    }

    /// Returns the parts that a wait concerns: those of a set become more while a thread waits there.
    fn parts_waited_for(&self, wait: &Wait<'_>) -> Parts {
        match wait.waits_for {
            For::Set(set) => self.wait_there(set).or(wait.parts),
            For::Socket(_) | For::Sockets(_) => wait.parts,
        }
    }

    /// Makes one look at each of these parts; the kernel is asked in the last.
    fn look<T>(&self, parts: Parts, kernel: Kernel, attempt: &mut Attempt<'_, T>) -> Option<T> {
        let round = if parts.is_one() { 0 } else { ROUNDS.replace(ROUNDS.get().wrapping_add(1)) };
        let mut is_first = true;
        for (part, is_last) in parts.round(round) {
            let kernel = if is_last { kernel } else { Kernel::Leave };
            let look = Look { kernel, is_first, is_last };
            let looked = self
                .with(part, |world| (attempt(world, look), std::mem::take(&mut world.sets.heard)));
            let Some((found, heard)) = looked else { continue };
            self.pass_on_heard(heard);
            if found.is_some() {
                return found;
            }
            is_first = false;
        }
        None
    }

    /// Removes a thread that sleeps no more from the sleepers.
    fn woken(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| world.woken(bell));
        }
    }

    /// Removes a thread that goes on with something else from the sleepers, and passes its watch on.
    fn leave(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| world.goes_on(bell));
        }
    }

    /// Removes a thread that does not look at what has woken it, and it alone, from the sleepers: another watcher looks.
    fn leave_asleep(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| {
                world.goes_on(bell);
                world.wake_watcher();
            });
        }
    }

    /// Returns whether a signal ends the wait.
    fn is_ended(&self, wait: &Wait<'_>) -> bool {
        !wait.restarts.get() || self.outside.ends_calls(wait.limit.is_some())
    }

    /// Returns whether the attempt asks the kernel: the sleep does, unless it has done so already, or will not come.
    fn kernels_asked(&self, wait: &Wait<'_>, left: Option<Duration>) -> Kernel {
        let asks = left == Some(Duration::ZERO)
            || wait.kernel.iter().any(|one| one.revents != 0)
            || self.outside.was_interrupted();
        if asks { Kernel::Ask } else { Kernel::Leave }
    }

    /// Sleeps until `attempt` finds something. Each round of the protocol:
    ///
    /// 1. Look: under the lock of each part, make a turn and call `attempt`. If it finds something, delist and return.
    /// 2. Enlist under the same lock: enter the thread among the sleepers, as a watcher of the devices or to be woken by its
    ///    bell alone. No turn comes in between, so no wake-up is lost. If time is up, or a signal ends the wait, delist and
    ///    return; if the set concerns more parts by now, delist and look again.
    /// 3. ppoll(2), or the thread's eye, without a lock: on the kernel's descriptors, the bell, and what a watcher watches. A
    ///    signal handler that has run by then cancels the sleep; one that runs between that check and the sleep rings the bell.
    /// 4. Delist: silence the bell if it was rung, and mark the thread awake; the next look removes its entry. A thread that is
    ///    interrupted or cancelled removes it at once, and wakes another watcher. The keeper looks: possibly nobody makes turns.
    /// 5. Deal with the wake-ups: an instance's bell, neighbours, the host, children's requests. Frames need nothing here: the
    ///    next look makes the turn. A signal ends the wait at once, or after that look if a descriptor has woken the thread too.
    fn sleep<T>(
        &self,
        wait: Wait<'_>,
        bell: Bell,
        mut begins: bool,
        attempt: &mut Attempt<'_, T>,
    ) -> Result<Option<T>, Errno> {
        let bell = &bell;
        STANDS_BACK.set(false);
        // A limit that is too long to be expressed lasts for ever.
        let until = wait.limit.and_then(|limit| Instant::now().checked_add(limit));
        let kernel = wait.kernel.len();
        let (mut once_more, mut hurried, mut is_ended) = (false, 0, false);
        let mut fds: Vec<libc::pollfd> = Vec::new();
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let kernels = self.kernels_asked(&wait, left);
            let parts = self.parts_waited_for(&wait);
            let (mut rest, mut is_there) = (Rest::default(), false);
            // No other thread may have a turn between the attempt and the entry among the sleepers.
            let found = self.look(parts, kernels, &mut |world, look| {
                is_there = true;
                self.comes_to_wait(world, &wait, std::mem::take(&mut begins));
                world.begin_sleep(left);
                let had = world.has_to_send();
                let found = attempt(world, look);
                hurried = if !had && world.has_to_send() { hurried + 1 } else { 0 };
                if found.is_none() {
                    world.rest(bell, wait.waits_for.clone(), once_more, &mut rest);
                } else if once_more {
                    world.goes_on(bell);
                }
                found
            });
            if found.is_some() {
                if !parts.is_one() {
                    self.leave(parts, bell);
                }
                return Ok(found);
            }
            if !is_there {
                return Err(Errno::ENETDOWN);
            }
            if is_ended {
                self.leave_asleep(parts, bell);
                return Err(Errno::EINTR);
            }
            if left == Some(Duration::ZERO) {
                self.leave(parts, bell);
                return Ok(None);
            }
            if let Some(asker) = rest.asker.take() {
                self.outside.start_telling(asker);
            }
            if self.parts_waited_for(&wait) != parts {
                // The thread that has entered something of another part could not know of this sleep.
                self.woken(parts, bell);
                continue;
            }
            rest.stand_back(STANDS_BACK.take());
            lay_out(&mut fds, wait.kernel, bell, &rest);
            let limit = [left, rest.limit, hurry(&mut hurried)].into_iter().flatten().min();
            // The thread may be cancelled in there.
            let mut asleep = Asleep { sockets: self, parts, bell, comes_back: false };
            self.outside.wake_by(Some(bell.as_raw_fd()));
            // A handler that has run by now, or runs before the thread sleeps, interrupts.
            let woken = if self.outside.was_interrupted() {
                Err(Errno::EINTR)
            } else {
                self.watch(bell, &rest, (&mut fds, kernel), limit)
            };
            if woken.is_err() || fds[kernel].revents != 0 {
                bell::silence(bell);
            }
            asleep.comes_back = woken.is_ok();
            drop(asleep);
            once_more = true;
            self.deal_with(parts, &rest, &fds[kernel + 1..]);
            is_ended = self.is_ended_by(&wait, woken)?;
            if woken.is_ok() {
                let seen = fds[..kernel].iter().map(|one| one.revents);
                wait.kernel.iter_mut().zip(seen).for_each(|(one, seen)| one.revents = seen);
            }
        }
    }

    /// Waits without a bell, as the process has no descriptor left for one: the kernel's calls need none, and do not fail for
    /// that. Nobody can wake this thread, so it looks again and again.
    fn doze<T>(&self, wait: Wait<'_>, attempt: &mut Attempt<'_, T>) -> Result<Option<T>, Errno> {
        let until = wait.limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut is_ended = false;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let mut is_there = false;
            let found = self.look(self.parts_waited_for(&wait), Kernel::Ask, &mut |world, told| {
                is_there = true;
                world.begin_look();
                attempt(world, told)
            });
            if found.is_some() || left == Some(Duration::ZERO) {
                return Ok(found);
            }
            if !is_there {
                return Err(Errno::ENETDOWN);
            }
            if is_ended {
                return Err(Errno::EINTR);
            }
            let woken = if self.outside.was_interrupted() {
                Err(Errno::EINTR)
            } else {
                self.outside.poll(&mut [], Some(left.map_or(DOZE, |left| left.min(DOZE))))
            };
            is_ended = self.is_ended_by(&wait, woken)?;
        }
    }

    /// Returns whether a signal ends the wait of a thread that is awake again. Whatever else has woken it is looked at first: for
    /// what the kernel gives one of many sleepers, no other was woken.
    fn is_ended_by(&self, wait: &Wait<'_>, woken: Result<usize, Errno>) -> Result<bool, Errno> {
        let interrupted = self.outside.was_interrupted();
        // Or by a signal whose handler is not one that the library knows of.
        let ends = (interrupted || woken == Err(Errno::EINTR)) && self.is_ended(wait);
        match woken {
            Ok(_) if ends => return Ok(true),
            Err(Errno::EINTR) if ends => return Err(Errno::EINTR),
            Ok(_) | Err(Errno::EINTR) if interrupted => self.outside.goes_on_waiting(),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// Sleeps on these, by the thread's eye if that sees them: the first are the program's, which may be the set that is waited
    /// for; then come the bell and the rest.
    fn watch(
        &self,
        bell: &Bell,
        rest: &Rest,
        (fds, kernels): (&mut [libc::pollfd], usize),
        limit: Option<Duration>,
    ) -> Result<usize, Errno> {
        if rest.places != 1 || kernels != usize::from(rest.programs.is_some()) {
            return self.outside.poll(fds, limit);
        }
        let kernel = fds[..kernels].iter().map(|one| one.fd).zip(rest.programs);
        let own = rest.all().map(|(fd, wakes)| (fd, What::Own(wakes)));
        let wanted = kernel.chain([(bell.as_raw_fd(), What::Bell)]).chain(own);
        let enter = |set, (fd, what), number| {
            // Of the threads that watch a device, or have a listener, in this process or another, waking one is enough.
            let one_of_many = matches!(
                what,
                What::Own(Wakes::Device(_) | Wakes::Instance(_)) | What::Listener(_)
            );
            self.outside.enter(set, fd, number, one_of_many)
        };
        let Some(eye) = bell.eye.look(wanted, enter) else {
            return self.outside.poll(fds, limit);
        };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; eye::MOST];
        let woken = self.outside.wait(eye, &mut events, limit);
        match woken {
            Ok(count) => {
                fds.iter_mut().for_each(|one| one.revents = 0);
                for event in &events[..count.min(eye::MOST)] {
                    let (number, events) = (event.u64, event.events);
                    let one = usize::try_from(number).ok().and_then(|at| fds.get_mut(at));
                    // epoll_wait(2) has poll(2)'s bits.
                    if let (Some(one), Ok(events)) = (one, i16::try_from(events)) {
                        one.revents = events;
                    }
                }
                woken
            }
            Err(Errno::EINTR) => woken,
            // An old kernel, or a program that closes descriptors that are not its own.
            Err(why) => {
                bell.eye.be_blind(why);
                self.outside.poll(fds, limit)
            }
        }
    }

    /// Does what the descriptors that have woken the thread ask for, except for the turns.
    fn deal_with(&self, parts: Parts, rest: &Rest, fds: &[libc::pollfd]) {
        for ((_, wakes), one) in rest.all().zip(fds) {
            if one.revents == 0 {
                continue;
            }
            match wakes {
                Wakes::Device(_) => {}
                Wakes::Instance(_) => self.in_each(parts, |world| world.was_rung(one.fd)),
                Wakes::Ways => self.in_each(parts, World::hear_ways),
                Wakes::Host(_) => self.in_each(parts, |world| world.look_at_host(&self.outside)),
                Wakes::Requests => self.outside.answer_children(),
            }
        }
    }

    fn in_each(&self, parts: Parts, act: impl Fn(&mut World)) {
        for part in parts.iter() {
            self.with(part, &act);
        }
    }
}
