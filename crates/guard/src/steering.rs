//! Whose packets are whose: the filters of `uncork-bpf`, and what has been said to them.
//!
//! A port has members, the stacks that listen there; whose a new connection is follows from how many they are.
//! So before the members of a port change, each member's connections there are entered as its own; when they
//! are over the entries go ([`Steering::tidy`]). The same table says of the kernel's connections that they are
//! the kernel's.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use uncork_bpf::owned::{
    self, Answering, Engine, Ours, Owned, Programs, Protocol, Queues, RedirectByQueue, Sharing,
    Whence,
};
use uncork_guardian::Device;
use uncork_sockdiag::{Name, SockDiag};

use crate::Error;
use crate::session::{Ends, Session};

/// How long an entry stays at least: the kernel's connection may be over before the last of its segments
/// has come.
const STAYS: Duration = Duration::from_secs(2);

/// How long it counts who had a port when a connection began: a SYN may be in the ring of a process that does not get
/// on, and no table has it until it does.
const SETTLES: Duration = Duration::from_secs(3);

/// Says to the kernel which packets are whose.
pub(crate) struct Steering {
    owned: Owned,
    /// Addresses of the devices, with the number of theirs.
    addresses: HashMap<IpAddr, u32>,
    /// Those of them that several devices have.
    several: HashSet<IpAddr>,
    kernel: SockDiag,
    members: HashMap<SocketAddr, Vec<Engine>>,
    /// Connections that are entered as the kernel's, and since when.
    kept: HashMap<Ends, Instant>,
    /// Connections that are entered as a member's.
    pinned: HashMap<Ends, Engine>,
    /// Places whose members have changed a short while ago.
    settling: Vec<Settling>,
}

/// Places whose members have changed.
struct Settling {
    places: Vec<SocketAddr>,
    /// Those of them that were the kernel's alone before.
    new: Vec<SocketAddr>,
    /// Until then that was a short while ago.
    until: Instant,
}

impl Settling {
    fn begin(places: &[SocketAddr], new: Vec<SocketAddr>) -> Self {
        Self { places: places.to_vec(), new, until: Instant::now() + SETTLES }
    }
}

impl Steering {
    /// Attaches the filters to the devices. Nothing is a stack's yet.
    pub(crate) fn attach(devices: &[Device]) -> Result<Self, Error> {
        // The stack asks the kernel for its neighbours.
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
        let (members, kept, pinned) = (HashMap::new(), HashMap::new(), HashMap::new());
        let settling = Vec::new();
        let steering = Self { owned, addresses, several, kernel, members, kept, pinned, settling };
        let from_outside = if is_set("all", "accept_local") { &[] } else { devices };
        for device in from_outside.iter().filter(|device| !is_set(&device.name, "accept_local")) {
            for address in &device.addresses {
                steering.owned.host_has(address.ip, steering.whence(address.ip))?;
            }
        }
        Ok(steering)
    }

    /// Whether what keeps the kernel from a stack's packets is still on this device.
    pub(crate) fn is_attached(&self, device: i32) -> bool {
        self.owned.is_attached(device)
    }

    /// The filters, for what is no matter of ports and connections.
    pub(crate) fn owned(&self) -> &Owned {
        &self.owned
    }

    /// What loads the filters of engines' packet sockets.
    pub(crate) fn programs(&self) -> Programs {
        self.owned.programs()
    }

    /// As long as this thread lives, or has this ([`Owned::answer_for`]).
    pub(crate) fn answer_for(&self) -> io::Result<Answering> {
        self.owned.answer_for()
    }

    /// What hands over what comes by a device's queues.
    pub(crate) fn by_queue(&self, queues: Queues) -> Result<RedirectByQueue, owned::Error> {
        self.owned.redirect_by_queue(queues)
    }

    /// Addresses of the devices, each with the number of its device.
    pub(crate) fn addresses(&self) -> Vec<(IpAddr, u32)> {
        self.addresses.iter().map(|(address, device)| (*address, *device)).collect()
    }

