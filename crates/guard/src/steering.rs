//! Steering: telling the filters of `uncork-bpf` which packets belong to whom.
//!
//! A port has members, the stacks that listen there; how many they are decides which of them gets a new connection.
//! So before the members of a port change, each member's connections there are entered as its own; when they
//! are over, the entries are removed ([`Steering::tidy`]). The same table marks the kernel's connections as
//! the kernel's.

mod pinning;
mod pins;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use uncork_bpf::owned::{
    self, Answering, Engine, Ours, Owned, Presence, Programs, Protocol, Queues, RedirectByQueue,
    Sharing, Whence, Whose,
};
use uncork_guardian::Device;
use uncork_sockdiag::{Name, SockDiag};

use self::pinning::Tidied;
use self::pins::{Pin, Pins};
use crate::Error;
use crate::ipsec::Policies;
use crate::session::{Ends, Session};

/// How many of the kernel's connections are asked about in a round, and how many connections of dead engines are looked after.
const ASKED_IN_A_ROUND: usize = 1024;
const LEFT_TO_THE_KERNEL: usize = 1 << 20;

/// How long an entry stays at least: the kernel's connection may be over before the last of its segments has come.
const STAYS: Duration = Duration::from_secs(2);

/// How long the stack that had a port when a connection began still counts: its SYN may be in the ring of a process that gets no
/// processor, and is in no table until the process runs.
const SETTLES: Duration = Duration::from_secs(3);

/// Tells the kernel which packets are whose.
pub(crate) struct Steering {
    owned: Owned,
    /// Addresses of the devices, each with the number of its device.
    addresses: HashMap<IpAddr, u32>,
    /// Those addresses that several devices have.
    several: HashSet<IpAddr>,
    kernel: SockDiag,
    ipsec: Policies,
    members: HashMap<SocketAddr, Vec<Engine>>,
    /// Connections that are entered as the kernel's, and since when.
    kept: HashMap<Ends, Instant>,
    /// Connections that are entered as an engine's.
    pinned: Pins,
    /// How far the tables were searched for connections that are over.
    tidied: Tidied,
    /// How far the tables that are read in parts were read: of living engines, and of dead ones.
    read: HashMap<Engine, usize>,
    bequeathed: HashMap<Engine, usize>,
    /// Engines that have left a place to others of the same user, each with that user.
    left: HashMap<SocketAddr, HashMap<Engine, Option<u32>>>,
    /// Places whose members have changed a short while ago.
    settling: Vec<Settling>,
}

/// Places whose members have changed.
struct Settling {
    places: Vec<SocketAddr>,
    /// Those of them that were only the kernel's before.
    new: Vec<SocketAddr>,
    /// When they have settled.
    until: Instant,
}

impl Settling {
    fn begin(places: &[SocketAddr], new: Vec<SocketAddr>) -> Self {
        Self { places: places.to_vec(), new, until: Instant::now() + SETTLES }
    }
}

impl Steering {
    /// Attaches the filters to the devices. No packet is a stack's yet.
    pub(crate) fn attach(devices: &[Device]) -> Result<Self, Error> {
        // The stack asks the kernel for its neighbour entries.
        let mut owned = Owned::load(owned::Settings { ethernet: true, neighbours: false })?;
        let (mut addresses, mut several) = (HashMap::new(), HashSet::new());
        for device in devices {
            owned.attach(device.index)?;
            let number = device.index.cast_unsigned();
            for address in &device.addresses {
                if addresses.insert(address.ip, number).is_some_and(|other| other != number) {
                    several.insert(address.ip);
                }
            }
        }
        let kernel = SockDiag::open().map_err(Error::system("ask the kernel about its sockets"))?;
        let steering = Self {
            owned,
            addresses,
            several,
            kernel,
            ipsec: Policies::open(),
            members: HashMap::new(),
            kept: HashMap::new(),
            pinned: Pins::default(),
            tidied: Tidied::default(),
            read: HashMap::new(),
            bequeathed: HashMap::new(),
            left: HashMap::new(),
            settling: Vec::new(),
        };
        let from_outside = if is_set("all", "accept_local") { &[] } else { devices };
        for device in from_outside.iter().filter(|device| !is_set(&device.name, "accept_local")) {
            for address in &device.addresses {
                steering.owned.host_has(address.ip, steering.whence(address.ip))?;
            }
        }
        Ok(steering)
    }

