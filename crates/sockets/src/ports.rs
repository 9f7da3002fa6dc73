//! Local ports to open connections from, which the privileged half has reserved in advance ([`crate::Host::reserve`]): to
//! ask it for each connection, and to tell it of each that is over, takes several times what else connect(2) takes.
//!
//! A program that opens one connection gets one port; one that soon opens more to the same end, twice as many each time.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncork_engine::Instant;

use crate::host::{Ends, Past};

/// How many are reserved at a time at most, and how many may be closed and over before that is reported.
const MOST: u16 = 32;
/// A pool that was used up within this time was too small.
const SOON: Duration = Duration::from_secs(1);
/// Ports that were not needed for so long are given back, and what is closed or over is reported.
pub(crate) const IDLE: Duration = Duration::from_secs(5);

/// The connections that ports are reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// Number of the network namespace (SO_NETNS_COOKIE): a program may have sockets of several.
    pub(crate) namespace: u64,
    /// The local address.
    pub(crate) from: IpAddr,
    /// The remote end of all connections.
    pub(crate) remote: SocketAddr,
}

/// The reserved ports of this process.
#[derive(Debug)]
pub(crate) struct Ports {
    pools: HashMap<Way, Pool>,
    /// Connections from such ports.
    used: HashSet<Ends>,
    /// What is to be reported.
    past: Past,
    /// Whether some of what was reported was not heard yet.
    pub(crate) unsaid: bool,
    /// Ports of the last report: it may not have been dealt with yet.
    said: HashSet<u16>,
    /// When idle ports were last looked for.
    looked: Instant,
}

#[derive(Debug)]
struct Pool {
    free: Vec<u16>,
    /// How many were asked for, the last time.
    asked: u16,
    at: Instant,
    /// Whether none were granted.
    refused: bool,
    /// How many were asked for that are not waited for yet, and the number of that question.
    coming: Option<(u16, u32)>,
}

impl Pool {
    fn is_used_up_soon(&self, now: Instant) -> bool {
        now.since(self.at) < SOON
    }

    /// Returns how many will not be too few.
    fn more(&self) -> u16 {
        self.asked.saturating_mul(2).min(MOST)
    }
}

impl Default for Ports {
    fn default() -> Self {
        let (pools, used, said) = (HashMap::new(), HashSet::new(), HashSet::new());
        let (past, unsaid, looked) = (Past::default(), false, Instant::ZERO);
        Self { pools, used, past, unsaid, said, looked }
    }
}

impl Ports {
    /// Takes the local end of a connection that may be opened now, if there is one.
    pub(crate) fn take(&mut self, way: Way) -> Option<SocketAddr> {
        let port = self.pools.get_mut(&way)?.free.pop()?;
        let local = SocketAddr::new(way.from, port);
        self.used.insert((local, way.remote));
        Some(local)
    }

    /// Returns how many to ask for, where there are none left: none, if that was in vain a short while ago.
    pub(crate) fn wanted(&self, way: Way, now: Instant) -> u16 {
        let Some(pool) = self.pools.get(&way) else { return 1 };
        match pool.is_used_up_soon(now) {
            true if pool.refused => 0,
            true => pool.more(),
            false => (pool.asked / 2).max(1),
        }
    }

    /// Returns how many to ask for ahead, if it is time to, so that they are there when the others are used up.
    pub(crate) fn wanted_ahead(&self, way: Way, now: Instant) -> Option<u16> {
        let pool = self.pools.get(&way)?;
        let is_half_used = pool.asked > 1 && pool.free.len() == usize::from(pool.asked / 2);
        let is_time = is_half_used && pool.coming.is_none() && pool.is_used_up_soon(now);
        is_time.then(|| pool.more())
    }

    /// Notes that so many were asked for ahead.
    pub(crate) fn are_coming(&mut self, way: Way, asked: u16, number: u32) {
        if let Some(pool) = self.pools.get_mut(&way) {
            pool.coming = Some((asked, number));
        }
    }

    /// Takes how many were asked for ahead, and by which question, as they are to be waited for now.
    pub(crate) fn come(&mut self, way: Way) -> Option<(u16, u32)> {
        self.pools.get_mut(&way)?.coming.take()
    }

    /// Adds the ports that were granted, of so many that were asked for.
    pub(crate) fn add(&mut self, way: Way, asked: u16, ports: Vec<u16>, at: Instant) {
        let (refused, coming) = (ports.is_empty(), None);
        self.pools.insert(way, Pool { free: ports, asked, at, refused, coming });
    }

