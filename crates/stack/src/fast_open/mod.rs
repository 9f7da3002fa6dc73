//! TCP Fast Open (RFC 7413), the part that concerns the whole stack: what is switched on, the keys
//! of the cookies that are issued ([`keys`]), and the cookies that were received ([`cache`]).
//!
//! ```text
//! client: connect_fast ─▶ cache: a cookie? ─▶ SYN with cookie and data ─▶ SYN-ACK: taken, or sent again
//!                                       └──▶ SYN that asks for one   ─▶ SYN-ACK: remembered
//! server: SYN ─▶ judge ─▶ Accept: its data is the user's before the handshake is over
//!                    └──▶ Ordinary handshake, whose SYN-ACK may give a cookie
//! ```

pub(crate) mod cache;
pub(crate) mod keys;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uncork_wire::tcp::Cookie;

use crate::demux::Tuple;
use crate::handle::ListenerId;
use crate::hash::Key;
use cache::Cache;
pub use keys::FastOpenKeys;
use keys::Verdict;

/// The parts of Fast Open that are switched on. The bits are those of Linux's tcp_fastopen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpen(pub u32);

impl FastOpen {
    /// Active opens may send data in their SYN (TFO_CLIENT_ENABLE).
    pub const CLIENT: Self = Self(0x1);
    /// Listeners that enable it may take data from a SYN (TFO_SERVER_ENABLE).
    pub const SERVER: Self = Self(0x2);
    /// Active opens send data without a cookie (TFO_CLIENT_NO_COOKIE).
    pub const CLIENT_NO_COOKIE: Self = Self(0x4);
    /// Listeners require no cookie (TFO_SERVER_COOKIE_NOT_REQD).
    pub const SERVER_COOKIE_NOT_REQUIRED: Self = Self(0x200);
    /// It is enabled for every listener, with the backlog as limit (TFO_SERVER_WO_SOCKOPT1).
    pub const EVERY_LISTENER: Self = Self(0x400);

    /// Returns whether all of `other` is switched on.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Parses the value of net.ipv4.tcp_fastopen.
    #[must_use]
    pub fn of_sysctl(text: &str) -> Option<Self> {
        text.trim().parse::<i32>().ok().map(|bits| Self(bits.cast_unsigned()))
    }

    /// Returns the union of both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The default of Linux: clients only.
impl Default for FastOpen {
    fn default() -> Self {
        Self::CLIENT
    }
}

/// Fast Open settings of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FastOpenListen {
    /// Connections that may be open before their handshake is complete (TCP_FASTOPEN, RFC 7413 §5.1:
    /// PendingFastOpenRequests); zero switches it off.
    pub pending: u32,
    /// No cookie is required (TCP_FASTOPEN_NO_COOKIE): with a spoofed address anybody may make this host
    /// process data, and answer.
    pub cookie_not_required: bool,
}

impl FastOpenListen {
    /// Returns the settings as far as the host's switches permit them (tcp_try_fastopen).
    #[must_use]
    pub fn permitted(self, switches: FastOpen) -> Self {
        if !switches.has(FastOpen::SERVER) {
            return Self::default();
        }
        let cookie_not_required =
            self.cookie_not_required || switches.has(FastOpen::SERVER_COOKIE_NOT_REQUIRED);
        Self { cookie_not_required, ..self }
    }
}

/// What a SYN of ours carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The cookie, or a request for one.
    pub(crate) cookie: Option<Cookie>,
    /// Whether it carries data.
    pub(crate) with_data: bool,
    /// The segment size that the peer announced last time.
    pub(crate) mss: Option<u16>,
}

/// How a received SYN is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// An ordinary handshake.
    Ordinary,
    /// An ordinary handshake whose SYN-ACK issues a cookie.
    Give,
    /// The connection is open at once; the SYN-ACK may issue a newer cookie.
    Accept { gives: bool },
}

