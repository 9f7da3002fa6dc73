//! Routes that make this host acknowledge at once: `ip route … quickack 1`.
//!
//! eBPF may not set TCP_QUICKACK; the kernel looks at the route as well (tcp_in_quickack_mode).

mod fib;
mod plan;
mod rules;

use serde::{Deserialize, Serialize};

pub use fib::Fib;
pub use plan::Plan;

use super::{State, link};
use crate::Error;
use crate::netns::{Handle, NetNs};
use uncork_netlink::{APPEND, CREATE, EXCLUSIVE, Line, REPLACE};

// linux/rtnetlink.h
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;

/// A route that is replaced, or added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network namespace of the route.
    pub netns: NetNs,
    /// The route before; `None` if it is one that we add.
    pub before: Option<Fib>,
    /// The route to be set.
    pub after: Fib,
    /// The name of its device, if it has one.
    #[serde(default)]
    pub device: Option<String>,
}

impl Route {
    /// Returns whether both are to the same destination.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.after.key() == other.after.key()
    }

    pub(super) fn apply(&self, handle: &Handle) -> Result<(), Error> {
        let flags = if self.before.is_some() { REPLACE } else { CREATE | EXCLUSIVE };
        order(handle, RTM_NEWROUTE, flags, &self.after)
    }

    pub(super) fn state(&self, handle: &Handle) -> Result<State, Error> {
        let there = self.there(handle)?;
        if there.contains(&self.after) {
            return Ok(State::AsSet);
        }
        if self.before.as_ref().is_some_and(|before| there.contains(before)) {
            return Ok(State::AsBefore);
        }
        if !there.is_empty() {
            return Ok(State::Other(format!("route {} is another one now", self.after)));
        }
        if let Some(device) = self.lost_device(handle)? {
            return Ok(State::Gone(format!(
                "it went with its device {device}, which was removed, or moved to another network \
                 namespace"
            )));
        }
        Ok(match self.before {
            Some(_) => State::Other(format!("route {} is gone", self.after)),
            None => State::AsBefore,
        })
    }

    /// Returns what users should know of a route that is as it was set.
    pub(super) fn warning(&self, handle: &Handle) -> Result<Option<String>, Error> {
        if self.there(handle)?.first().is_some_and(|first| *first != self.after) {
            return Ok(Some(
                "another route to the same addresses comes before it: this one is not used"
                    .to_owned(),
            ));
        }
        if self.before.is_some() {
            return Ok(None);
        }
        let (all, peers) = (all(handle)?, self.after.prefix());
        let wider = all.iter().filter(|fib| fib.prefix() != peers);
        let name_of = |index| {
            let name = link::name_of(handle, index).ok().flatten();
            name.unwrap_or_else(|| index.to_string())
        };
        let way = self.after.way(name_of);
        Ok(match plan::covering(wider, peers) {
            Some(now) if now.goes_the_way_of(&self.after) => None,
            Some(now) if now.carries_tcp() => Some(format!(
                "it leads {way} as when it was made, and does not follow route {now}, which leads {} \
                 now: undo it and set it again",
                now.way(name_of)
            )),
            Some(now) => Some(format!(
                "it leads {way} around route {now}, which keeps packets from there now: undo it"
            )),
            None => Some(format!(
                "it leads {way} as when it was made; the route that it was made from is gone: undo \
                 it"
            )),
        })
    }

    pub(super) fn restore(&self, handle: &Handle) -> Result<(), Error> {
        let Some(before) = &self.before else { return self.delete(handle) };
        let there = self.there(handle)?;
        if there.contains(before) {
            // It was created anew (the kernel does that when an address comes up again), and ours
            // is there beside it.
            return self.delete(handle);
        }
        let add = |flags| order(handle, RTM_NEWROUTE, flags, &before.with_quickack_said());
        if there.first() == Some(&self.after) {
            return add(REPLACE);
        }
        // The kernel would replace the first route of its destination and metric, which is another
        // one. IPv4 allows adding it while ours is there; IPv6 would take it for the same.
        if before.is_ipv4() {
            add(CREATE | APPEND)?;
            return self.delete(handle);
        }
        self.delete(handle)?;
        add(CREATE | APPEND).inspect_err(|_| {
            // Better our route than none; the error says why it is not the other.
            let _ = order(handle, RTM_NEWROUTE, CREATE | APPEND, &self.after);
        })
    }

    pub(super) fn words(&self) -> String {
        let (after, netns) = (&self.after, self.netns.words());
        match &self.before {
            Some(before) if before == after => format!("route {after}: quickack 1 already{netns}"),
            Some(_) => format!("route {after}: quickack 1{netns}"),
            None => format!("a route of its own to {after}, with quickack 1{netns}"),
        }
    }

    pub(super) fn words_back(&self) -> String {
        let (after, netns) = (&self.after, self.netns.words());
        match &self.before {
            Some(before) => format!("route {before}: back, without quickack 1{netns}"),
            None => format!("the route of its own to {after} removed{netns}"),
        }
    }

    /// Returns all routes of this destination and metric, in the kernel's order.
    fn there(&self, handle: &Handle) -> Result<Vec<Fib>, Error> {
        let there = handle.within(|| self.after.all_like())?;
        there.map_err(|error| Error::Netlink { what: format!("route {}", self.after), error })
    }

    /// Returns the name of the device, if that is not here any more.
    fn lost_device(&self, handle: &Handle) -> Result<Option<String>, Error> {
        let Some(index) = self.after.device() else { return Ok(None) };
        let name = || self.device.clone().unwrap_or_else(|| format!("number {index}"));
        Ok(link::name_of(handle, index)?.is_none().then(name))
    }

    /// Deletes our route, which the kernel tells by its metrics from similar ones
    /// (fib_metrics_match).
    fn delete(&self, handle: &Handle) -> Result<(), Error> {
        order(handle, RTM_DELROUTE, 0, &self.after)
    }
}

fn all(handle: &Handle) -> Result<Vec<Fib>, Error> {
    let routes = handle.within(Fib::all)?;
    routes.map_err(|error| Error::Netlink { what: "the routes cannot be read".to_owned(), error })
}

fn order(handle: &Handle, kind: u16, flags: u16, fib: &Fib) -> Result<(), Error> {
    let done = handle.within(|| Line::open()?.order(kind, flags, &fib.bytes()))?;
    done.map_err(|error| Error::Netlink { what: format!("route {fib}"), error })
}
