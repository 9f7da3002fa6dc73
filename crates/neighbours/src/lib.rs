//! What the kernel knows of the route to an address, asked over netlink by a program without any privilege:
//! device and next hop, source address, path MTU, and the next hop's hardware
//! address. For a user-space stack that shares its addresses with the kernel.
//!
//! [`Neighbours::ask`] asks, [`Neighbours::poll`] returns the answers, and later their changes:
//! it subscribes to the kernel's notifications of neighbours, routes, rules, addresses and links. Nothing
//! here blocks: the kernel answers questions about its tables at once, and the results of what it has to find
//! out itself (ARP, neighbour discovery) come as notifications.
//!
//! What the kernel does to packets beyond its routes, such as IPsec, is not in these tables.
#![forbid(unsafe_code)]

mod device;
mod entry;
mod prompt;
mod rule;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};

use nix::errno::Errno;
use uncork_netlink::{Line, News};

use entry::Entry;
use prompt::Prompter;
use way::Ports;
pub use way::{Kind, Way};

/// Most questions whose changes are reported. Beyond that, one is forgotten for each new one; it is reported
/// again when it is asked again.
pub const MOST: usize = 65_536;
/// Most questions that one call looks up again after routes have changed: each costs microseconds.
const REVIEWS: usize = 64;

// linux/rtnetlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_NEIGH: u32 = 3;
const RTNLGRP_IPV4_RULE: u32 = 8;
const RTNLGRP_IPV6_RULE: u32 = 19;
/// What can change a route, beside its device: addresses, routes and rules of both versions. When a device
/// goes down its routes vanish without further notification.
const RTNLGRP_ROUTES: [u32; 6] = [5, 7, RTNLGRP_IPV4_RULE, 9, 11, RTNLGRP_IPV6_RULE];

/// Where packets to an address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Out of a device, to a hardware address.
    At {
        /// The device's index.
        device: u32,
        /// The next hop's hardware address.
        mac: [u8; 6],
        /// The path MTU, where the kernel knows that it is less than the
        /// device's MTU.
        mtu: Option<u16>,
    },
    /// By another device than the one that was asked about.
    Elsewhere,
    /// Nowhere on a link: there is no route, the next hop does not answer or has no hardware
    /// address, or the address is one of this host's.
    Unreachable,
    /// What was told is no longer followed: the kernel has dropped its entry of the next hop, as nothing of its own has used
    /// it (gc_stale_time, arp(7)). The question is forgotten with it. Who still needs the way asks again, and
    /// may use what it was told until then.
    Lapsed,
}

/// A question: where packets of TCP go, as the kernel routes them. Rules that name ports (ip-rule(8)) do not count: it is
/// about all connections to an address. Rules that name users are applied to the user who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The destination.
    pub remote: IpAddr,
    /// The source, one of the host's addresses, if given: rules may depend on it (ip-rule(8)).
    pub source: Option<IpAddr>,
    /// The only device by which the asker can send, if given. A link-local destination (`fe80::`) is
    /// on that device's link then.
    pub device: Option<u32>,
}

impl Question {
    /// Asks with the kernel's choice of source and device.
    #[must_use]
    pub fn of(remote: IpAddr) -> Self {
        Self { remote, source: None, device: None }
    }

    /// Asks for a device with these addresses. If only one of them can be the source, it is.
    #[must_use]
    pub fn by(device: u32, addresses: impl IntoIterator<Item = IpAddr>, remote: IpAddr) -> Self {
        let is_near = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let kind = |address: &IpAddr| (address.is_ipv4(), is_near(address));
        let mut possible = addresses.into_iter().filter(|address| kind(address) == kind(&remote));
        let source = possible.next().filter(|_| possible.next().is_none());
        Self { remote, source, device: Some(device) }
    }
}

/// An answer, or a change of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// Where packets go.
    pub found: Found,
}

/// A question whose changes are reported.
#[derive(Debug, Default)]
struct Asked {
    /// Device and address of the next hop.
    hop: Option<(u32, IpAddr)>,
    mtu: Option<u16>,
    /// The answer that was returned last.
    told: Option<Found>,
    /// Whether it is to be looked up again.
    stale: bool,
}

/// A connection to the kernel's tables, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Neighbours {
    kernel: Line,
    news: News,
    /// Whether it has subscribed to neighbours and routes, because a question was asked.
    hears_all: bool,
    /// Whether a rule names ports, if the rules were read since they have changed.
    by_ports: Option<bool>,
    prompter: Prompter,
    asked: BTreeMap<Question, Asked>,
    /// The questions whose answer is a next hop.
    behind: BTreeMap<(u32, IpAddr), BTreeSet<Question>>,
    answers: VecDeque<Answer>,
    /// The questions to look up again.
    stale: VecDeque<Question>,
    /// Devices with changed addresses, and the addresses.
    devices: Vec<device::Address>,
}