    /// Returns whether a connection is from a reserved port.
    pub(crate) fn has(&self, ends: &Ends) -> bool {
        self.used.contains(ends)
    }

    /// Notes that a connection, possibly from a reserved port, is in TIME-WAIT.
    pub(crate) fn is_closed(&mut self, ends: Ends) {
        if self.used.contains(&ends) {
            self.past.closed.push(ends);
        }
    }

    /// Notes that a connection is over. Returns whether it was from a reserved port.
    pub(crate) fn is_over(&mut self, ends: Ends) -> bool {
        let was_one = self.used.remove(&ends);
        if was_one {
            self.past.over.push(ends);
        }
        was_one
    }

    /// Notes that a connection, possibly from a reserved port, could not be opened.
    pub(crate) fn is_unused(&mut self, ends: Ends) {
        if self.used.remove(&ends) {
            self.past.unused.push(ends);
        }
    }

    /// Returns whether it is time to report what is closed and over.
    pub(crate) fn has_much_to_say(&self) -> bool {
        let Past { closed, over, unused } = &self.past;
        closed.len() + over.len() + unused.len() >= usize::from(MOST)
    }

    /// Takes what is to be reported, if there is something.
    pub(crate) fn say(&mut self) -> Option<Past> {
        if !self.unsaid && self.past == Past::default() {
            return None;
        }
        let past = std::mem::take(&mut self.past);
        self.said = ports(&past).collect();
        Some(past)
    }

    /// Returns whether this port may be kept from others for a connection that is closed or over.
    pub(crate) fn may_keep(&self, port: u16) -> bool {
        self.said.contains(&port) || ports(&self.past).any(|other| other == port)
    }

    /// Returns whether there is something that time changes: what may become idle, or is to be reported.
    pub(crate) fn have_something(&self) -> bool {
        !self.pools.is_empty() || self.unsaid || self.past != Past::default()
    }

    /// Returns whether it is time to look for that.
    pub(crate) fn are_due(&self, now: Instant) -> bool {
        now.since(self.looked) >= IDLE && self.have_something()
    }

    /// Gives idle ports back as unused. Returns the numbers of the questions whose answers are not wanted any more.
    pub(crate) fn give_back_idle(&mut self, now: Instant) -> Vec<u32> {
        self.looked = now;
        let unused = &mut self.past.unused;
        let mut forsaken = Vec::new();
        self.pools.retain(|way, pool| {
            let stays = now.since(pool.at) < IDLE;
            if !stays {
                let ends = |port| (SocketAddr::new(way.from, port), way.remote);
                unused.extend(pool.free.drain(..).map(ends));
                forsaken.extend(pool.coming.map(|(_, number)| number));
            }
            stays
        });
        forsaken
    }

    /// Forgets all, as the instance that had them is gone. Returns the numbers of the questions whose answers are not wanted.
    pub(crate) fn are_lost(&mut self) -> Vec<u32> {
        let lost = std::mem::take(self);
        lost.pools.into_values().filter_map(|pool| Some(pool.coming?.1)).collect()
    }
}

