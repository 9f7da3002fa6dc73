//! What a socket call means to uncork.
//!
//! The shims of `preload` say what the program is about to do; this crate says what that means:
//! which bytes are held, where, and what makes them leave. It performs nothing itself except
//! through the [`Kernel`] that it is given, and uses no pointer and no libc.
//!
//! ```text
//!  write(fd)        plan_write ─▶ Pass | Send{more} | Gather      (write.rs, gather/)
//!  read(fd), poll…  before_read, before_wait ─▶ end of the burst  (wait.rs, push.rs)
//!  socket, close…   opened, accepted, closing, duplicated …       (lifecycle.rs)
//!  setsockopt…      what is asked, what is in force               (options.rs)
//!  the timer        tick                              (keeper.rs, alarm.rs, orphans.rs)
//! ```
//!
//! Locks: only `Socket::gathered` is waited for, all others are tried. Calls that read or wait take
//! none unless something is held, nor does any call on a descriptor that is not ours.
#![forbid(unsafe_code)]

mod alarm;
mod call;
pub mod config;
mod gather;
mod keeper;
pub mod kernel;
mod ledger;
mod lifecycle;
mod local;
pub mod options;
mod orphans;
pub mod published;
mod push;
pub mod report;
mod reporting;
pub mod socket;
pub mod spin;
mod wait;
pub mod whereabouts;
mod write;

use core::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, OnceLock};

pub use call::Call;
pub use config::Settings;
pub use gather::{BUFFER_BYTES, Gather, Gathered};
pub use keeper::Next;
pub use kernel::{Errno, Kernel, Kind};
pub use ledger::Ledger;
pub use lifecycle::{Filling, Origin};
pub use socket::Socket;
pub use write::{Plan, WriteFlags};

use config::Hold;
use kernel::state;

/// A tracked descriptor and its record.
#[derive(Clone, Copy, Debug)]
pub struct Socketed<'a> {
    /// The descriptor.
    pub fd: i32,
    /// Its record.
    pub socket: &'a Socket,
}

impl Socketed<'_> {
    /// Returns whether the socket's small writes are gathered in the process.
    #[must_use]
    #[inline]
    pub fn gathers(&self) -> bool {
        self.socket.is(socket::flag::GATHERS)
    }
}

/// The library's state in one process; its methods are what the shims call.
#[derive(Debug)]
pub struct Posix<K> {
    /// System calls, sockets' memory and the timer thread.
    pub kernel: K,
    settings: OnceLock<Settings>,
    keeper: keeper::State,
    /// Nothing can be held (no timer thread can be had), or the program is at its end.
    disabled: AtomicBool,
    /// The program ends only if its exec succeeds; otherwise holding begins again.
    may_go_on: AtomicBool,
    /// The program uses io_uring, which sends without our knowing: nothing is kept in the process.
    kernel_only: AtomicBool,
    /// Rhythm learnt from sockets that this process made, for the next one that it makes.
    made_rhythm: AtomicU32,
    /// The process that this state belongs to; any other one is a child of vfork.
    pid: AtomicU32,
    closed: Mutex<reporting::Closed>,
    orphans: Mutex<Vec<orphans::Orphan>>,
}

/// Settings in force before [`Posix::start`], and where the library stands aside altogether.
static STAND_ASIDE: Settings = Settings {
    hold: Hold::Off,
    scope: config::Scope::All,
    bound: config::Bound(core::time::Duration::from_millis(1)),
    spin: config::Spin::Off,
    moderation: config::Moderation::OFF,
    small_queue: config::SmallQueue::UNSET,
    stats: config::StatsTo::Nowhere,
    debug: 0,
    autocork: false,
    max_qlen: 0,
    dump_interval: None,
    ignored: Vec::new(),
};

impl<K: Kernel> Posix<K> {
    /// Creates a library that has not been started: every call passes.
    pub const fn new(kernel: K) -> Self {
        Self {
            kernel,
            settings: OnceLock::new(),
            keeper: keeper::State::new(),
            disabled: AtomicBool::new(false),
            may_go_on: AtomicBool::new(false),
            kernel_only: AtomicBool::new(false),
            made_rhythm: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            closed: Mutex::new(reporting::Closed::new()),
            orphans: Mutex::new(Vec::new()),
        }
    }

    /// Starts with these settings. Later calls change nothing.
    pub fn start(&self, settings: Settings) {
        self.pid.store(self.kernel.pid(), core::sync::atomic::Ordering::Relaxed);
        self.keeper.set_bound(settings.bound.0);
        let _ = self.settings.set(settings);
    }

    /// Returns whether [`Posix::start`] was called.
    pub fn started(&self) -> bool {
        self.settings.get().is_some()
    }

    /// Returns the settings in force.
    #[inline]
    pub fn settings(&self) -> &Settings {
        self.settings.get().unwrap_or(&STAND_ASIDE)
    }

    /// Returns the record of `fd`, if it is a tracked TCP socket.
    #[inline]
    pub fn find(&self, fd: i32) -> Option<Socketed<'_>> {
        use core::sync::atomic::Ordering::Relaxed;
        if self.kernel.state(fd)?.load(Relaxed) != state::TCP {
            return None;
        }
        Some(Socketed { fd, socket: self.kernel.socket(fd)? })
    }
}

#[cfg(test)]
mod tests;