    /// Returns where a device with a filter is now.
    pub(crate) fn presence(&self, device: i32) -> Presence {
        self.owned.presence(device)
    }

    /// Ends all memberships at the addresses of a device that is gone.
    pub(crate) fn lose_device(&mut self, device: i32, all: &[&Session]) {
        self.owned.detach(device);
        let is_of_it = |place: &&SocketAddr| {
            self.device_of(place.ip()) == Some(device.cast_unsigned())
                && !self.several.contains(&place.ip())
        };
        let places: Vec<_> = self.members.keys().filter(is_of_it).copied().collect();
        for place in places {
            for engine in self.members.get(&place).cloned().unwrap_or_default() {
                // If this fails, for want of memory in the kernel, say, the rest is done all the same.
                let _ = self.leave(engine, &[place], all);
            }
        }
    }

    /// Attaches the filter to a device that has come back.
    pub(crate) fn find_device(&mut self, device: i32) -> Result<(), owned::Error> {
        self.owned.attach(device)
    }

    /// Returns the filters, for matters other than ports and connections.
    pub(crate) fn owned(&self) -> &Owned {
        &self.owned
    }

    /// Returns the loader of the filters for engines' packet sockets.
    pub(crate) fn programs(&self) -> Programs {
        self.owned.programs()
    }

    /// Keeps the filters in force while this thread lives and the result is held ([`Owned::answer_for`]).
    pub(crate) fn answer_for(&self) -> io::Result<Answering> {
        self.owned.answer_for()
    }

    /// Returns the program that redirects what arrives on a device's queues.
    pub(crate) fn by_queue(&self, queues: Queues) -> Result<RedirectByQueue, owned::Error> {
        self.owned.redirect_by_queue(queues)
    }

    /// Returns the addresses of the devices, each with the number of its device.
    pub(crate) fn addresses(&self) -> Vec<(IpAddr, u32)> {
        self.addresses.iter().map(|(address, device)| (*address, *device)).collect()
    }

