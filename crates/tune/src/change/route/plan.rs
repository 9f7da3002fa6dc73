//! Which routes are changed for some peers, and which are better left alone.

use super::fib::Fib;
use super::rules::Rules;
use super::{Route, all};
use crate::Error;
use crate::change::link;
use crate::netns::Handle;
use crate::scope::Prefix;

/// A namespace's routes: what can be changed, and what is left.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes.
    pub routes: Vec<Route>,
    /// Routes that stay as they are, each with the reason.
    pub left: Vec<String>,
}

impl Plan {
    /// Plans for the routes that lead to the peers; for all that can carry TCP if none are named.
    ///
    /// # Errors
    /// If there is no such route, or the kernel does not report its routes.
    pub fn of(handle: &Handle, peers: Option<Prefix>) -> Result<Self, Error> {
        let all = all(handle)?;
        let rules = Rules::of(handle)?;
        let mut plan = Self::default();
        let ours = |fib: &&Fib| fib.carries_tcp() && fib.is_of_main_or_local();
        let wanted = |fib: &&Fib| peers.is_none_or(|peers| peers.holds(fib.prefix()));
        for fib in all.iter().filter(ours).filter(wanted) {
            match reason_to_leave(&all, fib) {
                Some(why) => plan.left.push(format!("route {fib}: {why}")),
                None => plan.push(handle, Some(fib.clone()), fib.quick()),
            }
        }
        if let Some(peers) = peers
            && let Some(covering) = covering(all.iter(), peers)
            && (covering.prefix() != peers || !covering.carries_tcp())
        {
            match reason_to_add_none(&all, &rules, covering, peers) {
                Some(why) => plan.left.push(why),
                None => plan.push(handle, None, covering.narrowed(peers).quick()),
            }
        }
        if plan.routes.is_empty() && plan.left.is_empty() {
            let to = peers.map(|peers| format!(" to {peers}")).unwrap_or_default();
            return Err(Error::Unable(format!(
                "there is no route{to} in the tables main and local{}",
                handle.id.words()
            )));
        }
        plan.left.extend(rules.elsewhere(&all, peers));
        Ok(plan)
    }

    fn push(&mut self, handle: &Handle, before: Option<Fib>, after: Fib) {
        let device = after.device().and_then(|index| link::name_of(handle, index).ok()?);
        self.routes.push(Route { netns: handle.id.clone(), before, after, device });
    }
}

fn reason_to_leave(all: &[Fib], fib: &Fib) -> Option<String> {
    let twins = all.iter().filter(|other| other.key() == fib.key()).count();
    if twins > 1 {
        return Some(format!(
            "there are {twins} of the same metric, which the kernel does not tell apart when one is \
             replaced"
        ));
    }
    if fib.is_the_kernels_own() {
        let why = "an IPv6 route of metric 0 is the kernel's own, and nobody else may replace it";
        return Some(why.to_owned());
    }
    fib.expires().then(|| "a router renews it, and would undo this".to_owned())
}

/// Returns why these peers get no route of their own, made from the one that covers them.
fn reason_to_add_none(all: &[Fib], rules: &Rules, covering: &Fib, peers: Prefix) -> Option<String> {
    if !covering.carries_tcp() {
        return Some(format!(
            "route {covering} keeps packets from {peers}: a route of their own would lead around \
             it, and is not made"
        ));
    }
    let none = format!("no route of its own to {peers} was made from route {covering}");
    if covering.expires() {
        return Some(format!("{none}: a router renews that, and this one would stay behind"));
    }
    // A route for some packets only would be found after a longer one, and so not at all.
    let hidden = |fib: &&Fib| {
        fib.is_for_some_packets()
            && fib.table() == covering.table()
            && fib.prefix().bits >= covering.prefix().bits
            && fib.prefix().holds(peers)
    };
    if let Some(hidden) = all.iter().find(hidden) {
        return Some(format!(
            "{none}: it would be found before route {hidden}, which is for one type of service or \
             one source only"
        ));
    }
    let rule = rules.suppressor(covering, peers)?;
    Some(format!("{none}: by {rule} that does not count, and one for fewer addresses would"))
}

/// Returns the route that decides about packets to all of these peers, whether it carries them or
/// not. The table local is consulted before main (ip-rule(8)).
pub(super) fn covering<'a>(
    all: impl DoubleEndedIterator<Item = &'a Fib> + Clone,
    peers: Prefix,
) -> Option<&'a Fib> {
    let of = |local: bool| {
        let table = move |fib: &&Fib| fib.is_of_main_or_local() && fib.is_of_table_local() == local;
        let candidates = all.clone().filter(table);
        let general = candidates.filter(|fib| !fib.is_for_some_packets());
        let candidates = general.filter(|fib| fib.prefix().holds(peers));
        // Of several of one length, the first has the lowest metric.
        candidates.rev().max_by_key(|fib| fib.prefix().bits)
    };
    of(true).or_else(|| of(false))
}
