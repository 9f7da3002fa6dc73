//! Epoll sets that are waited for as descriptors: as members of another set, or of poll(2)'s list.
//!
//! The kernel sees its own members only. So a set that is waited for so gets one more of those, a bell that tells
//! whether the stack's have anything to tell; all else about nesting is the kernel's.

use std::os::fd::{AsRawFd as _, RawFd};

use nix::errno::Errno;
use uncork_high::Event;

use crate::Sockets;
use crate::errno;
use crate::outside::Outside;
use crate::parts::{self, Part};
use crate::world::World;

/// The eventfd that stands for the stack's members in a kernel epoll set.
#[derive(Debug)]
pub(crate) struct Shown {
    bell: Event,
    /// Whether it is rung, as the kernel sees it.
    rings: bool,
    /// Whether something has happened to a member since: a thread that waits by edges is to hear of it.
    pub(crate) noted: bool,
}

impl Shown {
    fn new() -> Result<Self, Errno> {
        Ok(Self { bell: Event::new().map_err(errno::of)?, rings: false, noted: true })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    fn show(&mut self, ready: bool) {
        let again = std::mem::take(&mut self.noted);
        if ready && (again || !self.rings) {
            self.bell.ring();
        } else if !ready && self.rings {
            self.bell.silence();
        }
        self.rings = ready;
    }
}

impl<O: Outside> Sockets<O> {
    /// Shows `set` to the kernel, as a thread waits for it as for a descriptor: the kernel knows from now on what the stack's
    /// members, if there ever are any, have to tell.
    ///
    /// # Errors
    ///
    /// EMFILE and its kin.
    pub fn show_set(&self, set: RawFd) -> Result<(), Errno> {
        let concerned = self.parts_of(set);
        let parts = if concerned.is_empty() { self.wait_there(set) } else { concerned };
        parts.iter().try_for_each(|part| self.show_in(part, set))
    }

    /// Shows the members that a part has in a set.
    pub(crate) fn show_in(&self, part: Part, set: RawFd) -> Result<(), Errno> {
        let shown = self.with(part, |world| {
            if world.sets.is_shown(set) {
                return Ok(());
            }
            let shown = Shown::new()?;
            self.outside.enter(set, shown.bell.as_raw_fd(), world.mark, false)?;
            world.sets.show(set, shown);
            world.refresh_shown();
            Ok(())
        });
        shown.unwrap_or(Err(Errno::EBADF))
    }

    /// Has a thread that waits for `set` make turns, as `inner`, a set that was shown, has become its member.
    pub fn adopt_set(&self, set: RawFd, inner: RawFd) {
        for part in self.parts_of(inner).iter() {
            self.with(part, |world| world.sets.adopt(set));
            self.entered(set, part);
            self.need_keeper(part);
        }
    }

    /// Renames `set`, which is about to be closed, to the number of its duplicate `other`, by which it is known from now on.
    pub fn rename_set(&self, set: RawFd, other: RawFd) {
        parts::ends_set(set);
        let parts = self.parts_of(set);
        for part in parts.iter() {
            self.with(part, |world| world.rename_set(set, other));
        }
        parts::join_set(other, parts);
        parts::forget_set(set);
    }
}

impl World {
    fn rename_set(&mut self, set: RawFd, other: RawFd) {
        self.sets.rename(set, other);
        for (_, socket) in self.table.iter() {
            socket.watches.iter_mut().for_each(|watch| watch.rename(set, other));
        }
        self.wake_set(set);
    }

    /// Rings or silences the bells of the sets that are shown.
    pub(crate) fn refresh_shown(&mut self) {
        for at in 0..self.sets.shown().len() {
            let set = self.sets.shown()[at];
            let ready = self.has_something(set);
            if let Some(shown) = self.sets.shown_of(set) {
                shown.show(ready);
            }
        }
    }

    /// Returns whether a member of a set on the stack has something to tell.
    fn has_something(&mut self, set: RawFd) -> bool {
        let candidates = self.sets.all_candidates(set);
        candidates.into_iter().any(|(slot, fd)| {
            let ready = self.readiness(slot);
            self.table
                .get(slot)
                .is_some_and(|socket| crate::epoll::would_tell(socket, (set, fd), ready))
        })
    }
}
