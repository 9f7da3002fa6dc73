//! TCP Fast Open (RFC 7413): what the host's settings leave of what programs ask for, and connections whose SYN waits for
//! the first data, or takes it along.
//!
//! ```text
//! TCP_FASTOPEN_CONNECT, connect ─▶ a cookie is known:  the SYN waits ─▶ send: leaves with data ─▶ finish_fast
//! sendto(MSG_FASTOPEN) ──────────▶ none is, or here:   the SYN leaves, and asks for one ─▶ finish_connect
//! ```

use std::os::fd::RawFd;
use std::time::Duration;

use nix::errno::Errno;
use uncork_engine::Instant;
use uncork_stack::{FastConnect, FastOpen, FastOpenKeys, FastOpenListen, SocketId, State};

use crate::asked::FastOpenAsked;
use crate::outside::Outside;
use crate::table::{Kind, Place, Slot, Socket};
use crate::world::World;
use crate::{Sockets, errno};

/// How often the host's settings are looked at while a listener wants it. The kernel looks at each SYN.
const LOOKS: Duration = Duration::from_secs(1);

/// What is known of the host's settings.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    switches: Option<FastOpen>,
    /// The host's keys, as they were when they were first needed.
    keys: Option<Option<FastOpenKeys>>,
    /// When to look again, while a listener wants it.
    looks_at: Option<Instant>,
}

impl Settings {
    /// Returns whether a listener needs them.
    pub(crate) fn is_wanted(&self) -> bool {
        self.looks_at.is_some()
    }
}

impl<O: Outside> Sockets<O> {
    /// Returns whether connections may be opened with data in their SYN.
    pub fn may_open_fast(&self) -> bool {
        let may = |world: &mut World| world.host.fast_open().has(FastOpen::CLIENT);
        self.with(self.mine(), may).unwrap_or(false)
    }

    /// Ends a write whose data has left with a SYN, or whose SYN has left without: a caller that waits is told how the connection
    /// goes, as the kernel does it (tcp_sendmsg_fastopen); what there was no room for in the SYN is sent after that. With `more`
    /// the caller waits with that.
    pub(crate) fn finish_fast(
        &self,
        fd: RawFd,
        flags: i32,
        sent: usize,
        more: bool,
    ) -> Result<(), Errno> {
        let begun = if sent > 0 { Ok(()) } else { Err(Errno::EINPROGRESS) };
        if flags & libc::MSG_DONTWAIT != 0 || self.is_non_blocking(fd)? {
            return begun;
        }
        if more {
            self.call(fd, |world| {
                if let Kind::Connection { place, .. } = world.table.find(fd)?.1.kind {
                    world.note_writer(place, true);
                }
                Ok(())
            })?;
        }
        match self.finish_or_give_back(fd) {
            Ok(()) => Err(Errno::EAGAIN),
            // The time limit was reached.
            Err(Errno::EINPROGRESS) => {
                self.forget_writer(fd);
                begun
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a connection, and gives a socket whose connection could not be made back to the kernel, for the next try.
    fn finish_or_give_back(&self, fd: RawFd) -> Result<(), Errno> {
        let finished = self.finish_connect(fd);
        if finished.is_err_and(errno::is_failed_connect)
            && let Ok(given) = self.give_back(fd)
        {
            self.outside.settle(&given);
        }
        finished
    }

    /// Returns whether a socket on the stack may be written to with MSG_FASTOPEN: its SYN waits for that, or the program was
    /// not told yet how connecting went, which this call tells as connect(2) does (__inet_stream_connect).
    pub(crate) fn may_send_fast(&self, fd: RawFd, flags: i32) -> Result<(), Errno> {
        let is_under_way = self.call(fd, |world| {
            if !world.host.fast_open().has(FastOpen::CLIENT) {
                return Err(Errno::EOPNOTSUPP);
            }
            let Kind::Connection { place, connecting: true } = world.table.find(fd)?.1.kind else {
                return Err(Errno::EISCONN);
            };
            if world.is_deferred(place) {
                return Ok(false);
            }
            let (link, _) = world.link(place)?;
            let has_begun = link.stack().state(place.id) == Some(State::SynSent);
            let waits = flags & libc::MSG_DONTWAIT == 0;
            if has_begun && !waits { Err(Errno::EALREADY) } else { Ok(true) }
        })?;
        if is_under_way { self.finish_or_give_back(fd) } else { Ok(()) }
    }
}

impl World {
    /// Tells the stack what a listener does with data in SYNs, if it is on the stack and the program asks for that.
    pub(crate) fn tell_fast_open(&mut self, slot: Slot) {
        let Some(Socket { kind: Kind::Listener(listener), asked, .. }) = self.table.get(slot)
        else {
            return;
        };
        let (on, asked) = (listener.on.clone(), asked.fast_open);
        if on.is_empty() || asked.pending == 0 && self.fast_open.looks_at.is_none() {
            return;
        }
        let switches = self.host.fast_open();
        self.fast_open.switches = Some(switches);
        self.fast_open.looks_at = Some(self.now() + LOOKS);
        let keys = asked.keys.or_else(|| self.fast_open_keys());
        let FastOpenAsked { pending, without_cookie: cookie_not_required, .. } = asked;
        let wanted = FastOpenListen { pending, cookie_not_required };
        for (at, id) in on {
            if let Some(link) = self.links().get_mut(at) {
                // An instance looks at the host's settings itself.
                let listen = if link.is_attached() { wanted } else { wanted.permitted(switches) };
                link.stack().open_fast_at(id, listen, keys);
            }
        }
    }

    fn fast_open_keys(&mut self) -> Option<FastOpenKeys> {
        match self.fast_open.keys {
            Some(keys) => keys,
            None => *self.fast_open.keys.insert(self.host.fast_open_keys()),
        }
    }

    /// Looks whether the host's settings have changed, if the last look was a while ago.
    pub(crate) fn look_at_fast_open(&mut self) {
        let now = self.now();
        if self.fast_open.looks_at.is_some_and(|at| at > now) {
            return;
        }
        self.fast_open.looks_at = Some(now + LOOKS);
        if self.fast_open.switches == Some(self.host.fast_open()) {
            return;
        }
        for slot in self.table.slots_where(Socket::is_listener) {
            self.tell_fast_open(slot);
        }
    }

    /// Begins a connection whose SYN may take data along.
    pub(crate) fn connect_fast(
        &mut self,
        at: usize,
        ends: (std::net::SocketAddr, std::net::SocketAddr),
        asked: &FastOpenAsked,
    ) -> Result<SocketId, Errno> {
        let switches = self.host.fast_open();
        let link = self.links().get_mut(at).ok_or(Errno::ENETDOWN)?;
        let without = asked.without_cookie || switches.has(FastOpen::CLIENT_NO_COOKIE);
        let now = link.now();
        let begun = link.stack().connect_fast(now, Some(ends.0), ends.1, without);
        begun.map(FastConnect::socket).map_err(errno::of_connect)
    }

    /// Returns whether the SYN of a connection waits for data.
    pub(crate) fn is_deferred(&mut self, place: Place) -> bool {
        self.link(place).is_ok_and(|(link, _)| link.stack().is_deferred(place.id))
    }
}
