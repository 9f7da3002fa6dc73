//! What a socket call means on the user-space stack: descriptors, errno, blocking, readiness, sets.
//!
//! `preload` says what the program calls, with slices and numbers; this crate does it on the stack, with
//! the process's own engines (crate `engine`), on the thread that calls. A call that cannot go on makes a
//! turn of the engines itself, and sleeps only when there is nothing to do: no second core, no thread in
//! between. What a program has written leaves when it turns to waiting, or when much has come together;
//! so small writes leave as one segment.
//!
//! | file | holds |
//! |---|---|
//! | `world` | everything, behind one lock |
//! | `parts` | as many of these as threads, and which descriptor is whose |
//! | `link` | a device's engine, or an instance's, and whose its connections are |
//! | `tcp` | what both can do |
//! | `table` | what a descriptor stands for |
//! | `listening`, `connecting`, `transfer`, `settings` | the calls |
//! | `lost` | another instance in the place of one that is gone |
//! | `ways` | what is between stack and kernel: neighbours, the list of connections |
//! | `leaving` | connections that wait to be accepted when a listener is closed that other processes have, too |
//! | `ending` | the end of the process |
//! | `fork` | small locks over fork(2) |
//! | `waiting`, `bell`, `keeper` | sleeping and being woken; what goes on while the program does something else |
//! | `epoll`, `nested`, `polling` | many at once |
//! | `asked`, `info`, `errno`, `name` | options, TCP_INFO, errors, addresses as Linux has them |
//! | `handing` | connections that become the kernel's: fork, exec, passing on |
//! | `host`, `outside` | what is asked of the privileged half, and of the process around it |
//!
//! One lock, or one for each thread's part of it (`parts`); nobody sleeps who holds one. Several hold who forks and who
//! begins another part, the first part's first. It is not to be taken by a signal handler that interrupts its owner: `preload` sees to that.
#![forbid(unsafe_code)]

mod asked;
mod bell;
mod connecting;
mod drafts;
mod dying;
mod ending;
mod epoll;
pub mod errno;
mod eye;
mod fast_open;
mod file;
mod fork;
mod given;
mod handing;
mod host;
mod idle;
pub mod info;
mod keeper;
mod leaving;
mod link;
mod listening;
mod lost;
pub mod name;
mod neglect;
mod nested;
mod one_by_one;
mod one_each;
mod outside;
mod parting;
mod parts;
mod polling;
mod ports;
mod settings;
mod sleepers;
mod table;
mod tcp;
mod telling;
#[cfg(test)]
mod testing;
mod tick;
mod transfer;
mod waiting;
mod ways;
mod world;

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use nix::errno::Errno;

pub use asked::{Asked, Meaning, Setting, TCP_INQ};
pub use connecting::{Begun, End};
pub use handing::{HANDED_OVER, HandedOver, Watched};
pub use host::{Attachment, Device, Ends, Host, Opened, Past, Reason, Tell};
pub use listening::{Accepted, ListeningEnd};
pub use outside::{Outside, Tried};
pub use parts::Part;
pub use transfer::SENT_FLAGS;

use dying::Dying;
use link::Link;
use parts::{MOST, Parts};
use table::{Kind, Slot, Socket};
use world::World;

/// What this process has on the stack.
#[derive(Debug)]
pub struct Sockets<O> {
    outside: O,
    shares: [Share; MOST],
    /// Whether each thread has a part of its own.
    apart: AtomicBool,
    /// The last of those that were begun.
    last: AtomicU8,
    process: AtomicU32,
    dying: Dying,
}

/// What is kept of a part.
#[derive(Debug)]
struct Share {
    world: Mutex<Option<World>>,
    keeper: keeper::State,
    /// A thread has turned to something else ([`Sockets::flush`]) while another thread was in here.
    turned_away: AtomicBool,
    /// Something was given to the stack, and perhaps no turn was made since then: for the keeper.
    unsent: AtomicBool,
}

