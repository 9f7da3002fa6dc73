//! Waiting: for a socket, for a set, for anything of a list; with the kernel's descriptors beside the
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
    /// Where these are; of a set that is known elsewhere.
    pub(crate) parts: Parts,
    /// Whether their connections may become the kernel's as it begins: nothing is half done.
    pub(crate) may_leave: bool,
    /// None for ever.
    pub(crate) limit: Option<Duration>,
    /// Signals that are blocked meanwhile, as the program says.
    pub(crate) mask: Option<&'a libc::sigset_t>,
    /// Descriptors of the kernel's that end the wait, too, when the next attempt is made.
    pub(crate) kernel: &'a mut [libc::pollfd],
    /// Whether a signal whose handler was installed with SA_RESTART leaves it waiting. A transfer that has moved something
    /// ends by any, as it has something to tell (signal(7)).
    pub(crate) restarts: &'a Cell<bool>,
}

/// Whether an attempt has to ask the kernel what its descriptors have, by a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Nobody else does.
    Ask,
    /// If the stack's have nothing, the sleep behind the attempt tells, or the next attempts do.
    Leave,
}

/// What an attempt is told. Where a wait concerns several parts it has one look at each; what it finds before the last it
/// keeps until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) kernel: Kernel,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// Tries, and gives what it has found.
type Attempt<'a, T> = dyn FnMut(&mut World, Look) -> Option<T> + 'a;

thread_local! {
    /// Looks that this thread has had at several parts: each begins with another one, or the first would be all that is
    /// heard of when it is busy.
    static ROUNDS: Cell<u8> = const { Cell::new(0) };
    /// What this thread waits for of the kernel's is there, and another process takes it at the moment, or has been suspended in
    /// the middle of that.
    static STANDS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is not to look for the kernel's again at once.
pub(crate) fn stand_back() {
    STANDS_BACK.set(true);
}

/// Glances of one who tries before he sleeps, of which one asks the kernel.
const GLANCES_A_QUESTION: u32 = 8;

/// What is waited for of a descriptor that only wakes.
pub(crate) fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// A thread is among the sleepers while this lives.
struct Asleep<'a, O: Outside> {
    sockets: &'a Sockets<O>,
    parts: Parts,
    bell: &'a Bell,
    /// It looks again behind this; one that is cancelled does not.
    comes_back: bool,
}

impl<O: Outside> Drop for Asleep<'_, O> {
    fn drop(&mut self) {
        self.sockets.outside.wake_by(None);
        if self.comes_back {
            // It is taken from among the sleepers when it looks.
            self.parts.iter().for_each(|part| self.bell.wakes(part));
        } else {
            self.sockets.leave_asleep(self.parts, self.bell);
        }
        for part in self.parts.iter() {
            // It was perhaps the last that made turns.
            self.sockets.keeper_must_look(part);
        }
    }
}

/// The thread has other signals blocked than it had before while this lives.
struct Masked<'a, O: Outside> {
    sockets: &'a Sockets<O>,
    before: libc::sigset_t,
}

impl<O: Outside> Drop for Masked<'_, O> {
    fn drop(&mut self) {
        self.sockets.outside.block(&self.before);
    }
}

/// Attempts in a row that have given the stack something to send, or made room for more to come: that leaves in another turn
/// before the sleep; behind so many the thread takes a breath.
const HURRIES: u32 = 256;
/// How long is slept behind so many, at the most: what the last has given leaves behind that.
const BREATH: Duration = Duration::from_millis(1);

/// How long may be slept at most, behind so many.
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