    /// Number of the device that has this address.
    pub(crate) fn device_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.get(&address).copied()
    }

    /// Whence that has to come which comes to an address: by another device than its own it is the kernel's.
    fn whence(&self, address: IpAddr) -> Whence {
        let device = self.device_of(address).filter(|_| !self.several.contains(&address));
        device.map_or(Whence::Outside, Whence::Device)
    }

    /// The places that an address and a port mean; of an unspecified address, on all of the devices.
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

    /// The kernel's numbers of the sockets that listen at a port.
    pub(crate) fn listening_at(&mut self, port: u16) -> io::Result<Vec<u64>> {
        self.kernel.listening_at(port)
    }

    /// The same of all ports.
    pub(crate) fn all_listening(&mut self) -> io::Result<Vec<u64>> {
        self.kernel.all_listening()
    }

    /// An engine has these places, all of one port, from now on.
    pub(crate) fn join(
        &mut self,
        engine: Engine,
        places: &[SocketAddr],
        others: &[&Session],
    ) -> Result<(), String> {
        // What there is stays whose it is. Once more afterwards for what comes in between. Where there are members the
        // kernel has got nothing since they came but what was given to it, or comes by another device and is its own whoever
        // they are. It is not asked: it goes through all that it has, which takes as long as it takes to be asked for by
        // everybody else who waits.
        let is_new = |place: &&SocketAddr| !self.members.contains_key(place);
        let new: Vec<_> = places.iter().filter(is_new).copied().collect();
        self.keep_kernels(&new)?;
        self.pin(places, others)?;
        for place in places {
            let stands = self.owned.stand(Protocol::Tcp, *place, engine, true);
            stands.map_err(|error| error.to_string())?;
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

    /// An engine has these places no more; `all` are those whose connections there stay theirs.
    pub(crate) fn leave(
        &mut self,
        engine: Engine,
        places: &[SocketAddr],
        all: &[&Session],
    ) -> Result<(), String> {
        let lives = all.iter().any(|session| session.engine == engine);
        self.pin(places, all)?;
        for place in places {
            self.announce(place)?;
            // What is left there does no harm: the number of an engine does not come again.
            let _ = self.owned.stand(Protocol::Tcp, *place, engine, false);
            let whence = self.whence(place.ip());
            let members = self.members.entry(*place).or_default();
            members.retain(|member| *member != engine);
            // The last one ends what it has begun, unless it is dead.
            let is_over = members.is_empty() && !lives;
            let sharing = if is_over { Sharing::Alone } else { Sharing::Changed };
            let told = self.owned.share(Protocol::Tcp, *place, whence, members, sharing);
            if members.is_empty() {
                self.members.remove(place);
            }
            told.map_err(|error| error.to_string())?;
        }
        self.settling.push(Settling::begin(places, Vec::new()));
        self.pin(places, all)
    }

    /// The members of a place are about to change. From now on all that look at a SYN find what the first has found; who had
    /// begun before is done by the time they have changed.
    fn announce(&self, place: &SocketAddr) -> Result<(), String> {
        let members = self.members.get(place).map_or(&[][..], Vec::as_slice);
        if members.is_empty() {
            return Ok(());
        }
        self.share(place, members, Sharing::Changed)
    }

    /// Says whose a place is, whose members were changed before.
    fn share(&self, place: &SocketAddr, members: &[Engine], now: Sharing) -> Result<(), String> {
        let whence = self.whence(place.ip());
        let told = self.owned.share(Protocol::Tcp, *place, whence, members, now);
        told.map_err(|error| error.to_string())
    }

    /// Whether members have changed a short while ago: [`Steering::settle`] soon.
    pub(crate) fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// A SYN that had come to a member before the members changed, and was looked at after that, is in no table
    /// at either of the two looks. The filters know for a while whose it is, which is then entered for good; so is what
    /// became of a SYN that the kernel had got.
    pub(crate) fn settle(&mut self, all: &[&Session]) {
        let now = Instant::now();
        let (over, others): (Vec<Settling>, _) =
            std::mem::take(&mut self.settling).into_iter().partition(|one| one.until <= now);
        self.settling = others;
        for one in over {
            let settled = self.pin(&one.places, all);
            let settled = settled.and_then(|()| self.keep_kernels(&one.new));
            if settled.and_then(|()| self.settled(&one.places)).is_err() {
                // What cannot be entered now can be the next time.
                self.settling.push(one);
            }
        }
    }

    /// The members of these places are the same for a while, unless they have changed anew.
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

    /// A connection that an engine opens is its from now on.
    pub(crate) fn open(&mut self, engine: Engine, ends: Ends) -> Result<(), String> {
        let known = has(&mut self.kernel, ends);
        if known.map_err(|error| format!("the kernel does not tell its sockets: {error}"))? {
            return Err(format!("the kernel has a connection from {} to {}", ends.0, ends.1));
        }
        if self.pinned.get(&ends).is_some_and(|other| *other != engine) {
            return Err(format!("another process has a connection from {} to {}", ends.0, ends.1));
        }
        self.kept.remove(&ends);
        self.enter(engine, ends)
    }

    /// Whether a connection is entered as another engine's, or the kernel's.
    pub(crate) fn is_anothers(&self, engine: Engine, ends: &Ends) -> bool {
        self.kept.contains_key(ends) || self.is_another_stacks(engine, ends)
    }

    /// Whether a connection is entered as another engine's.
    pub(crate) fn is_another_stacks(&self, engine: Engine, ends: &Ends) -> bool {
        self.pinned.get(ends).is_some_and(|other| *other != engine)
    }

    /// Nothing is said of this connection any more.
    pub(crate) fn forget(&mut self, ends: Ends) -> Result<(), String> {
        // Not before: what cannot be taken out is found the next time.
        self.owned.disown(ours(ends)).map_err(|error| error.to_string())?;
        self.kept.remove(&ends);
        self.pinned.remove(&ends);
        Ok(())
    }

    /// Nothing is said of what an engine had any more.
    pub(crate) fn forget_all_of(&mut self, engine: Engine) -> Result<(), String> {
        let all = self.pinned.iter().filter(|(_, other)| **other == engine);
        let all: Vec<Ends> = all.map(|(ends, _)| *ends).collect();
        all.into_iter().try_for_each(|ends| self.forget(ends))
    }

    /// This connection is the kernel's from now on: an engine is dead that had it.
    pub(crate) fn give_back(&mut self, ends: Ends) -> Result<(), String> {
        self.pinned.remove(&ends);
        self.owned.keep(Protocol::Tcp, ends.0, ends.1).map_err(|error| error.to_string())?;
        self.kept.insert(ends, Instant::now());
        Ok(())
    }

    /// Ports at which somebody has a socket of the kernel's that listens; none, if the kernel does not tell.
    pub(crate) fn listening(&mut self) -> Vec<u16> {
        self.kernel.listening().unwrap_or_default()
    }

    /// Whether entries have to be looked at again.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.kept.is_empty() || !self.pinned.is_empty()
    }

    /// Takes out entries of connections that are over.
    pub(crate) fn tidy(&mut self, sessions: &[&Session]) -> io::Result<()> {
        let mut over = Vec::new();
        for (ends, since) in &self.kept {
            // One by one: to list them the kernel goes through all that it has, for each port anew.
            if since.elapsed() >= STAYS && !lives(&mut self.kernel, *ends)? {
                over.push(*ends);
            }
        }
        for session in sessions.iter().filter(|session| self.has_pinned(session.engine)) {
            let listed: HashSet<Ends> = session.connections().into_iter().collect();
            let opened: HashSet<&Ends> = session.opened().collect();
            over.extend(self.pinned.iter().filter_map(|(ends, engine)| {
                let is_over = !listed.contains(ends) && !opened.contains(ends);
                (*engine == session.engine && is_over).then_some(*ends)
            }));
        }
        for ends in over {
            self.forget(ends).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn has_pinned(&self, engine: Engine) -> bool {
        self.pinned.values().any(|other| *other == engine)
    }

    fn enter(&mut self, engine: Engine, ends: Ends) -> Result<(), String> {
        self.owned.own_as(engine, ours(ends)).map_err(|error| error.to_string())?;
        self.pinned.insert(ends, engine);
        Ok(())
    }

    /// The kernel's connections at these places, all of one port, stay the kernel's. Those in TIME-WAIT do not: who comes
    /// again from there begins a new one. Where a busy server was on kernel sockets a minute ago that is each of its
    /// clients' ports, and all of them would be the kernel's for as long as they are busy.
    fn keep_kernels(&mut self, places: &[SocketAddr]) -> Result<(), String> {
        let Some(port) = places.first().map(SocketAddr::port) else { return Ok(()) };
        let found = self.kernel.at_port(port);
        let found =
            found.map_err(|error| format!("the kernel does not tell its sockets: {error}"))?;
        for (local, remote) in found {
            let ends = (plain(local), plain(remote));
            if places.contains(&ends.0) && !self.pinned.contains_key(&ends) {
                self.give_back(ends)?;
            }
        }
        Ok(())
    }

    /// The connections that these engines have at these places stay theirs.
    fn pin(&mut self, places: &[SocketAddr], engines: &[&Session]) -> Result<(), String> {
        for session in engines {
            for ends in session.connections() {
                let is_known = self.kept.contains_key(&ends) || self.pinned.contains_key(&ends);
                if places.contains(&ends.0) && !is_known {
                    self.enter(session.engine, ends)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether the kernel is told so for this device, or for all: that what is from the host's own addresses may come by it, for one.
fn is_set(device: &str, name: &str) -> bool {
    let path = format!("/proc/sys/net/ipv4/conf/{device}/{name}");
    fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
}

/// Whether the kernel has a connection with these ends, one in TIME-WAIT included.
fn has(kernel: &mut SockDiag, ends: Ends) -> io::Result<bool> {
    let known = kernel.ends(&Name::of(ends.0, ends.1))?;
    // It may be a listener of that port.
    Ok(known.is_some_and(|(_, remote)| plain(remote) == ends.1))
}

/// Whether the kernel has one that is not in TIME-WAIT: what comes for that is the end of it once more, or another's
/// beginning.
fn lives(kernel: &mut SockDiag, ends: Ends) -> io::Result<bool> {
    let known = kernel.living(&Name::of(ends.0, ends.1))?;
    Ok(known.is_some_and(|(_, remote)| plain(remote) == ends.1))
}

fn ours((local, remote): Ends) -> Ours {
    Ours::Connection(Protocol::Tcp, local, remote)
}

/// An end with nothing but address and port, and addresses of IPv4 as such.
pub(crate) fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