impl Share {
    const fn new() -> Self {
        Self {
            world: Mutex::new(None),
            keeper: keeper::State::new(),
            turned_away: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<World>> {
        for _ in 0..TRIES {
            if let Some(world) = self.try_lock() {
                return world;
            }
            std::hint::spin_loop();
        }
        // Whoever has panicked has left a connection half done at worst.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with everything there. What others need not wait for is done behind the lock: those are woken for whom
    /// something was found, and the kernel takes what is to leave.
    fn at_it<T>(
        &self,
        mut world: MutexGuard<'_, Option<World>>,
        act: impl FnOnce(&mut World) -> T,
    ) -> Option<T> {
        let (done, woken, kicks) = {
            let world = world.as_mut()?;
            (act(world), world.sleepers.take_rung(), world.take_kicks())
        };
        drop(world);
        woken.iter().for_each(bell::ring);
        let mut all_taken = true;
        for kick in kicks.into_iter().flatten() {
            all_taken &= kick.make();
        }
        if !all_taken {
            self.flush();
        }
        Some(done)
    }

    /// The kernel has not taken all of what was to leave.
    #[cold]
    fn flush(&self) {
        let mut world = self.lock();
        let Some(there) = world.as_mut() else { return };
        there.flush();
        let woken = there.sleepers.take_rung();
        drop(world);
        woken.iter().for_each(bell::ring);
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<World>>> {
        match self.world.try_lock() {
            Ok(world) => Some(world),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Looks whether the lock is free before this thread sleeps until it is: together as long as a turn takes that sends a
/// segment, which is less than to fall asleep and be woken. (16 threads that answer in turn: a fifth more a second with
/// it; with ten times as many a fifth less than without.)
const TRIES: u32 = 400;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
    /// Where this thread has given the stack something to do that the next turn does.
    static HAS_GIVEN: Cell<Parts> = const { Cell::new(Parts::NONE) };
}

/// In a signal handler that has interrupted the stack ([`is_inside`]) and will run later: [`Outside::left`] is
/// called when the thread has left it.
pub fn note_interruption() {
    INTERRUPTED.set(true);
}

/// Whether the calling thread is in here already: a signal handler has interrupted it, or what is called
/// from here has come back by the program's own symbols.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Another thread has the lock.
#[derive(Debug, Clone, Copy)]
struct InUse;

/// The calling thread is in here while this lives.
#[derive(Debug)]
struct Inside;

impl Inside {
    fn begin() -> Option<Self> {
        // Not `then_some`: one that is made and dropped ends it for whoever was in here before.
        if INSIDE.replace(true) { None } else { Some(Self) }
    }
}

/// errno is what it was when this is dropped: what is asked of devices on the way fails as a matter of course, and a call that
/// succeeds leaves errno alone, as the kernel's do. (Perl's IO::Socket sets it to 0, calls select(2), and takes what it has become for the
/// reason why that has found nothing.) Whoever fails sets it behind that.
#[derive(Debug)]
struct KeptErrno(i32);

impl KeptErrno {
    #[inline]
    fn now() -> Self {
        Self(Errno::last_raw())
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        Errno::set_raw(self.0);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// The calling thread has given this part something to do.
fn has_given(part: Part) {
    HAS_GIVEN.set(HAS_GIVEN.get().or(Parts::of(part)));
}

/// All locks, held across fork(2). The thread is in here meanwhile, so that signal handlers run behind that.
#[derive(Debug)]
pub struct Held<'a> {
    worlds: Vec<MutexGuard<'a, Option<World>>>,
    /// Who has one of these has no other lock than the keeper's own with a world's, in that order.
    others: Others<'a>,
    _inside: Option<Inside>,
}

/// Locks that are held for moments: a child in which nobody is left who would let go of one waits for it for ever.
#[derive(Debug)]
struct Others<'a> {
    _keepers: Vec<keeper::Held<'a>>,
    _bells: Option<bell::AllHeld>,
}

/// The calling thread is cancelled where it sleeps only, while this lives (pthread_cancel(3)): it would leave locks behind.
struct Whole<'a, O: Outside>(Option<&'a O>);

impl<'a, O: Outside> Whole<'a, O> {
    #[inline]
    fn keep(outside: &'a O) -> Self {
        Self(outside.keep_whole().then_some(outside))
    }
}

impl<O: Outside> Drop for Whole<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if let Some(outside) = self.0 {
            outside.let_go();
        }
    }
}

impl<O: Outside> Sockets<O> {
    /// Nothing is on the stack before [`Sockets::start`].
    pub const fn new(outside: O) -> Self {
        Self {
            outside,
            shares: [const { Share::new() }; MOST],
            apart: AtomicBool::new(false),
            last: AtomicU8::new(0),
            process: AtomicU32::new(0),
            dying: Dying::new(),
        }
    }

    /// From now on sockets may be on the stack, and if `apart` each thread has one of its own. `seed` gives bytes that
    /// nobody can guess; `tell` hears what has become of listeners.
    pub fn start(&self, host: Box<dyn Host>, seed: fn() -> [u8; 32], tell: Tell, apart: bool) {
        self.process.store(std::process::id(), Relaxed);
        self.apart.store(apart, Relaxed);
        telling::remember_name();
        *self.share(Part::FIRST).lock() = Some(World::new(host, seed, tell));
    }

    fn share(&self, part: Part) -> &Share {
        &self.shares[part.at()]
    }

    /// Whether each thread has a part of its own.
    #[inline]
    fn is_apart(&self) -> bool {
        self.apart.load(Relaxed)
    }

    /// The part where a descriptor's socket is, if it has one.
    #[inline]
    fn at(&self, fd: RawFd) -> Part {
        let part = if self.is_apart() { parts::of_socket(fd) } else { None };
        part.unwrap_or(Part::FIRST)
    }

    /// The calling thread's part: what it makes is there.
    #[inline]
    fn mine(&self) -> Part {
        if !self.is_apart() {
            return Part::FIRST;
        }
        parts::mine().unwrap_or_else(|| self.begin_part())
    }

    /// All that were begun.
    fn all(&self) -> impl Iterator<Item = Part> {
        Part::numbered(self.last.load(SeqCst)).up_to()
    }

    /// One for the calling thread. It costs hardly anything before it is used.
    #[cold]
    fn begin_part(&self) -> Part {
        let begun = self.enter(Part::FIRST, || {
            // Behind this lock: fork finds it begun or not.
            let first = self.share(Part::FIRST).lock();
            let part = parts::take()?;
            if part != Part::FIRST {
                let mut world = self.share(part).lock();
                if world.is_none() {
                    *world = first.as_ref().map(|first| first.another(part));
                }
            }
            self.last.fetch_max(part.number(), SeqCst);
            Some(part)
        });
        begun.flatten().unwrap_or(Part::FIRST)
    }

    /// Does something in here. Not on top of itself: a signal handler that has interrupted this thread in here gets
    /// nothing. When the thread leaves, it sees to what others have turned away from meanwhile, and to handlers.
    fn enter<T>(&self, part: Part, act: impl FnOnce() -> T) -> Option<T> {
        if self.dying.keeps_out() {
            self.sleep_for_ever();
        }
        let _whole = Whole::keep(&self.outside);
        let inside = Inside::begin()?;
        let _kept = KeptErrno::now();
        let done = act();
        self.flush_for_others(part);
        drop(inside);
        if INTERRUPTED.replace(false) {
            self.outside.left();
        }
        Some(done)
    }

    /// Does something with everything in a part, if it was started.
    fn with<T>(&self, part: Part, act: impl FnOnce(&mut World) -> T) -> Option<T> {
        let share = self.share(part);
        self.enter(part, || share.at_it(share.lock(), act)).flatten()
    }

    /// The same, unless another thread is at it.
    fn try_with<T>(
        &self,
        part: Part,
        act: impl FnOnce(&mut World) -> T,
    ) -> Result<Option<T>, InUse> {
        let share = self.share(part);
        let tried = self.enter(part, || Some(share.at_it(share.try_lock()?, act)));
        tried.flatten().ok_or(InUse)
    }

    /// The same where a descriptor's socket is, for what may fail.
    fn call<T>(
        &self,
        fd: RawFd,
        act: impl FnOnce(&mut World) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let relieved = |world: &mut World| {
            world.relieve();
            act(world)
        };
        self.with(self.at(fd), relieved).unwrap_or(Err(Errno::EBADF))
    }

    /// Does something with one part after the other.
    fn with_all<T>(&self, mut act: impl FnMut(&mut World) -> T) -> Vec<T> {
        self.all().filter_map(|part| self.with(part, &mut act)).collect()
    }

    fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    /// Waits until nobody is in here who is now.
    pub fn wait_for_others(&self) {
        self.with_all(|_| ());
    }

    /// The calling thread turns to something else: what it has given the stack leaves.
    ///
    /// A turn allocates memory, and the program may be in the middle of its allocator: a thread of jemalloc's waits
    /// for a condition with the allocator's locks held. So a thread that has given nothing does nothing here; and
    /// one that has does not wait for another thread, which may need what this one has locked: it leaves it to that
    /// one.
    pub fn flush(&self) {
        if self.dying.keeps_out() {
            return;
        }
        for part in HAS_GIVEN.replace(Parts::NONE).iter() {
            match self.try_with(part, World::turn_away) {
                Ok(Some(true)) => self.keeper_must_watch(part),
                Ok(_) => {}
                Err(InUse) => {
                    self.share(part).turned_away.store(true, SeqCst);
                    // It may have left by now.
                    self.enter(part, || ());
                }
            }
        }
    }

    /// The lock has been let go of: what others have turned away from meanwhile leaves.
    #[inline]
    fn flush_for_others(&self, part: Part) {
        let share = self.share(part);
        // Either the other one finds the lock free, or what he has left there is found.
        fence(SeqCst);
        while share.turned_away.load(Relaxed) {
            let Some(world) = share.try_lock() else { return };
            share.turned_away.store(false, SeqCst);
            share.at_it(world, World::turn_for_others);
            fence(SeqCst);
        }
    }

    /// fork(2) is about to happen: nobody is in the middle of anything.
    pub fn before_fork(&self) -> Held<'_> {
        let hold = |part| {
            let mut held = self.share(part).lock();
            if let Some(world) = held.as_mut() {
                world.turn_for_others();
                world.share_with_child(&self.outside);
                // By what the child asks for.
                world.watch_on();
                // The child would keep the device of who makes one.
                world.links().iter().for_each(Link::settle);
                // They have to wait until this is over.
                world.sleepers.take_rung().iter().for_each(bell::ring);
            }
            held
        };
        let inside = Inside::begin();
        let rest = |part| self.share(part).keeper.hold_rest();
        // A keeper that is about to rest waits for its world.
        let mut resting = vec![rest(Part::FIRST)];
        // Behind the first world's lock there are no more of them.
        let mut worlds = vec![hold(Part::FIRST)];
        resting.extend(self.all().skip(1).map(rest));
        worlds.extend(self.all().skip(1).map(hold));
        let hold_bell = |(part, rest)| self.share(part).keeper.hold_bell(rest);
        let keepers = self.all().zip(resting).map(hold_bell).collect();
        let others = Others { _keepers: keepers, _bells: bell::hold_over_fork() };
        Held { worlds, others, _inside: inside }
    }

    /// It is over, in the parent and in the child, and nothing is held any more.
    pub fn after_fork(&self) {
        if INTERRUPTED.replace(false) {
            self.outside.left();
        }
    }

    /// It has happened, in the child. `host` is the privileged half as the child will know it.
    pub fn after_fork_in_child(&self, held: Held<'_>, host: &dyn Host) {
        let Held { mut worlds, others, _inside } = held;
        drop(others);
        self.process.store(std::process::id(), Relaxed);
        parts::forget_others();
        self.dying.forget();
        eye::forget_all();
        for (part, world) in self.all().zip(&mut worlds) {
            self.share(part).keeper.forget();
            if let Some(world) = world.as_mut() {
                world.become_child(host.another());
            }
        }
    }

    /// `fd` is about to be closed, or replaced. The kernel's descriptor is the caller's to close.
    ///
    /// # Errors
    ///
    /// EBADF if it is none of ours.
    pub fn close(&self, fd: RawFd) -> Result<(), Errno> {
        self.linger(fd);
        let part = self.at(fd);
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            parts::has_socket(fd, None);
            if let Some((_, socket)) = world.table.unbind(fd) {
                world.close(socket);
            }
            // Who waits with this descriptor waits for nothing.
            world.wake(slot);
            world.turn_if_hasty();
            Ok(())
        })?;
        self.keeper_must_send(part);
        Ok(())
    }

