//! The meaning of socket calls on the user-space stack: descriptors, errno, blocking, readiness, epoll sets.
//!
//! `preload` passes on what the program calls, as slices and numbers; this crate carries it out on the stack, with
//! the process's own engines (crate `engine`), on the calling thread. A call that cannot proceed makes a turn of the
//! engines itself, and sleeps only when there is nothing to do: no second core, no thread in between. What a program
//! has written leaves when the program turns to waiting, or when much has accumulated, so small writes leave as one
//! segment.
//!
//! | file | holds |
//! |---|---|
//! | `world` | all state, under one lock; `world/turning`: turns of the engines |
//! | `parts` | one world for each thread, and which descriptor is in which |
//! | `link` | a device's engine, or the attachment to an instance, and the sockets of its connections |
//! | `tcp` | the operations that a stack and an instance have in common |
//! | `table` | what a descriptor stands for |
//! | `listening`, `connecting`, `transfer`, `file`, `settings` | the calls, sendfile(2) and socket options among them |
//! | `fast_open` | TCP Fast Open: the host's settings, data in a SYN |
//! | `given` | what was written since the last turn, and when that is enough for a turn |
//! | `drafts` | which writes may be parts of a message, so that Nagle's algorithm applies to them |
//! | `waiting`, `sleepers`, `bell`, `eye` | sleeping; which sleeper watches the devices; a thread's eventfd; its epoll set |
//! | `keeper`, `tick` | the thread that makes turns while the program does something else, and its timer |
//! | `epoll`, `nested`, `polling` | epoll sets; sets that are members of others; the calls of poll(2) and epoll(7) |
//! | `asked`, `info`, `errno`, `name` | options, TCP_INFO, errors, addresses as Linux has them |
//! | `host`, `outside` | what is asked of the privileged half, and of the process around the stack |
//! | `ports` | local ports that the privileged half has reserved in advance |
//! | `ways` | what passes between stack and kernel beside frames: routes and neighbours, the list of connections |
//! | `handing` | connections that become the kernel's: fork, exec, passing on |
//! | `leaving` | the accept queue of a listener that was closed while other processes have it, too |
//! | `neglect` | a listener with a connection that waits while its process sleeps on something else: left to other processes |
//! | `one_by_one`, `one_each` | programs for which the kernel is faster: one short connection at a time; a thread for each |
//! | `idle` | closing the devices when all ports of a process are the kernel's |
//! | `lost` | listening again on the instance that replaces one that is gone |
//! | `parting` | everything becomes the kernel's, as the privileged half was told to end |
//! | `ending`, `dying` | the end of the process; its end by a signal for which it has no handler |
//! | `fork` | small locks over fork(2) |
//! | `telling` | answers to `uncork stack stat` |
//!
//! There is one lock, or one for each thread's part (`parts`); no thread sleeps while it holds one. A thread that forks or
//! begins a part holds several, the first part's first. A signal handler must not take a lock that the thread it
//! interrupts holds: `preload` sees to that.
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

/// The sockets of this process that are on the stack.
#[derive(Debug)]
pub struct Sockets<O> {
    outside: O,
    shares: [Share; MOST],
    /// Whether each thread has a part of its own.
    apart: AtomicBool,
    /// The number of the last part that was begun.
    last: AtomicU8,
    process: AtomicU32,
    dying: Dying,
}

/// A part: its world behind a lock, its keeper, and what is read without the lock.
#[derive(Debug)]
struct Share {
    world: Mutex<Option<World>>,
    keeper: keeper::State,
    /// A thread has turned to something else ([`Sockets::flush`]) while another thread held the lock.
    turned_away: AtomicBool,
    /// Something was given to the stack, and possibly no turn was made since then: for the keeper.
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
        // A thread that has panicked has left one connection half done at worst.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the world. What other threads need not wait for is done after the lock is released: the bells of threads
    /// for which something was found are rung, and the kernel takes what is to leave.
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