impl Neighbours {
    /// Opens the connection.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            kernel: Line::open()?,
            // An owner that never asks needs no more, and there may be many routes.
            news: News::of(&[RTNLGRP_LINK, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE])?,
            hears_all: false,
            by_ports: None,
            prompter: Prompter::open()?,
            asked: BTreeMap::new(),
            behind: BTreeMap::new(),
            answers: VecDeque::new(),
            stale: VecDeque::new(),
            devices: Vec::new(),
        })
    }

    /// Returns the kernel's route for a connection of TCP from `local`, one of this host's addresses or the unspecified one, and a
    /// port or 0, which are the kernel's choice; `None` if there is no route. Nothing is remembered.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn way(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Way>> {
        let source = Some(local.ip()).filter(|source| !source.is_unspecified());
        let question = Question { source, ..Question::of(remote.ip()) };
        let of_all = Way::look_up(&mut self.kernel, question, Ports::default())?;
        // Without such rules ports say nothing, but for which of several equal routes is taken (fib_multipath_hash_policy).
        if !self.has_rules_by_ports()? {
            return Ok(of_all);
        }
        let ports = Ports { local: local.port(), remote: remote.port() };
        let way = Way::look_up(&mut self.kernel, question, ports)?;
        let leads_to = |way: Way| (way.kind, way.device, way.next_hop);
        let by_ports = way.map(leads_to) != of_all.map(leads_to);
        Ok(way.map(|way| Way { by_ports, ..way }))
    }

    fn has_rules_by_ports(&mut self) -> io::Result<bool> {
        // Rules may have changed since.
        self.hear()?;
        let by_ports = match self.by_ports {
            Some(by_ports) => by_ports,
            None => rule::name_ports(&mut self.kernel)?,
        };
        self.by_ports = Some(by_ports);
        Ok(by_ports)
    }

    /// Asks a question. [`Neighbours::poll`] returns
    /// the answer, and every change until [`Neighbours::forget`], [`Found::Lapsed`], or the end of a next hop that was told
    /// to be unreachable: nobody who needs that one goes by what it was told. If the kernel does not know the neighbour,
    /// or has not confirmed it for long, it is made to resolve it; only by a question, and once for each.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn ask(&mut self, question: Question) -> io::Result<()> {
        if !self.asked.contains_key(&question)
            && self.asked.len() >= MOST
            && let Some((&other, _)) = self.asked.first_key_value()
        {
            self.forget(other);
        }
        self.forget(question);
        if !self.hears_all {
            // Subscribes before the look-up, or a change in between would be lost.
            let all = [RTNLGRP_LINK, RTNLGRP_NEIGH].into_iter().chain(RTNLGRP_ROUTES);
            self.news.subscribe(&all.collect::<Vec<_>>())?;
            self.hears_all = true;
        }
        self.asked.insert(question, Asked::default());
        self.look_up(question)
    }

    /// Stops reporting changes.
    pub fn forget(&mut self, question: Question) {
        if let Some(hop) = self.asked.remove(&question).and_then(|asked| asked.hop) {
            self.leave(hop, question);
        }
    }

    /// Returns the next answer or change, if there is one.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn poll(&mut self) -> io::Result<Option<Answer>> {
        if self.answers.is_empty() {
            self.hear()?;
            self.review()?;
        }
        Ok(self.answers.pop_front())
    }

    /// Takes the devices of which it has heard in the other calls, by index, with their current hardware addresses.
    pub fn take_devices(&mut self) -> Vec<(u32, [u8; 6])> {
        std::mem::take(&mut self.devices)
    }

    /// Whether [`Neighbours::poll`] or [`Neighbours::take_devices`] has more although the descriptor is not readable: check
    /// before sleeping on that.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.answers.is_empty() || !self.stale.is_empty() || !self.devices.is_empty()
    }

    /// Returns all of its descriptors.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        let lines = [self.kernel.as_fd(), self.news.as_fd()].map(|line| line.as_raw_fd());
        lines.into_iter().chain(self.prompter.descriptors()).collect()
    }

    /// Looks up the route, and the neighbour on it. The answer is reported if it is new.
    fn look_up(&mut self, question: Question) -> io::Result<()> {
        let Some(asked) = self.asked.get(&question) else { return Ok(()) };
        let before = asked.hop;
        let way = Way::look_up(&mut self.kernel, question, Ports::default())?;
        let way = way.filter(|way| way.kind == Kind::Link);
        let is_elsewhere = |way: &Way| question.device.is_some_and(|device| device != way.device);
        let elsewhere = way.as_ref().is_some_and(is_elsewhere);
        let way = way.filter(|_| !elsewhere);
        let hop = way.as_ref().map(|way| (way.device, way.next_hop));
        if before != hop {
            if let Some(before) = before {
                self.leave(before, question);
            }
            if let Some(hop) = hop {
                self.behind.entry(hop).or_default().insert(question);
            }
        }
        if let Some(asked) = self.asked.get_mut(&question) {
            asked.hop = hop;
            asked.mtu = way.and_then(|way| way.mtu);
        }
        let Some(hop) = hop else {
            self.tell(question, if elsewhere { Found::Elsewhere } else { Found::Unreachable });
            return Ok(());
        };
        let entry = Entry::look_up(&mut self.kernel, hop)?.unwrap_or(Entry::Unknown);
        if before == Some(hop) {
            // Nobody has asked anew: the same holds as of news of the hop.
            self.take(question, hop, entry);
            return Ok(());
        }
        match entry {
            Entry::Known(_) | Entry::Bare | Entry::Sought => self.take(question, hop, entry),
            Entry::Old(_) => {
                self.take(question, hop, entry);
                self.prompter.prompt(question.source, hop);
            }
            Entry::Unknown | Entry::Failed => self.prompter.prompt(question.source, hop),
        }
        Ok(())
    }

    /// Takes what an entry says for the answer to a question that goes by it.
    fn take(&mut self, question: Question, hop: (u32, IpAddr), entry: Entry) {
        match entry {
            Entry::Known(mac) | Entry::Old(mac) => self.tell_at(question, hop, mac),
            Entry::Failed | Entry::Bare => self.tell(question, Found::Unreachable),
            Entry::Sought => {}
            Entry::Unknown => self.lapse(question),
        }
    }

    /// Forgets a question whose next hop the kernel has dropped. To prompt would make it resolve the hop for as long as we
    /// are here, whoever is there: what it does not find it drops again. Nor is anything notified of a hop
    /// without an entry, so whoever was told where it is has to know.
    fn lapse(&mut self, question: Question) {
        if let Some(Asked { told: Some(Found::At { .. }), .. }) = self.asked.get(&question) {
            self.answers.push_back(Answer { question, found: Found::Lapsed });
        }
        self.forget(question);
    }

    fn tell_at(&mut self, question: Question, (device, _): (u32, IpAddr), mac: [u8; 6]) {
        let mtu = self.asked.get(&question).and_then(|asked| asked.mtu);
        self.tell(question, Found::At { device, mac, mtu });
    }

    fn tell(&mut self, question: Question, found: Found) {
        if let Some(asked) = self.asked.get_mut(&question)
            && asked.told.replace(found) != Some(found)
        {
            self.answers.push_back(Answer { question, found });
        }
    }

    fn leave(&mut self, hop: (u32, IpAddr), question: Question) {
        if let Some(behind) = self.behind.get_mut(&hop) {
            behind.remove(&question);
            if behind.is_empty() {
                self.behind.remove(&hop);
            }
        }
    }

    /// Processes the kernel's notifications.
    fn hear(&mut self) -> io::Result<()> {
        let (mut entries, mut routes, mut lost) = (Vec::new(), false, false);
        let devices = &mut self.devices;
        loop {
            let heard = self.news.receive(|kind, body| match kind {
                RTM_NEWNEIGH | RTM_DELNEIGH => {
                    let gone = kind == RTM_DELNEIGH;
                    entries.extend(Entry::read(body).map(|(hop, entry)| (hop, entry, gone)));
                }
                _ => {
                    if [rule::RTM_NEWRULE, rule::RTM_DELRULE].contains(&kind) {
                        self.by_ports = None;
                    }
                    devices.extend((kind == RTM_NEWLINK).then(|| device::read(body)).flatten());
                    routes = true;
                }
            });
            match heard {
                Ok(true) => {}
                Ok(false) => break,
                // Some were lost: everything has to be looked up.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    (routes, lost) = (true, true);
                }
                Err(error) => return Err(error),
            }
        }
        if lost {
            self.by_ports = None;
            self.devices = device::all(&mut self.kernel)?;
        }
        for (hop, entry, gone) in entries {
            self.hear_of(hop, entry, gone)?;
        }
        if routes {
            let fresh = self.asked.iter_mut().filter(|(_, asked)| !asked.stale);
            self.stale.extend(fresh.map(|(&question, asked)| {
                asked.stale = true;
                question
            }));
        }
        Ok(())
    }

    fn hear_of(&mut self, hop: (u32, IpAddr), told: Entry, gone: bool) -> io::Result<()> {
        let Some(behind) = self.behind.get(&hop) else { return Ok(()) };
        let questions: Vec<_> = behind.iter().copied().collect();
        // It may have been asked for, and be there again, since that was sent.
        let now = if gone { Entry::look_up(&mut self.kernel, hop)? } else { Some(told) };
        for question in questions {
            self.take(question, hop, now.unwrap_or(Entry::Unknown));
        }
        Ok(())
    }

    /// Looks some questions up again whose routes may have changed.
    fn review(&mut self) -> io::Result<()> {
        for _ in 0..REVIEWS {
            let Some(question) = self.stale.pop_front() else { break };
            if let Some(asked) = self.asked.get_mut(&question) {
                asked.stale = false;
                self.look_up(question)?;
            }
        }
        Ok(())
    }
}

/// The descriptor is readable when the kernel has notifications.
impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}