    /// Returns the number of the device that has this address.
    pub(crate) fn device_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.get(&address).copied()
    }

    /// Returns the device that packets to an address must arrive by; those that arrive by another are the kernel's.
    fn whence(&self, address: IpAddr) -> Whence {
        let device = self.device_of(address).filter(|_| !self.several.contains(&address));
        device.map_or(Whence::Outside, Whence::Device)
    }

    /// Returns the places that an address and a port stand for; an unspecified address stands for those of all devices.
    pub(crate) fn places(&self, local: SocketAddr, both_versions: bool) -> Vec<SocketAddr> {
        let meant = |ip: &IpAddr| {
            if !local.ip().is_unspecified() {
                return *ip == local.ip();
            }
            ip.is_ipv4() == local.is_ipv4() || (both_versions && local.is_ipv6())
        };
        let addresses = self.addresses.keys().filter(|ip| meant(ip));
        addresses.map(|ip| SocketAddr::new(*ip, local.port())).collect()
    }

    /// Returns the kernel's numbers of the sockets that listen at a port.
    pub(crate) fn listening_at(&mut self, port: u16) -> io::Result<Vec<u64>> {
        self.kernel.listening_at(port)
    }

    /// Returns the same for all ports.
    pub(crate) fn all_listening(&mut self) -> io::Result<Vec<u64>> {
        self.kernel.all_listening()
    }

    /// Makes an engine a member of these places, all of one port.
    pub(crate) fn join(
        &mut self,
        engine: Engine,
        places: &[SocketAddr],
        others: &[&Session],
    ) -> Result<(), String> {
        if places.is_empty() {
            return Ok(());
        }
        // Existing connections keep their owners; twice, for those that begin in between. If there are members already, the
        // kernel has got nothing since they came but what it was given, or what arrives by another device and is its own whoever
        // they are. So it is not asked: it goes through all its connections for that, and everybody who waits for the guardian
        // would wait for it.
        let is_new = |place: &&SocketAddr| !self.members.contains_key(place);
        let new: Vec<_> = places.iter().filter(is_new).copied().collect();
        self.keep_kernels(&new)?;
        self.pin(places, others)?;
        for place in places {
            let stands = self.owned.stand(Protocol::Tcp, *place, engine, true);
            stands.map_err(|error| error.to_string())?;
            if let Some(left) = self.left.get_mut(place) {
                left.remove(&engine);
            }
            self.announce(place)?;
            let whence = self.whence(place.ip());
            let members = self.members.entry(*place).or_default();
            members.push(engine);
            let told = self.owned.share(Protocol::Tcp, *place, whence, members, Sharing::Changed);
            if let Err(error) = told {
                members.pop();
                return Err(error.to_string());
            }
        }
        self.keep_kernels(&new)?;
        self.settling.push(Settling::begin(places, new));
        self.pin(places, others)
    }

    /// Ends an engine's membership in these places; `all` are the sessions whose connections there stay theirs.
    pub(crate) fn leave(
        &mut self,
        engine: Engine,
        places: &[SocketAddr],
        all: &[&Session],
    ) -> Result<(), String> {
        if places.is_empty() {
            return Ok(());
        }
        let leaver = all.iter().find(|session| session.engine == engine);
        let (lives, user) = (leaver.is_some(), leaver.and_then(|session| session.user));
        self.pin(places, all)?;
        for place in places {
            self.announce(place)?;
            // An entry that is left behind does no harm: engine numbers are never reused.
            let _ = if lives {
                self.owned.leave_to_user(Protocol::Tcp, *place, engine)
            } else {
                self.owned.stand(Protocol::Tcp, *place, engine, false)
            };
            let whence = self.whence(place.ip());
            let members = self.members.entry(*place).or_default();
            members.retain(|member| *member != engine);
            // The last member finishes what it has begun, unless it is dead.
            let is_over = members.is_empty() && !lives;
            let sharing = if is_over { Sharing::Alone } else { Sharing::Changed };
            let told = self.owned.share(Protocol::Tcp, *place, whence, members, sharing);
            if members.is_empty() {
                self.members.remove(place);
            }
            if lives {
                self.left.entry(*place).or_default().insert(engine, user);
            }
            self.keep_left(place, all);
            told.map_err(|error| error.to_string())?;
        }
        self.settling.push(Settling::begin(places, Vec::new()));
        self.pin(places, all)
    }

    /// Announces that the members of a place are about to change. From now on every filter that looks at a SYN takes over the
    /// first one's finding; a look that began earlier is done by the time the members have changed.
    fn announce(&self, place: &SocketAddr) -> Result<(), String> {
        let members = self.members.get(place).map_or(&[][..], Vec::as_slice);
        if members.is_empty() {
            return Ok(());
        }
        self.share(place, members, Sharing::Changed)
    }

    /// Tells the filters how the current members of a place share it.
    fn share(&self, place: &SocketAddr, members: &[Engine], now: Sharing) -> Result<(), String> {
        let whence = self.whence(place.ip());
        let told = self.owned.share(Protocol::Tcp, *place, whence, members, now);
        told.map_err(|error| error.to_string())
    }

    /// Tells whether members have changed a short while ago, so that [`Steering::settle`] is due soon.
    pub(crate) fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// Makes entries for connections that neither look at the tables could find: their SYN had reached a member before the
    /// members changed, and was processed only after both looks. The filters still know whose such a SYN is. The same goes for
    /// SYNs that the kernel had got.
    pub(crate) fn settle(&mut self, all: &[&Session], slots: &mut usize) {
        let now = Instant::now();
        let (over, others): (Vec<Settling>, _) =
            std::mem::take(&mut self.settling).into_iter().partition(|one| one.until <= now);
        self.settling = others;
        for one in over {
            let port = one.places.first().map_or(0, SocketAddr::port);
            if *slots == 0 || !self.prepare(port, all, slots) {
                // It is settled once everything is entered.
                self.settling.push(one);
                continue;
            }
            let settled = self.pin(&one.places, all);
            let settled = settled.and_then(|()| self.keep_kernels(&one.new));
            if settled.and_then(|()| self.settled(&one.places)).is_err() {
                // What cannot be entered now may be next time.
                self.settling.push(one);
            }
        }
    }

    /// Tells the filters that the members of these places have settled, unless they have changed again.
    fn settled(&mut self, places: &[SocketAddr]) -> Result<(), String> {
        let changed =
            |place: &&SocketAddr| self.settling.iter().any(|one| one.places.contains(place));
        let same: Vec<_> = places.iter().filter(|place| !changed(place)).collect();
        for place in same {
            let members = self.members.get(place).map_or(&[][..], Vec::as_slice);
            self.share(place, members, Sharing::Shared)?;
        }
        Ok(())
    }

    /// Returns whether an IPsec policy is about what passes between these ends, or about anything at the local one.
    pub(crate) fn is_under_ipsec(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<bool, String> {
        let held = self.ipsec.hold(local, remote);
        held.map_err(|error| format!("the kernel does not tell its IPsec policies: {error}"))
    }

    /// Enters a connection that an engine of this user's opens as the engine's.
    pub(crate) fn open(
        &mut self,
        engine: Engine,
        user: Option<u32>,
        ends: Ends,
    ) -> Result<(), String> {
        let known = has(&mut self.kernel, ends);
        if known.map_err(|error| format!("the kernel does not tell its sockets: {error}"))? {
            return Err(format!("the kernel has a connection from {} to {}", ends.0, ends.1));
        }
        let (local, remote) = ends;
        if self.is_under_ipsec(local, Some(remote))? {
            return Err(format!("an IPsec policy is about what passes from {local} to {remote}"));
        }
        if self.pinned.get(&ends).is_some_and(|pin| pin.engine != engine) {
            return Err(format!("another process has a connection from {local} to {remote}"));
        }
        if self.pinned.room(user) == 0 {
            let most = pins::MOST_OF_A_USER;
            return Err(format!(
                "one user's programs have {most} connections, which is all they may"
            ));
        }
        self.kept.remove(&ends);
        let entered = self.owned.own_connection(engine, self.whence(local.ip()), ends);
        entered.map_err(|error| error.to_string())?;
        self.pinned.insert(ends, Pin { engine, user, has_come: false, listed: 0, unlisted: None });
        Ok(())
    }

    /// Removes the entry of a connection.
    pub(crate) fn forget(&mut self, ends: Ends) -> Result<(), String> {
        // This comes first: an entry that cannot be removed must be found again.
        self.owned.disown(ours(ends)).map_err(|error| error.to_string())?;
        self.kept.remove(&ends);
        self.pinned.remove(&ends);
        Ok(())
    }

    /// Removes the entries of several connections.
    fn forget_all(&mut self, all: &[Ends]) {
        // This comes first: an entry that cannot be removed must be found again.
        if self.owned.disown_all(all).is_err() {
            return;
        }
        self.pinned.remove_all(all);
        all.iter().for_each(|ends| {
            self.kept.remove(ends);
        });
    }

    /// Removes all entries of an engine.
    pub(crate) fn forget_all_of(&mut self, engine: Engine) {
        let all: Vec<Ends> = self.pinned.of(engine).collect();
        self.forget_all(&all);
        self.forget_left(engine);
        self.read.remove(&engine);
    }

    /// Enters a connection as the kernel's: the engine no longer has it.
    pub(crate) fn give_back(&mut self, ends: Ends) -> Result<(), String> {
        self.give_all_back(&[ends])
    }

    /// Enters a dead engine's connections as the kernel's. Of very many only the first, as the kernel is asked about each whether
    /// it is over; what the peers of the rest send goes to the port's next owner, which does not know them either.
    pub(crate) fn leave_to_the_kernel(&mut self, all: &[Ends]) -> Result<(), String> {
        let room = LEFT_TO_THE_KERNEL.saturating_sub(self.kept.len());
        self.give_all_back(&all[..all.len().min(room)])
    }

    fn give_all_back(&mut self, all: &[Ends]) -> Result<(), String> {
        let is_known =
            |ends: &&Ends| self.kept.contains_key(*ends) || self.pinned.get(ends).is_some();
        let new = all.len() - all.iter().filter(is_known).count();
        self.pinned.remove_all(all);
        let entered = self.owned.enter_all(Whose::Kernels, all, new);
        entered.map_err(|error| error.to_string())?;
        let now = Instant::now();
        self.kept.extend(all.iter().map(|ends| (*ends, now)));
        Ok(())
    }

    /// Returns the ports that a kernel socket listens on; none if the kernel does not tell.
    pub(crate) fn listening(&mut self) -> Vec<u16> {
        self.kernel.listening().unwrap_or_default()
    }

    /// Tells whether there are entries to be checked again.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.kept.is_empty() || !self.pinned.is_empty()
    }

    /// Removes the entries of connections that are over.
    pub(crate) fn tidy(&mut self, sessions: &[&Session]) -> io::Result<()> {
        let (mut over, now) = (Vec::new(), Instant::now());
        let due = self.kept.iter_mut().filter(|(_, since)| now - **since >= STAYS);
        for (ends, since) in due.take(ASKED_IN_A_ROUND) {
            // One by one: to list them, the kernel would go through all its connections, once for each port.
            if lives(&mut self.kernel, *ends)? {
                // So others come first next time.
                *since = now;
            } else {
                over.push(*ends);
            }
        }
        self.forget_all(&over);
        self.tidy_pinned(sessions);
        Ok(())
    }

    /// Enters the kernel's connections at these places, all of one port, as the kernel's. Not those in TIME-WAIT: a peer that
    /// comes from there again begins a new one. Where a busy server was on kernel sockets a minute ago, that is each of its
    /// clients' ports, and all of them would be the kernel's for as long as they are busy.
    fn keep_kernels(&mut self, places: &[SocketAddr]) -> Result<(), String> {
        let Some(port) = places.first().map(SocketAddr::port) else { return Ok(()) };
        let found = self.kernel.at_port(port);
        let found =
            found.map_err(|error| format!("the kernel does not tell its sockets: {error}"))?;
        let found = found.into_iter().map(|(local, remote)| (plain(local), plain(remote)));
        let is_kernels = |ends: &Ends| places.contains(&ends.0) && self.pinned.get(ends).is_none();
        let found: Vec<Ends> = found.filter(is_kernels).collect();
        self.give_all_back(&found)
    }
}

/// Tells whether a setting is on for this device or for all: e.g. that packets from the host's own addresses may arrive by it.
fn is_set(device: &str, name: &str) -> bool {
    let path = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
    fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
}

/// Tells whether the kernel has a connection with these ends, one in TIME-WAIT included.
fn has(kernel: &mut SockDiag, ends: Ends) -> io::Result<bool> {
    let known = kernel.ends(&Name::of(ends.0, ends.1))?;
    // What it has may be a listener on that port.
    Ok(known.is_some_and(|(_, remote)| plain(remote) == ends.1))
}

/// Tells whether the kernel has a connection with these ends that is not in TIME-WAIT. For one that is, what arrives is either
/// its end once more, or the beginning of another connection.
fn lives(kernel: &mut SockDiag, ends: Ends) -> io::Result<bool> {
    let known = kernel.living(&Name::of(ends.0, ends.1))?;
    Ok(known.is_some_and(|(_, remote)| plain(remote) == ends.1))
}

fn ours((local, remote): Ends) -> Ours {
    Ours::Connection(Protocol::Tcp, local, remote)
}

/// Reduces an end to its address and port, with an IPv4-mapped address as IPv4.
pub(crate) fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