    /// Flushes again, as the kernel has not taken all that was to leave.
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

/// How often a thread looks whether the lock is free before it sleeps until it is: together as long as a turn that sends a
/// segment takes, which is less than falling asleep and being woken. (16 threads that answer in turn: a fifth more a second
/// with it; with ten times as many looks a fifth less than without.)
const TRIES: u32 = 400;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
    /// The parts to which this thread has given something that the next turn does.
    static HAS_GIVEN: Cell<Parts> = const { Cell::new(Parts::NONE) };
}

/// Notes that a signal handler has interrupted the stack ([`is_inside`]) and will run later: [`Outside::left`] is
/// called when the thread has left the stack.
pub fn note_interruption() {
    INTERRUPTED.set(true);
}

/// Returns whether the calling thread is inside this crate already: a signal handler has interrupted it, or a function
/// that was called from here has come back through the program's own symbols.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// The error of a try: another thread holds the lock.
#[derive(Debug, Clone, Copy)]
struct InUse;

/// Marks the calling thread as inside this crate while it lives.
#[derive(Debug)]
struct Inside;

impl Inside {
    fn begin() -> Option<Self> {
        // Not `then_some`: a guard that is made and dropped would end the outer one's mark.
        if INSIDE.replace(true) { None } else { Some(Self) }
    }
}

/// Restores errno when dropped: what is asked of devices on the way fails as a matter of course, and a call that
/// succeeds leaves errno alone, as the kernel's do. (Perl's IO::Socket sets it to 0, calls select(2), and takes its
/// new value for the reason why that has found nothing.) A call that fails sets errno after that.
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

/// Notes that the calling thread has given this part something to do.
fn has_given(part: Part) {
    HAS_GIVEN.set(HAS_GIVEN.get().or(Parts::of(part)));
}

/// All locks, held across fork(2). The thread counts as inside meanwhile, so that signal handlers run afterwards.
#[derive(Debug)]
pub struct Held<'a> {
    worlds: Vec<MutexGuard<'a, Option<World>>>,
    /// A thread that holds one of these takes no other lock, except that a keeper takes its own and then a world's.
    others: Others<'a>,
    _inside: Option<Inside>,
}

/// Locks that are held briefly: a child of fork without the thread that holds one would wait for it for ever.
#[derive(Debug)]
struct Others<'a> {
    _keepers: Vec<keeper::Held<'a>>,
    _bells: Option<bell::AllHeld>,
}

