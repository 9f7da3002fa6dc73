//! TCP Fast Open (RFC 7413), as far as it is a matter of the whole stack: what is switched on, the keys
//! of the cookies that are given ([`keys`]), and the cookies that were got ([`cache`]).
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

/// What of Fast Open is switched on. The bits are those of Linux's tcp_fastopen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpen(pub u32);

impl FastOpen {
    /// Active opens may send data in their SYN (TFO_CLIENT_ENABLE).
    pub const CLIENT: Self = Self(0x1);
    /// Listeners that want to may take data from a SYN (TFO_SERVER_ENABLE).
    pub const SERVER: Self = Self(0x2);
    /// Active opens send data without a cookie (TFO_CLIENT_NO_COOKIE).
    pub const CLIENT_NO_COOKIE: Self = Self(0x4);
    /// Listeners ask for no cookie (TFO_SERVER_COOKIE_NOT_REQD).
    pub const SERVER_COOKIE_NOT_REQUIRED: Self = Self(0x200);
    /// Every listener wants to, with its backlog for a limit (TFO_SERVER_WO_SOCKOPT1).
    pub const EVERY_LISTENER: Self = Self(0x400);

    /// Whether all of `other` is switched on.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As net.ipv4.tcp_fastopen has them.
    #[must_use]
    pub fn of_sysctl(text: &str) -> Option<Self> {
        text.trim().parse::<i32>().ok().map(|bits| Self(bits.cast_unsigned()))
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Linux's: clients only.
impl Default for FastOpen {
    fn default() -> Self {
        Self::CLIENT
    }
}

/// What a listener does with Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FastOpenListen {
    /// Connections that may be open before their handshake is over (TCP_FASTOPEN, RFC 7413 §5.1:
    /// PendingFastOpenRequests); with none it is off.
    pub pending: u32,
    /// No cookie is asked for (TCP_FASTOPEN_NO_COOKIE): anybody may make this host work on data, and
    /// answer, in another one's name.
    pub cookie_not_required: bool,
}

impl FastOpenListen {
    /// What is left of it on a host whose settings are these (tcp_try_fastopen).
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

/// What a SYN of ours is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The cookie, or a request for one.
    pub(crate) cookie: Option<Cookie>,
    /// Whether data goes along.
    pub(crate) with_data: bool,
    /// Segment size that the peer has announced the last time.
    pub(crate) mss: Option<u16>,
}

/// What is to be done about a SYN that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing special.
    Ordinary,
    /// An ordinary handshake that gives a cookie.
    Give,
    /// The connection is open at once; it may give a newer cookie.
    Accept { gives: bool },
}

/// State of the whole stack.
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

    /// What a SYN to a peer is to have (RFC 7413 §4.1.3, §4.2.1).
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

    /// What to do about a SYN with or without data that has come to a listener with room for it
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

/// Who speaks with whom: local, remote.
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
