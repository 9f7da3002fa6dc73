//! Waiting for many descriptors: poll(2), and with it select(2); epoll(7).

use std::cell::Cell;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::Sockets;
use crate::epoll::{Candidate, Happened};
use crate::handing::HANDED_OVER;
use crate::outside::Outside;
use crate::parts::{self, Part, Parts};
use crate::sleepers::For;
use crate::table::{Kind, Slot};
use crate::waiting::{Kernel, Wait};
use crate::world::{READABLE, World};

/// In the sixteen bits of poll(2).
const INPUT: i16 = libc::POLLIN | libc::POLLRDNORM;

/// After so many answers that only the stack's members of a set have given, the kernel's come first: a busy connection
/// must not starve a pipe.
const LOOKS_BETWEEN: u32 = 4;
/// The events that poll(2) reports whether asked for or not.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

impl<O: Outside> Sockets<O> {
    /// Does poll(2) with some of the stack's descriptors among `fds`. Fills `revents` in, and returns how many
    /// have something.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn poll(
        &self,
        fds: &mut [libc::pollfd],
        limit: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        let begun = Instant::now();
        loop {
            let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            // What has become the kernel's meanwhile is polled there.
            match self.poll_as_it_is(fds, left, mask) {
                Err(HANDED_OVER) => {}
                done => return done,
            }
        }
    }

    /// Polls once; [`HANDED_OVER`] if one of them has become the kernel's, or another socket.
    fn poll_as_it_is(
        &self,
        fds: &mut [libc::pollfd],
        limit: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        // The kernel skips negative descriptors: so its list keeps the positions of the program's list.
        let mut kernel = fds.to_vec();
        for one in &mut kernel {
            one.revents = 0;
        }
        let mut ours = Vec::new();
        let parts = self.parts_polled(fds);
        for part in parts.iter() {
            self.with(part, |world| {
                for (at, one) in fds.iter().enumerate().filter(|(_, one)| self.at(one.fd) == part) {
                    let Ok((slot, socket)) = world.table.find(one.fd) else { continue };
                    let listens = matches!(socket.kind, Kind::Listener(_));
                    if listens && one.events & INPUT != 0 {
                        world.ensure_listening(slot);
                    }
                    // A listener is in both.
                    if !listens {
                        kernel[at].fd = -1;
                    }
                    ours.push((at, part, slot));
                }
            });
            self.need_keeper(part);
        }
        let mut asked = kernel.clone();
        // A slot of another part with the same number may wake the wait for nothing. A caller that asks for nothing of a listener
        // waits for no connection there (xinetd, while a service has it).
        let awaited =
            ours.iter().filter(|(at, ..)| kernel[*at].fd < 0 || kernel[*at].events & INPUT != 0);
        let waits_for = For::Sockets(awaited.map(|(_, _, slot)| *slot).collect());
        let has_kernel = kernel.iter().any(|one| one.fd >= 0);
        let wait = Wait {
            waits_for,
            parts,
            may_leave: limit != Some(Duration::ZERO),
            limit,
            mask,
            kernel: &mut kernel,
            restarts: &Cell::new(false),
        };
        let found = self.wait(wait, &mut |world, look| {
            if look.is_first {
                fds.iter_mut().for_each(|one| one.revents = 0);
            }
            let here = world.table.part();
            let its = || ours.iter().filter(|(_, part, _)| *part == here);
            for &(at, _, slot) in its() {
                fds[at].revents = match world.table.slot(fds[at].fd) {
                    Ok(now) if now == slot => {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "poll's events are 16 bits"
                        )]
                        let ready = world.readiness(slot) as i16;
                        ready & (fds[at].events | ALWAYS)
                    }
                    // Another thread has closed it, and possibly opened another.
                    Ok(_) | Err(HANDED_OVER) => return Some(Err(HANDED_OVER)),
                    Err(_) => libc::POLLNVAL,
                };
            }
            if !look.is_last {
                return None;
            }
            let any_of_ours = fds.iter().any(|one| one.revents != 0);
            if has_kernel && (any_of_ours || look.kernel == Kernel::Ask) {
                let looked = self.outside.poll(&mut asked, Some(Duration::ZERO));
                if matches!(looked, Ok(1..)) {
                    for (one, asked) in fds.iter_mut().zip(&asked) {
                        one.revents |= asked.revents;
                    }
                }
            }
            let count = fds.iter().filter(|one| one.revents != 0).count();
            world.told_of(count);
            (count > 0).then_some(Ok(count))
        })?;
        found.unwrap_or(Ok(0))
    }

    /// Returns the parts of the sockets and sets that are polled.
    fn parts_polled(&self, fds: &[libc::pollfd]) -> Parts {
        if !self.is_apart() {
            return Parts::of(Part::FIRST);
        }
        let of = |one: &libc::pollfd| {
            let socket = parts::of_socket(one.fd).map_or(Parts::NONE, Parts::of);
            socket.or(self.parts_of(one.fd))
        };
        let all = fds.iter().map(of).fold(Parts::NONE, Parts::or);
        if all.is_empty() { Parts::of(self.mine()) } else { all }
    }

    /// Returns whether an epoll set has members on the stack.
    #[must_use]
    pub fn has_set(&self, set: RawFd) -> bool {
        let mut parts = self.parts_of(set).iter();
        parts.any(|part| self.with(part, |world| world.sets.has(set)) == Some(true))
    }

    /// Does epoll_ctl(2) on a descriptor on the stack. A listener is the kernel's member, too (`epoll/heralds.rs`).
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn control_set(
        &self,
        set: RawFd,
        operation: i32,
        fd: RawFd,
        event: Option<libc::epoll_event>,
    ) -> Result<(), Errno> {
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            let what = event.map(|event| Happened { events: event.events, data: event.u64 });
            let watches_in = what.is_some_and(|what| what.events & READABLE != 0);
            if watches_in {
                world.ensure_listening(slot);
            }
            self.control_member(world, (set, operation, fd), slot, what)?;
            // A thread may sleep on the set already.
            world.wake_set(set);
            // Or on a set that has this one as a member (ep_poll_safewake): what it shows is looked at anew.
            if let Some(shown) = world.sets.shown_of(set) {
                shown.noted = true;
                world.refresh_shown();
            }
            Ok(())
        })?;
        let part = self.at(fd);
        self.entered(set, part);
        self.need_keeper(part);
        Ok(())
    }

    fn control_member(
        &self,
        world: &mut World,
        (set, operation, fd): (RawFd, i32, RawFd),
        slot: Slot,
        what: Option<Happened>,
    ) -> Result<(), Errno> {
        let is_listener = world.table.get(slot).ok_or(Errno::EBADF)?.is_listener();
        let herald = if is_listener {
            self.control_herald(world, (set, operation, fd), slot, what)?
        } else {
            None
        };
        let World { table, sets, .. } = world;
        let socket = table.get(slot).ok_or(Errno::EBADF)?;
        match operation {
            libc::EPOLL_CTL_ADD => {
                sets.add(set, (slot, socket), fd, what.ok_or(Errno::EFAULT)?)?;
                if let Some(herald) = herald {
                    sets.appoint(herald, (slot, socket), (set, fd));
                }
                Ok(())
            }
            libc::EPOLL_CTL_MOD => sets.change(set, (slot, socket), fd, what.ok_or(Errno::EFAULT)?),
            libc::EPOLL_CTL_DEL => sets.remove(set, socket, fd),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Does epoll_wait(2) on a set with members on the stack, and possibly of the kernel's. Fills `into`, and
    /// returns the number of events.
    ///
    /// # Errors
    ///
    /// As the call has them; EBADF if another thread closes the set, whose number may be another set's then.
    pub fn wait_for_set(
        &self,
        set: RawFd,
        into: &mut [libc::epoll_event],
        limit: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        let mut kernel = [libc::pollfd { fd: set, events: libc::POLLIN, revents: 0 }];
        let (waits_for, parts) = (For::Set(set), Parts::NONE);
        let wait = Wait {
            waits_for,
            parts,
            may_leave: false,
            limit,
            mask,
            kernel: &mut kernel,
            restarts: &Cell::new(false),
        };
        let mut found = 0;
        let begun = parts::waits_for(set);
        let waited = self.wait(wait, &mut |world, look| {
            found = if look.is_first { 0 } else { found };
            if !parts::is_still(set, begun) {
                return Some(if found > 0 { Ok(found) } else { Err(Errno::EBADF) });
            }
            let mut kernels = |world: &mut World, into: &mut [libc::epoll_event]| {
                let looked = self.outside.look_into_set(set, into)?;
                Ok(world.sort_out(&mut into[..looked]))
            };
            // After what one part has told the kernel need not be asked.
            let asks = if found == 0 { look.kernel } else { Kernel::Leave };
            let room = into.get_mut(found..).filter(|room| !room.is_empty());
            let told =
                room.map_or(Ok(0), |room| world.collect_fairly(set, room, (asks, &mut kernels)));
            match told {
                Ok(told) => found += told,
                Err(error) if found == 0 => return Some(Err(error)),
                Err(_) => {}
            }
            (look.is_last && found > 0).then_some(Ok(found))
        })?;
        waited.unwrap_or(Ok(0))
    }
}

/// Asks what the kernel's members have to tell, and takes out of it what is not for the program ([`World::sort_out`]).
type Look<'a> = dyn FnMut(&mut World, &mut [libc::epoll_event]) -> Result<usize, Errno> + 'a;

impl World {
    /// Collects what all members of a set have to tell. The kernel's are asked by `look`, a system call: if that has to be
    /// made and the stack's have nothing, and now and then first, so that a caller that takes one at a time sees them, too.
    fn collect_fairly(
        &mut self,
        set: RawFd,
        into: &mut [libc::epoll_event],
        (kernels, look): (Kernel, &mut Look<'_>),
    ) -> Result<usize, Errno> {
        let is_kernels = self.sets.told_by_stack(set) >= LOOKS_BETWEEN;
        let first = if is_kernels { look(self, into)? } else { 0 };
        let ours = self.collect(set, &mut into[first..]);
        self.sets.note_told(set, is_kernels, ours);
        self.told_of(ours);
        let asks = kernels == Kernel::Ask && !is_kernels;
        if first + ours == 0 && asks {
            let first = look(self, into)?;
            return Ok(first + self.collect_heard(set, &mut into[first..]));
        }
        let mut told = first + ours;
        let is_full = told == into.len();
        let looks_again = self.sets.has_told_listeners() && !is_full;
        if looks_again {
            // One edge for what has come either way. Nothing is said of an error: there is something to be told.
            told += look(self, &mut into[told..]).unwrap_or(0);
        }
        self.sets.forget_told();
        if std::mem::take(&mut self.sets.have_news) && (looks_again || is_full) {
            // The kernel has said it to this thread alone, which has no room for it, or tells no member twice.
            self.wake_set(set);
        }
        Ok(told)
    }

    /// Collects what the stack's members of a set have to tell after the kernel was asked: what heralds have said.
    fn collect_heard(&mut self, set: RawFd, into: &mut [libc::epoll_event]) -> usize {
        let heard = self.collect(set, into);
        self.sets.forget_told();
        self.sets.have_news = false;
        if heard > 0 {
            self.told_of(heard);
        }
        heard
    }

    /// Collects what the stack's members of a set have to tell, oldest first.
    fn collect(&mut self, set: RawFd, into: &mut [libc::epoll_event]) -> usize {
        let mut count = 0;
        // Level-triggered members are queued again, and looked at in the next call, after the others.
        for _ in 0..self.sets.candidates(set) {
            if count == into.len() {
                break;
            }
            let Some(candidate) = self.sets.next(set) else { break };
            let ready = self.readiness(candidate.slot);
            if let Some(told) = self.tell(set, candidate, ready) {
                into[count] = libc::epoll_event { events: told.events, u64: told.data };
                count += 1;
            }
        }
        count
    }

    fn tell(&mut self, set: RawFd, candidate: Candidate, ready: u32) -> Option<Happened> {
        let socket = self.table.get(candidate.slot)?;
        self.sets.tell(set, candidate, socket, ready)
    }
}
