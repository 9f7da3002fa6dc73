//! Routes whose receivers acknowledge at once: `ip route … quickack 1`.
//!
//! eBPF may not set TCP_QUICKACK; the kernel looks at the route as well (tcp_in_quickack_mode).

mod fib;

use serde::{Deserialize, Serialize};

pub use fib::Fib;

use super::State;
use crate::Error;
use crate::netlink::{CREATE, EXCLUSIVE, Line, REPLACE};
use crate::netns::{Handle, NetNs};
use crate::scope::Prefix;

// linux/rtnetlink.h
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;

/// A route that is replaced, or added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Whose.
    pub netns: NetNs,
    /// What there was; nothing if the route is one that we add.
    pub before: Option<Fib>,
    /// What there is to be.
    pub after: Fib,
}

/// What can be done about the routes of a namespace.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes.
    pub routes: Vec<Route>,
    /// What stays as it is, each with its reason.
    pub left: Vec<String>,
}

impl Route {
    /// The routes that lead to the peers; all that can carry TCP if none are named.
    ///
    /// # Errors
    /// If there is no such route, or the kernel does not tell.
    pub fn plan(handle: &Handle, peers: Option<Prefix>) -> Result<Plan, Error> {
        let all = all(handle)?;
        let mut plan = Plan::default();
        let wanted = |fib: &&Fib| peers.is_none_or(|peers| peers.holds(fib.prefix()));
        for fib in all.iter().filter(wanted) {
            let twins = all.iter().filter(|other| other.key() == fib.key()).count();
            if twins > 1 {
                plan.left.push(format!(
                    "route {fib}: there are {twins} of the same metric, which the kernel does not \
                     tell apart when one is replaced"
                ));
            } else if fib.is_the_kernels_own() {
                plan.left.push(format!(
                    "route {fib}: an IPv6 route of metric 0 is the kernel's own, and nobody else \
                     may replace it"
                ));
            } else if fib.expires() {
                plan.left.push(format!("route {fib}: a router renews it, and would undo this"));
            } else {
                plan.push(handle, Some(fib.clone()), fib.quick());
            }
        }
        if let Some(peers) = peers
            && !all.iter().any(|fib| fib.prefix() == peers)
        {
            let covering = covering(&all, peers).filter(|fib| !fib.expires());
            plan.routes.extend(covering.map(|fib| Self {
                netns: handle.id.clone(),
                before: None,
                after: fib.narrowed(peers).quick(),
            }));
        }
        if plan.routes.is_empty() && plan.left.is_empty() {
            let to = peers.map(|peers| format!(" to {peers}")).unwrap_or_default();
            return Err(Error::Unable(format!(
                "there is no route{to} in the tables main and local{}",
                handle.id.words()
            )));
        }
        Ok(plan)
    }

    /// Whether both are about the same destination.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.after.key() == other.after.key()
    }

    pub(super) fn apply(&self, handle: &Handle) -> Result<(), Error> {
        let flags = if self.before.is_some() { REPLACE } else { CREATE | EXCLUSIVE };
        if self.before.as_ref() == Some(&self.after) {
            return Ok(());
        }
        order(handle, RTM_NEWROUTE, flags, &self.after)
    }

    pub(super) fn state(&self, handle: &Handle) -> Result<State, Error> {
        let now = all(handle)?.into_iter().find(|fib| fib.key() == self.after.key());
        Ok(match now {
            Some(now) if now == self.after => State::AsSet,
            now if now == self.before => State::AsBefore,
            Some(_) => State::Other(format!("route {} is another one now", self.after)),
            None => State::Other(format!("route {} is gone", self.after)),
        })
    }

    pub(super) fn restore(&self, handle: &Handle) -> Result<(), Error> {
        match &self.before {
            Some(before) if *before == self.after => Ok(()),
            Some(before) => order(handle, RTM_NEWROUTE, REPLACE, before),
            None => order(handle, RTM_DELROUTE, 0, &self.after),
        }
    }

    pub(super) fn words(&self) -> String {
        let (after, netns) = (&self.after, self.netns.words());
        match self.before {
            Some(_) => format!("route {after}: quickack 1{netns}"),
            None => format!("a route of its own to {after}, with quickack 1{netns}"),
        }
    }
}

impl Plan {
    fn push(&mut self, handle: &Handle, before: Option<Fib>, after: Fib) {
        self.routes.push(Route { netns: handle.id.clone(), before, after });
    }
}

/// The route by which packets to all of these go. The table local is asked before main
/// (ip-rule(8)).
fn covering(all: &[Fib], peers: Prefix) -> Option<&Fib> {
    let of = |local: bool| {
        let candidates = all.iter().filter(move |fib| fib.is_of_table_local() == local);
        let candidates = candidates.filter(|fib| fib.prefix().holds(peers));
        // The first of several of one length has the lowest metric.
        candidates.rev().max_by_key(|fib| fib.prefix().bits)
    };
    of(true).or_else(|| of(false))
}

fn all(handle: &Handle) -> Result<Vec<Fib>, Error> {
    let routes = handle.within(Fib::all)?;
    routes.map_err(|error| Error::Netlink { what: "the routes cannot be read".to_owned(), error })
}

fn order(handle: &Handle, kind: u16, flags: u16, fib: &Fib) -> Result<(), Error> {
    let done = handle.within(|| Line::open()?.order(kind, flags, &fib.bytes()))?;
    done.map_err(|error| Error::Netlink { what: format!("route {fib}"), error })
}