/// While it lives, the calling thread is cancelled only where it sleeps (pthread_cancel(3)): it would leave locks behind.
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
    /// Creates it with nothing on the stack, until [`Sockets::start`].
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

    /// Lets sockets be on the stack from now on; if `apart`, each thread has a stack of its own. `seed` returns bytes that
    /// nobody can guess; `tell` is told what has become of listeners.
    pub fn start(&self, host: Box<dyn Host>, seed: fn() -> [u8; 32], tell: Tell, apart: bool) {
        self.process.store(std::process::id(), Relaxed);
        self.apart.store(apart, Relaxed);
        telling::remember_name();
        *self.share(Part::FIRST).lock() = Some(World::new(host, seed, tell));
    }

    fn share(&self, part: Part) -> &Share {
        &self.shares[part.at()]
    }

    #[inline]
    fn is_apart(&self) -> bool {
        self.apart.load(Relaxed)
    }

    /// Returns the part that has a descriptor's socket, or the first part.
    #[inline]
    fn at(&self, fd: RawFd) -> Part {
        let part = if self.is_apart() { parts::of_socket(fd) } else { None };
        part.unwrap_or(Part::FIRST)
    }

    /// Returns the calling thread's part, which gets the sockets that it makes.
    #[inline]
    fn mine(&self) -> Part {
        if !self.is_apart() {
            return Part::FIRST;
        }
        parts::mine().unwrap_or_else(|| self.begin_part())
    }

    /// Returns all parts that were begun.
    fn all(&self) -> impl Iterator<Item = Part> {
        Part::numbered(self.last.load(SeqCst)).up_to()
    }

    /// Begins a part for the calling thread. A part costs hardly anything before it is used.
    #[cold]
    fn begin_part(&self) -> Part {
        let begun = self.enter(Part::FIRST, || {
            // Under this lock, so that fork finds the part begun or not.
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

    /// Runs `act` inside this crate, unless the thread is inside already: a signal handler that has interrupted it here gets
    /// nothing. A thread that leaves sends what others have turned away from meanwhile, and lets handlers run.
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

    /// Runs `act` on the world of a part, if it was started.
    fn with<T>(&self, part: Part, act: impl FnOnce(&mut World) -> T) -> Option<T> {
        let share = self.share(part);
        self.enter(part, || share.at_it(share.lock(), act)).flatten()
    }

    /// Runs `act` on the world of a part, unless another thread holds the lock.
    fn try_with<T>(
        &self,
        part: Part,
        act: impl FnOnce(&mut World) -> T,
    ) -> Result<Option<T>, InUse> {
        let share = self.share(part);
        let tried = self.enter(part, || Some(share.at_it(share.try_lock()?, act)));
        tried.flatten().ok_or(InUse)
    }

    /// Runs an `act` that may fail on the world of the part that has a descriptor's socket.
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

    /// Runs `act` on the world of one part after the other.
    fn with_all<T>(&self, mut act: impl FnMut(&mut World) -> T) -> Vec<T> {
        self.all().filter_map(|part| self.with(part, &mut act)).collect()
    }

    fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    /// Waits until every thread that is inside this crate now has left it.
    pub fn wait_for_others(&self) {
        self.with_all(|_| ());
    }

    /// Sends what the calling thread has given the stack, as it turns to something else.
    ///
    /// A turn allocates memory, and the program may be in the middle of its allocator: a thread of jemalloc's waits
    /// for a condition with the allocator's locks held. So a thread that has given nothing does nothing here; and
    /// one that has does not wait for another thread, which may need what this one has locked: it leaves the turn to
    /// that one.
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
                    // That thread may have left by now.
                    self.enter(part, || ());
                }
            }
        }
    }

    /// Sends what other threads have turned away from, after the lock was released.
    #[inline]
    fn flush_for_others(&self, part: Part) {
        let share = self.share(part);
        // Either the other thread finds the lock free, or what it has left is found here.
        fence(SeqCst);
        while share.turned_away.load(Relaxed) {
            let Some(world) = share.try_lock() else { return };
            share.turned_away.store(false, SeqCst);
            share.at_it(world, World::turn_for_others);
            fence(SeqCst);
        }
    }

    /// Takes all locks before fork(2), so that no thread is in the middle of anything.
    pub fn before_fork(&self) -> Held<'_> {
        let hold = |part| {
            let mut held = self.share(part).lock();
            if let Some(world) = held.as_mut() {
                world.turn_for_others();
                world.share_with_child(&self.outside);
                // A watcher is to hear what the child asks for.
                world.watch_on();
                // A thread that is making a call that was put off holds the device open: the child would keep it open.
                world.links().iter().for_each(Link::settle);
                // The threads that wake have to wait until this is over.
                world.sleepers.take_rung().iter().for_each(bell::ring);
            }
            held
        };
        let inside = Inside::begin();
        let rest = |part| self.share(part).keeper.hold_rest();
        // A keeper that is about to rest waits for its world, with its own lock held.
        let mut resting = vec![rest(Part::FIRST)];
        // Under the first world's lock no other one is begun.
        let mut worlds = vec![hold(Part::FIRST)];
        resting.extend(self.all().skip(1).map(rest));
        worlds.extend(self.all().skip(1).map(hold));
        let hold_bell = |(part, rest)| self.share(part).keeper.hold_bell(rest);
        let keepers = self.all().zip(resting).map(hold_bell).collect();
        let others = Others { _keepers: keepers, _bells: bell::hold_over_fork() };
        Held { worlds, others, _inside: inside }
    }

    /// Lets signal handlers run after fork(2), in the parent and in the child, where no lock is held any more.
    pub fn after_fork(&self) {
        if INTERRUPTED.replace(false) {
            self.outside.left();
        }
    }

    /// Makes this the state of the child of fork(2). `host` is the privileged half as the child will know it.
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

    /// Closes what `fd` stands for, as it is about to be closed or replaced. The caller closes the kernel's descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if it is not ours.
    pub fn close(&self, fd: RawFd) -> Result<(), Errno> {
        self.linger(fd);
        let part = self.at(fd);
        self.call(fd, |world| {
            let slot = world.table.slot(fd)?;
            parts::has_socket(fd, None);
            if let Some((_, socket)) = world.table.unbind(fd) {
                world.close(socket);
            }
            // A thread that waits by this descriptor waits for nothing.
            world.wake(slot);
            world.turn_if_hasty();
            Ok(())
        })?;
        self.keeper_must_send(part);
        Ok(())
    }

    /// Records that `new` is a duplicate of `old`.
    ///
    /// # Errors
    ///
    /// EBADF if that is not ours.
    pub fn duplicated(&self, old: RawFd, new: RawFd) -> Result<(), Errno> {
        self.call(old, |world| {
            let slot = world.table.slot(old)?;
            world.table.bind(new, slot);
            Ok(())
        })
    }

    /// Forgets an epoll set that is about to be closed. Under the locks, so that no thread is in the middle of a look at it.
    pub fn close_set(&self, set: RawFd) {
        parts::ends_set(set);
        self.forget_set(set);
    }

    /// Does the same with a descriptor that may be a set without members on the stack, if a thread has ever waited for it.
    pub fn close_if_waited_for(&self, set: RawFd) {
        if parts::ends_set(set) {
            self.forget_set(set);
        }
    }

    fn forget_set(&self, set: RawFd) {
        for part in self.parts_of(set).iter() {
            self.with(part, |world| world.forget_set(set));
        }
        parts::forget_set(set);
    }

    /// Returns the library's own descriptors, which the program does not know of and must not close.
    #[must_use]
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        let mut all = self.with_all(World::own_descriptors).concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns whether O_NONBLOCK is set.
    ///
    /// # Errors
    ///
    /// EBADF if it is not ours.
    pub fn is_non_blocking(&self, fd: RawFd) -> Result<bool, Errno> {
        self.call(fd, |world| Ok(world.table.find(fd)?.1.non_blocking))
    }

    /// Sets or clears O_NONBLOCK.
    ///
    /// # Errors
    ///
    /// EBADF if it is not ours.
    pub fn set_non_blocking(&self, fd: RawFd, on: bool) -> Result<(), Errno> {
        self.call(fd, |world| {
            world.table.find(fd)?.1.non_blocking = on;
            Ok(())
        })
    }

    /// Returns whether this is a listener; the kernel listens there, too.
    #[must_use]
    pub fn is_listener(&self, fd: RawFd) -> bool {
        self.call(fd, |world| Ok(matches!(world.table.find(fd)?.1.kind, Kind::Listener(_))))
            .unwrap_or(false)
    }
}

/// Returns the connection of a socket; the process that this one was forked from may have kept it.
fn connection(socket: &Socket) -> Result<table::Place, Errno> {
    match &socket.kind {
        Kind::Connection { place, .. } => Ok(*place),
        Kind::Listener(_) => Err(Errno::ENOTCONN),
        Kind::Elsewhere { .. } => Err(Errno::ECONNABORTED),
    }
}

/// Returns the slot and the connection of a descriptor.
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
