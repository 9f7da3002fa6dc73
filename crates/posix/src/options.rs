//! Socket options: what the program asks for, what is in force, and what it reads back.

use crate::config::Scope;
use crate::kernel::Kernel;
use crate::socket::flag;
use crate::{Call, Errno, Posix, Socket, Socketed};

/// The options that matter to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opt {
    /// TCP_NODELAY.
    Nodelay,
    /// TCP_CORK.
    Cork,
    /// TCP_ULP, TCP_REPAIR: what follows is no longer a plain byte stream.
    Ulp,
    /// TCP_INFO, which counts held bytes as not yet sent.
    Info,
    /// SO_ERROR.
    Error,
    /// SO_RCVLOWAT; on: above one byte.
    LowWater,
    /// Any other.
    Other,
}

impl<K: Kernel> Posix<K> {
    /// Prepares for setsockopt(2).
    pub fn setting(&self, at: Socketed<'_>, option: Opt, on: bool) {
        match option {
            Opt::Cork if on => {
                self.end_burst(at, Call::Setsockopt);
                if at.socket.set(flag::CORKS_ITSELF) {
                    self.say_passed(at);
                }
            }
            Opt::Ulp => {
                // It runs on the connection, whatever number that is written to by.
                self.each_twin(at, |twin| _ = twin.socket.set(flag::ULP));
                self.end_burst(at, Call::Setsockopt);
                self.see_writers_off(at);
                self.drain(at, self.drained_by());
            }
            // Setting TCP_NODELAY pushes, and must push our own buffer too. Clearing it would leave
            // what the kernel holds to Nagle.
            Opt::Nodelay => self.end_burst(at, Call::Setsockopt),
            _ => {}
        }
    }

    /// Notes that setsockopt(2) has succeeded.
    pub fn was_set(&self, at: Socketed<'_>, option: Opt, on: bool) {
        match option {
            Opt::Nodelay => self.nodelay_was_set(at, on),
            Opt::LowWater => self.each_twin(at, |twin| {
                let noted = if on { Socket::set } else { Socket::clear };
                noted(twin.socket, flag::LOW_WATER);
            }),
            _ => {}
        }
    }

    fn nodelay_was_set(&self, at: Socketed<'_>, on: bool) {
        self.each_twin(at, |twin| {
            if on {
                twin.socket.set(flag::ASKED_NODELAY);
                twin.socket.clear(flag::OUT_OF_SCOPE);
            } else {
                twin.socket.clear(flag::ASKED_NODELAY);
                if self.settings().scope == Scope::Nodelay {
                    twin.socket.set(flag::OUT_OF_SCOPE);
                }
            }
        });
        if !on && self.has_forced_nodelay(at) && !at.socket.is(flag::PASSED) {
            // Nagle stays off for a socket that we help.
            self.kernel.push(at.fd);
        } else if !on {
            at.socket.clear(flag::FORCED_NODELAY);
        }
        if self.settings().autocork && self.settings().debug >= 1 {
            let state = if on { "ON" } else { "OFF" };
            self.kernel.say(&format!("libautocork: turning TCP_CORK {state} fd {}\n", at.fd));
        }
    }

    /// Prepares for getsockopt(2).
    pub fn getting(&self, at: Socketed<'_>, option: Opt) {
        if option == Opt::Info {
            self.end_burst(at, Call::Getsockopt);
        }
    }

    /// Returns what the program is to read instead of the kernel's answer, if anything.
    pub fn answer(&self, at: Socketed<'_>, option: Opt) -> Option<i32> {
        match option {
            Opt::Nodelay => {
                let asked = at.socket.is(flag::ASKED_NODELAY);
                (!asked && self.has_forced_nodelay(at)).then_some(0)
            }
            Opt::Error => match at.socket.take_late_error() {
                0 => None,
                number => Some(number),
            },
            _ => None,
        }
    }

    /// Returns whether we have set TCP_NODELAY: by this descriptor, or by a duplicate that was made
    /// before the socket was connected.
    fn has_forced_nodelay(&self, at: Socketed<'_>) -> bool {
        let mut forced = at.socket.is(flag::FORCED_NODELAY);
        if !forced {
            self.each_twin(at, |twin| forced |= twin.socket.is(flag::FORCED_NODELAY));
        }
        forced
    }

    /// Returns whether a blocking read of this socket waits for more than one byte.
    #[inline]
    pub fn has_low_water(&self, at: Socketed<'_>) -> bool {
        at.socket.is(flag::LOW_WATER)
    }

    /// Returns whether an error that came after its write had succeeded is the next read's. A broken
    /// pipe is the next write's: reads still find what comes before the end of the stream, and wait
    /// for it.
    #[inline]
    pub fn has_read_error(&self, at: Socketed<'_>) -> bool {
        at.socket.is(flag::LATE_ERROR) && at.socket.late_error() != Errno::EPIPE.0
    }

    /// Returns a late error that the next read must report: TCP reports a reset once, to whichever
    /// call comes first, and our send may have been that call.
    pub fn read_error(&self, at: Socketed<'_>) -> Option<i32> {
        let number = if self.has_read_error(at) { at.socket.take_late_error() } else { 0 };
        (number != 0).then_some(number)
    }

    /// Prepares for a query of what is queued (FIONREAD, SIOCOUTQ, SIOCOUTQNSD): none of it may be
    /// queued because of us.
    pub fn asking_queue(&self, fd: i32) {
        if let Some(at) = self.find(fd) {
            self.end_burst(at, Call::Ioctl);
        }
    }

    /// Calls `look` for the socket and, if it is shared, for its duplicates in this process.
    fn each_twin(&self, at: Socketed<'_>, mut look: impl FnMut(Socketed<'_>)) {
        look(at);
        if at.socket.is(flag::SHARED) {
            let identity = self.kernel.identity(at.fd);
            self.each_tracked(|other| {
                if other.fd != at.fd
                    && other.socket.is(flag::SHARED)
                    && self.kernel.identity(other.fd) == identity
                {
                    look(other);
                }
            });
        }
    }
}