fn ports(past: &Past) -> impl Iterator<Item = u16> {
    let all = past.closed.iter().chain(&past.over).chain(&past.unused);
    all.map(|(local, _)| local.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "10.0.0.1";

    fn remote(port: u16) -> SocketAddr {
        SocketAddr::new("10.0.0.2".parse().unwrap(), port)
    }

    fn to(port: u16) -> Way {
        Way { namespace: 1, from: FROM.parse().unwrap(), remote: remote(port) }
    }

    /// Opens so many connections, and returns how many ports were asked for each time that there were none left.
    fn open(ports: &mut Ports, next: &mut u16, many: usize, now: Instant) -> Vec<u16> {
        let mut asked = Vec::new();
        for _ in 0..many {
            if ports.take(to(80)).is_some() {
                continue;
            }
            let wanted = ports.wanted(to(80), now);
            let new = (*next..*next + wanted).collect();
            *next += wanted;
            asked.push(wanted);
            ports.add(to(80), wanted, new, now);
            assert!(ports.take(to(80)).is_some());
        }
        asked
    }

    #[test]
    fn who_soon_opens_more_gets_more_and_who_does_not_gets_fewer() {
        let (mut ports, mut next, now) = (Ports::default(), 1000, Instant::ZERO);
        assert_eq!(open(&mut ports, &mut next, 100, now), [1, 2, 4, 8, 16, 32, 32, 32]);
        let later = now + 2 * SOON;
        let left = 127 - 100;
        assert_eq!(open(&mut ports, &mut next, left + 1, later), [16]);
    }

    #[test]
    fn more_are_asked_for_ahead_while_they_are_used_up_soon() {
        let (mut ports, mut next, now) = (Ports::default(), 1000, Instant::ZERO);
        let way = to(80);
        let mut ahead = |many: usize, at: Instant| {
            open(&mut ports, &mut next, many, now);
            ports.wanted_ahead(way, at)
        };
        // One, and one of the next two.
        assert_eq!(ahead(1, now), None);
        assert_eq!(ahead(1, now), Some(4));
        assert_eq!(ahead(0, now + SOON), None);
        ports.are_coming(way, 4, 7);
        assert_eq!(ports.wanted_ahead(way, now), None);
        assert!(ports.take(way).is_some() && ports.take(way).is_none());
        assert_eq!(ports.come(way), Some((4, 7)));
        assert_eq!(ports.come(way), None);
    }

    #[test]
    fn what_is_over_is_said_once_and_closed_before() {
        let (mut ports, mut next, now) = (Ports::default(), 1000, Instant::ZERO);
        open(&mut ports, &mut next, 1, now);
        let ends = (SocketAddr::new(FROM.parse().unwrap(), 1000), remote(80));
        assert!(ports.has(&ends) && ports.say().is_none());
        assert!(!ports.may_keep(1000));
        ports.is_closed(ends);
        assert!(ports.may_keep(1000) && !ports.may_keep(1001));
        assert_eq!(ports.say(), Some(Past { closed: vec![ends], ..Past::default() }));
        assert!(ports.is_over(ends) && !ports.is_over(ends) && !ports.has(&ends));
        assert_eq!(ports.say(), Some(Past { over: vec![ends], ..Past::default() }));
        assert!(ports.may_keep(1000), "it may not have been done");
        // What was not heard is said again.
        ports.unsaid = true;
        assert!(ports.have_something());
        assert_eq!(ports.say(), Some(Past::default()));
        ports.unsaid = false;
        assert!(!ports.may_keep(1000));
        // One that was owned by itself.
        let other = (ends.0, remote(81));
        ports.is_closed(other);
        assert!(!ports.is_over(other) && ports.say().is_none());
    }

    #[test]
    fn it_is_time_to_say_what_is_over_when_that_is_much() {
        let (mut ports, mut next, now) = (Ports::default(), 1000, Instant::ZERO);
        open(&mut ports, &mut next, usize::from(MOST), now);
        let end = |port| (SocketAddr::new(FROM.parse().unwrap(), port), remote(80));
        let used: Vec<_> = ports.used.iter().copied().collect();
        for ends in &used[1..] {
            assert!(ports.is_over(*ends) && !ports.has_much_to_say());
        }
        assert!(ports.is_over(used[0]) && ports.has_much_to_say());
        assert_eq!(ports.say().unwrap().over.len(), usize::from(MOST));
        assert!(!ports.has_much_to_say() && !ports.has(&end(1000)));
    }

    #[test]
    fn what_nobody_wants_is_given_back() {
        let (mut ports, now) = (Ports::default(), Instant::ZERO + IDLE);
        ports.add(to(80), 2, vec![1000, 1001], now);
        ports.add(to(81), 2, vec![], now + SOON);
        ports.are_coming(to(80), 4, 7);
        assert!(ports.are_due(now), "it was never looked");
        assert!(ports.give_back_idle(now).is_empty());
        assert!(!ports.are_due(now + SOON) && ports.say().is_none());
        assert!(ports.are_due(now + IDLE));
        assert_eq!(ports.give_back_idle(now + IDLE), [7]);
        assert_eq!(ports.say().unwrap().unused.len(), 2);
        assert!(ports.take(to(80)).is_none());
        // The other is younger.
        assert!(ports.give_back_idle(now + 2 * IDLE).is_empty());
        assert!(!ports.are_due(now + 3 * IDLE) && !ports.have_something());
    }

    #[test]
    fn when_whoever_had_them_is_gone_there_are_none() {
        let (mut ports, mut next, now) = (Ports::default(), 1000, Instant::ZERO);
        open(&mut ports, &mut next, 2, now);
        ports.are_coming(to(80), 4, 7);
        assert_eq!(ports.are_lost(), [7]);
        assert!(ports.take(to(80)).is_none() && ports.used.is_empty() && ports.say().is_none());
    }

    #[test]
    fn where_there_are_none_it_is_not_asked_at_once_again() {
        let (mut ports, now) = (Ports::default(), Instant::ZERO);
        ports.add(to(80), 1, vec![], now);
        assert_eq!(ports.wanted(to(80), now), 0);
        assert_eq!(ports.wanted(to(80), now + SOON), 1);
    }
}