    /// `new` is a duplicate of `old`.
    ///
    /// # Errors
    ///
    /// EBADF if that is none of ours.
    pub fn duplicated(&self, old: RawFd, new: RawFd) -> Result<(), Errno> {
        self.call(old, |world| {
            let slot = world.table.slot(old)?;
            world.table.bind(new, slot);
            Ok(())
        })
    }

    /// A set is about to be closed.
    pub fn close_set(&self, set: RawFd) {
        for part in self.parts_of(set).iter() {
            self.with(part, |world| world.forget_set(set));
        }
        parts::forget_set(set);
    }

    /// Our own descriptors, which the program knows nothing of and must not close.
    #[must_use]
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        let mut all = self.with_all(World::own_descriptors).concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// EBADF.
    pub fn is_non_blocking(&self, fd: RawFd) -> Result<bool, Errno> {
        self.call(fd, |world| Ok(world.table.find(fd)?.1.non_blocking))
    }

    /// Sets O_NONBLOCK or not.
    ///
    /// # Errors
    ///
    /// EBADF.
    pub fn set_non_blocking(&self, fd: RawFd, on: bool) -> Result<(), Errno> {
        self.call(fd, |world| {
            world.table.find(fd)?.1.non_blocking = on;
            Ok(())
        })
    }

    /// Whether this is a listener, which the kernel has, too.
    #[must_use]
    pub fn is_listener(&self, fd: RawFd) -> bool {
        self.call(fd, |world| Ok(matches!(world.table.find(fd)?.1.kind, Kind::Listener(_))))
            .unwrap_or(false)
    }
}

/// A connection of a descriptor, which the process that this one was forked from may have kept.
fn connection(socket: &Socket) -> Result<table::Place, Errno> {
    match &socket.kind {
        Kind::Connection { place, .. } => Ok(*place),
        Kind::Listener(_) => Err(Errno::ENOTCONN),
        Kind::Elsewhere { .. } => Err(Errno::ECONNABORTED),
    }
}

/// Both, of a descriptor.
fn connected(world: &mut World, fd: RawFd) -> Result<(Slot, table::Place), Errno> {
    let (slot, socket) = world.table.find(fd)?;
    Ok((slot, connection(socket)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_in_on_top_of_himself_stays_in_there_when_he_is_turned_away() {
        let inside = Inside::begin();
        assert!(Inside::begin().is_none());
        assert!(is_inside());
        drop(inside);
        assert!(!is_inside());
    }
}
