//! Waiting: for a socket, for a set, for anything of a list; with the kernel's descriptors beside the
//! stack's.

use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::bell::{self, Bell};
use crate::outside::{Outside, Tried};
use crate::world::{For, World};
use crate::{HAS_GIVEN, Sockets};

/// How a wait is to be done.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) waits_for: For,
    /// None for ever.
    pub(crate) limit: Option<Duration>,
    /// Signals that are blocked meanwhile, as the program says.
    pub(crate) mask: Option<&'a libc::sigset_t>,
    /// Descriptors of the kernel's that end the wait, too, when the next attempt is made.
    pub(crate) kernel: &'a mut [libc::pollfd],
    /// Whether a signal whose handler was installed with SA_RESTART leaves it waiting.
    pub(crate) restarts: bool,
}

/// Whether an attempt has to ask the kernel what its descriptors have, by a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Nobody else does.
    Ask,
    /// If the stack's have nothing, the sleep behind the attempt tells, or the next attempts do.
    Leave,
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
    bell: &'a Bell,
}

impl<O: Outside> Drop for Asleep<'_, O> {
    fn drop(&mut self) {
        self.sockets.outside.wake_by(None);
        self.sockets.with(|world| world.woken(self.bell));
        // It was perhaps the last that made turns.
        self.sockets.keeper_must_look();
    }
}

fn is_ready(one: &libc::pollfd, fd: RawFd) -> bool {
    one.fd == fd && one.revents != 0
}

impl<O: Outside> Sockets<O> {
    /// Calls `attempt` behind each turn until it gives something. `Ok(None)`: time ran out.
    pub(crate) fn wait<T>(
        &self,
        wait: Wait<'_>,
        attempt: &mut dyn FnMut(&mut World, Kernel) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let begun = Instant::now();
        HAS_GIVEN.set(false);
        let looks_only = wait.limit == Some(Duration::ZERO);
        let tries = self.outside.tries();
        // Who does not try for a while looks once, where he falls asleep; who can have no bell looks all the same.
        if !looks_only
            && !tries
            && let Ok(bell) = bell::mine(self.process())
        {
            return self.sleep(wait, (begun, &bell), attempt);
        }
        let mut found = None;
        let mut look = |look: fn(&mut World), kernel| {
            self.with(|world| {
                look(world);
                found = attempt(world, kernel);
            });
            found.is_some()
        };
        if look(World::begin_wait, Kernel::Ask) || looks_only {
            return Ok(found);
        }
        let mut glances = 0_u32;
        let mut glance = || {
            glances = glances.wrapping_add(1);
            let asks = glances.is_multiple_of(GLANCES_A_QUESTION);
            look(World::glance, if asks { Kernel::Ask } else { Kernel::Leave })
        };
        let bell = bell::mine(self.process())?;
        let tried = self.outside.try_for_a_while(wait.limit, &mut glance);
        let waited = match tried {
            Tried::Done => Ok(found),
            Tried::Interrupted if self.is_ended(&wait) => Err(Errno::EINTR),
            _ => self.sleep(wait, (begun, &bell), attempt),
        };
        self.outside.learn(begun.elapsed());
        waited
    }

    /// Whether a signal ends it.
    fn is_ended(&self, wait: &Wait<'_>) -> bool {
        !wait.restarts || self.outside.ends_calls(wait.limit.is_some())
    }

    fn sleep<T>(
        &self,
        wait: Wait<'_>,
        (begun, bell): (Instant, &Bell),
        attempt: &mut dyn FnMut(&mut World, Kernel) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        let kernel = wait.kernel.len();
        let mut fds: Vec<libc::pollfd> = Vec::new();
        loop {
            let left = wait.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            // What the kernel's have shows when it is slept on them, unless that has shown it already, or will not come.
            let asks = left == Some(Duration::ZERO)
                || wait.kernel.iter().any(|one| one.revents != 0)
                || self.outside.was_interrupted();
            let kernels = if asks { Kernel::Ask } else { Kernel::Leave };
            // Between the attempt and the entry among the sleepers nobody else may have a turn.
            let looked = self.with(|world| {
                world.turn();
                match attempt(world, kernels) {
                    Some(found) => Ok(found),
                    None => Err(world.rest(bell, wait.waits_for.clone())),
                }
            });
            let mut rest = match looked {
                None => return Err(Errno::ENETDOWN),
                Some(Ok(found)) => return Ok(Some(found)),
                Some(Err(rest)) => rest,
            };
            if left == Some(Duration::ZERO) {
                self.with(|world| world.woken(bell));
                return Ok(None);
            }
            let (ways, requests) = (rest.ways, rest.requests);
            if let Some(asker) = rest.asker.take() {
                self.outside.start_telling(asker);
            }
            fds.clear();
            fds.extend_from_slice(wait.kernel);
            fds.push(readable(bell.as_raw_fd()));
            fds.extend(rest.all().map(readable));
            let limit = [left, rest.limit].into_iter().flatten().min();
            // A thread may be cancelled in there.
            let asleep = Asleep { sockets: self, bell };
            self.outside.wake_by(Some(bell.as_raw_fd()));
            // A handler that has run until now, or runs until the thread sleeps, is one that interrupts.
            let woken = if self.outside.was_interrupted() {
                Err(Errno::EINTR)
            } else {
                self.outside.poll(&mut fds, limit, wait.mask)
            };
            if woken.is_err() || fds[kernel].revents != 0 {
                bell::silence(bell);
            }
            let news = ways.is_some_and(|ways| fds.iter().any(|one| is_ready(one, ways)));
            drop(asleep);
            if news {
                self.with(World::hear_ways);
            }
            if rest.host.is_some_and(|host| fds.iter().any(|one| is_ready(one, host))) {
                self.with(World::look_at_host);
            }
            let asked = requests.is_some_and(|asks| fds.iter().any(|one| is_ready(one, asks)));
            if asked {
                self.outside.answer_children();
            }
            match woken {
                Ok(_) | Err(Errno::EINTR) if self.outside.was_interrupted() => {
                    if self.is_ended(&wait) {
                        return Err(Errno::EINTR);
                    }
                    self.outside.goes_on_waiting();
                }
                // By a signal whose handler is none of ours.
                Err(Errno::EINTR) if self.is_ended(&wait) => return Err(Errno::EINTR),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
            if woken.is_ok() {
                wait.kernel.copy_from_slice(&fds[..kernel]);
            }
        }
    }
}