/// All that wakes a sleeper: what he waits for of the kernel's, unless he stands back, his bell, and the rest.
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
    /// Calls `attempt` behind each turn until it gives something. `Ok(None)`: time ran out.
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
        // The turns are made here.
        let elsewhere = HAS_GIVEN.replace(Parts::NONE).without(parts);
        if !elsewhere.is_empty() {
            HAS_GIVEN.set(elsewhere);
            self.flush();
        }
        let looks_only = wait.limit == Some(Duration::ZERO);
        let tries = self.outside.tries();
        // Who does not try for a while looks once, where he falls asleep; who can have no bell looks all the same.
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
        // Behind the first look, which has sent what the other end waits for.
        let begun = Instant::now();
        let bell = bell::mine(self.process())?;
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

    /// The same with these signals blocked meanwhile. Those that are let in come when there is nothing to be found, and
    /// end it; those that are kept out come when it is over.
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

    /// Those of a set become more while somebody waits there.
    fn parts_waited_for(&self, wait: &Wait<'_>) -> Parts {
        match wait.waits_for {
            For::Set(set) => self.wait_there(set).or(wait.parts),
            For::Socket(_) | For::Sockets(_) => wait.parts,
        }
    }

    /// One look at each of these parts; the kernel is asked in the last.
    fn look<T>(&self, parts: Parts, kernel: Kernel, attempt: &mut Attempt<'_, T>) -> Option<T> {
        let round = if parts.is_one() { 0 } else { ROUNDS.replace(ROUNDS.get().wrapping_add(1)) };
        let mut is_first = true;
        for (part, is_last) in parts.round(round) {
            let kernel = if is_last { kernel } else { Kernel::Leave };
            let look = Look { kernel, is_first, is_last };
            let found = self.with(part, |world| attempt(world, look)).flatten();
            if found.is_some() {
                return found;
            }
            is_first = false;
        }
        None
    }

    /// A thread sleeps no more.
    fn woken(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| world.woken(bell));
        }
    }

    /// The same, and it goes on with something else.
    fn leave(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| world.goes_on(bell));
        }
    }

    /// The same, and it does not look at what has woken it, which has woken nobody else: another one does.
    fn leave_asleep(&self, parts: Parts, bell: &Bell) {
        for part in parts.iter() {
            self.with(part, |world| {
                world.goes_on(bell);
                world.wake_watcher();
            });
        }
    }

    /// Whether a signal ends it.
    fn is_ended(&self, wait: &Wait<'_>) -> bool {
        !wait.restarts.get() || self.outside.ends_calls(wait.limit.is_some())
    }

    /// What the kernel's have shows when it is slept on them, unless that has shown it already, or will not come.
    fn kernels_asked(&self, wait: &Wait<'_>, left: Option<Duration>) -> Kernel {
        let asks = left == Some(Duration::ZERO)
            || wait.kernel.iter().any(|one| one.revents != 0)
            || self.outside.was_interrupted();
        if asks { Kernel::Ask } else { Kernel::Leave }
    }

    fn sleep<T>(
        &self,
        wait: Wait<'_>,
        bell: Bell,
        mut begins: bool,
        attempt: &mut Attempt<'_, T>,
    ) -> Result<Option<T>, Errno> {
        let bell = &bell;
        STANDS_BACK.set(false);
        // One that is too long to be told lasts for ever.
        let until = wait.limit.and_then(|limit| Instant::now().checked_add(limit));
        let kernel = wait.kernel.len();
        let (mut once_more, mut hurried, mut is_ended) = (false, 0, false);
        let mut fds: Vec<libc::pollfd> = Vec::new();
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let kernels = self.kernels_asked(&wait, left);
            let parts = self.parts_waited_for(&wait);
            let (mut rest, mut is_there) = (Rest::default(), false);
            // Between the attempt and the entry among the sleepers nobody else may have a turn.
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
                // Whoever has entered something of another part could not know of this sleep.
                self.woken(parts, bell);
                continue;
            }
            rest.stand_back(STANDS_BACK.take());
            lay_out(&mut fds, wait.kernel, bell, &rest);
            let limit = [left, rest.limit, hurry(&mut hurried)].into_iter().flatten().min();
            // A thread may be cancelled in there.
            let mut asleep = Asleep { sockets: self, parts, bell, comes_back: false };
            self.outside.wake_by(Some(bell.as_raw_fd()));
            // A handler that has run until now, or runs until the thread sleeps, is one that interrupts.
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

    /// Whether a signal ends the wait of a thread that is awake again. What has woken it as well is looked at first: of what the kernel
    /// has for one of many nobody else was told.
    fn is_ended_by(&self, wait: &Wait<'_>, woken: Result<usize, Errno>) -> Result<bool, Errno> {
        let interrupted = self.outside.was_interrupted();
        // Or by a signal whose handler is none of ours.
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
    /// for; then comes the bell, and the rest.
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
            // Of those who watch a device, or have a listener, in this process or another, one is enough.
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
                    // The same bits as poll(2) has.
                    if let (Some(one), Ok(events)) = (one, i16::try_from(events)) {
                        one.revents = events;
                    }
                }
                woken
            }
            Err(Errno::EINTR) => woken,
            // An old kernel, or a program that closes what is not its own.
            Err(why) => {
                bell.eye.be_blind(why);
                self.outside.poll(fds, limit)
            }
        }
    }

    /// Does what is to be done for what has woken somebody, but for the turns.
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