/// Fast Open state of the whole stack.
#[derive(Debug)]
pub(crate) struct FastOpenState {
    pub(crate) switches: FastOpen,
    keys: FastOpenKeys,
    /// Listeners with keys of their own.
    own_keys: Vec<(ListenerId, FastOpenKeys)>,
    pub(crate) cache: Cache,
}

impl FastOpenState {
    pub(crate) fn new(switches: FastOpen, keys: Key, cache: Key) -> Self {
        Self {
            switches,
            keys: FastOpenKeys::of(keys),
            own_keys: Vec::new(),
            cache: Cache::new(cache),
        }
    }

    pub(crate) fn set_keys(&mut self, listener: Option<ListenerId>, keys: FastOpenKeys) {
        let Some(listener) = listener else {
            self.keys = keys;
            return;
        };
        self.forget_listener(listener);
        self.own_keys.push((listener, keys));
    }

    pub(crate) fn forget_listener(&mut self, listener: ListenerId) {
        self.own_keys.retain(|(id, _)| *id != listener);
    }

    pub(crate) fn keys(&self, listener: Option<ListenerId>) -> &FastOpenKeys {
        let own = self.own_keys.iter().find(|(id, _)| Some(*id) == listener);
        own.map_or(&self.keys, |(_, keys)| keys)
    }

    /// Returns what a SYN to a peer carries (RFC 7413 §4.1.3, §4.2.1).
    pub(crate) fn offer(&self, tuple: &Tuple, without_cookie: bool) -> Offer {
        let known = self.cache.get(ends(tuple));
        let mss = known.and_then(|entry| entry.mss);
        if without_cookie || self.switches.has(FastOpen::CLIENT_NO_COOKIE) {
            return Offer { cookie: None, with_data: true, mss };
        }
        if let Some(cookie) = known.and_then(|entry| entry.cookie) {
            return Offer { cookie: Some(cookie), with_data: true, mss };
        }
        let experimental = known.is_some_and(cache::Entry::asks_by_experiment);
        let cookie = Some(Cookie::default().in_experiment(experimental));
        Offer { cookie, with_data: false, mss }
    }

    /// Decides how to treat a SYN, with or without data, for a listener with room for it
    /// (RFC 7413 §4.2.2; tcp_try_fastopen).
    pub(crate) fn judge(
        &self,
        (listener, listen): (ListenerId, FastOpenListen),
        tuple: &Tuple,
        cookie: Option<Cookie>,
        has_data: bool,
    ) -> Judgement {
        let anybody =
            listen.cookie_not_required || self.switches.has(FastOpen::SERVER_COOKIE_NOT_REQUIRED);
        if anybody && (has_data || cookie.is_some()) {
            return Judgement::Accept { gives: false };
        }
        let Some(cookie) = cookie else { return Judgement::Ordinary };
        if cookie.is_request() {
            return Judgement::Give;
        }
        match self.keys(Some(listener)).check(ends(tuple), &cookie) {
            Verdict::Good => Judgement::Accept { gives: false },
            Verdict::Old => Judgement::Accept { gives: true },
            Verdict::Bad => Judgement::Give,
        }
    }
}

/// Returns the addresses of both ends: local, remote.
pub(crate) fn ends(tuple: &Tuple) -> (IpAddr, IpAddr) {
    (tuple.local().ip(), tuple.remote().ip())
}

#[cfg(test)]
mod tests {
    use super::{FastOpen, FastOpenListen};

    #[test]
    fn the_hosts_settings_come_before_what_is_asked_for() {
        let asked = FastOpenListen { pending: 16, cookie_not_required: false };
        let of = |told| asked.permitted(FastOpen::of_sysctl(told).unwrap());
        assert_eq!(of("1\n"), FastOpenListen::default());
        assert_eq!(of("2"), asked);
        let anybody = FastOpenListen { cookie_not_required: true, ..asked };
        assert_eq!((of("514"), anybody.permitted(FastOpen(3))), (anybody, anybody));
        assert_eq!((of("-1"), FastOpen::of_sysctl("")), (anybody, None));
    }
}
