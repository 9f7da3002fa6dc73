//! Whose packets are whose: the filters of `uncork-bpf`, and what has been said to them.
//!
//! A port has members, the stacks that listen there; whose a new connection is follows from how many they are.
//! So before the members of a port change, each member's connections there are entered as its own; when they
//! are over the entries go ([`Steering::tidy`]). The same table says of the kernel's connections that they are
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
use crate::session::{Ends, Session};

/// So many of the kernel's connections are asked for in a round, and so many are looked after that dead engines have left.
const ASKED_IN_A_ROUND: usize = 1024;
const LEFT_TO_THE_KERNEL: usize = 1 << 20;

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
    /// Connections that are entered as an engine's.
    pinned: Pins,
    /// Whose tables are looked at for what is over.
    tidied: Tidied,
    /// How far tables are read that are read in parts, of the living and of the dead.
    read: HashMap<Engine, usize>,
    bequeathed: HashMap<Engine, usize>,
    /// Who has had a place, and has left it to others of his user's.
    left: HashMap<SocketAddr, HashMap<Engine, Option<u32>>>,
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
        let steering = Self {
            owned,
            addresses,
            several,
            kernel,
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

    /// Where the device is by now that has what keeps the kernel from a stack's packets.
    pub(crate) fn presence(&self, device: i32) -> Presence {
        self.owned.presence(device)
    }

    /// A device is gone with all that came by it: who had a place there has it no more.
    pub(crate) fn lose_device(&mut self, device: i32, all: &[&Session]) {
        self.owned.detach(device);
        let is_of_it = |place: &&SocketAddr| {
            self.device_of(place.ip()) == Some(device.cast_unsigned())
                && !self.several.contains(&place.ip())
        };
        let places: Vec<_> = self.members.keys().filter(is_of_it).copied().collect();
        for place in places {
            for engine in self.members.get(&place).cloned().unwrap_or_default() {
                // What fails here, the kernel has no memory for, say: the rest is done all the same.
                let _ = self.leave(engine, &[place], all);
            }
        }
    }

    /// It is there again.
    pub(crate) fn find_device(&mut self, device: i32) -> Result<(), owned::Error> {
        self.owned.attach(device)
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

    /// An engine has these places no more; `all` are those whose connections there stay theirs.
    pub(crate) fn leave(
        &mut self,
        engine: Engine,
        places: &[SocketAddr],
        all: &[&Session],
    ) -> Result<(), String> {
        let leaver = all.iter().find(|session| session.engine == engine);
        let (lives, user) = (leaver.is_some(), leaver.and_then(|session| session.user));
        self.pin(places, all)?;
        for place in places {
            self.announce(place)?;
            // What is left there does no harm: the number of an engine does not come again.
            let _ = if lives {
                self.owned.leave_to_user(Protocol::Tcp, *place, engine)
            } else {
                self.owned.stand(Protocol::Tcp, *place, engine, false)
            };
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
            if lives {
                self.left.entry(*place).or_default().insert(engine, user);
            }
            self.keep_left(place, all);
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
    pub(crate) fn settle(&mut self, all: &[&Session], slots: &mut usize) {
        let now = Instant::now();
        let (over, others): (Vec<Settling>, _) =
            std::mem::take(&mut self.settling).into_iter().partition(|one| one.until <= now);
        self.settling = others;
        for one in over {
            let port = one.places.first().map_or(0, SocketAddr::port);
            if *slots == 0 || !self.prepare(port, all, slots) {
                // It is settled when all is entered.
                self.settling.push(one);
                continue;
            }
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

    /// A connection that an engine, of this user's, opens is its from now on.
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
        let ours = Ours::Connection(Protocol::Tcp, local, remote);
        self.owned.own_as(engine, ours).map_err(|error| error.to_string())?;
        self.pinned.insert(ends, Pin { engine, user, has_come: false, listed: 0, unlisted: None });
        Ok(())
    }

    /// Nothing is said of this connection any more.
    pub(crate) fn forget(&mut self, ends: Ends) -> Result<(), String> {
        // Not before: what cannot be taken out is found the next time.
        self.owned.disown(ours(ends)).map_err(|error| error.to_string())?;
        self.kept.remove(&ends);
        self.pinned.remove(&ends);
        Ok(())
    }

    /// The same of several, which have been entered.
    fn forget_all(&mut self, all: &[Ends]) {
        // Not before: what cannot be taken out is found the next time.
        if self.owned.disown_all(all).is_err() {
            return;
        }
        self.pinned.remove_all(all);
        all.iter().for_each(|ends| {
            self.kept.remove(ends);
        });
    }

    /// Nothing is said of what an engine had any more.
    pub(crate) fn forget_all_of(&mut self, engine: Engine) {
        let all = self.pinned.all().filter(|(_, pin)| pin.engine == engine);
        let all: Vec<Ends> = all.map(|(ends, _)| ends).collect();
        self.forget_all(&all);
        self.forget_left(engine);
        self.read.remove(&engine);
    }

    /// This connection is the kernel's from now on: an engine has it no more.
    pub(crate) fn give_back(&mut self, ends: Ends) -> Result<(), String> {
        self.give_all_back(&[ends])
    }

    /// An engine is dead that had these: they are the kernel's. Of very many the first, as the kernel is asked for each whether
    /// it is over; what the others' peers say comes to whom their port is, who does not know them, either.
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
        let (mut over, now) = (Vec::new(), Instant::now());
        let due = self.kept.iter_mut().filter(|(_, since)| now - **since >= STAYS);
        for (ends, since) in due.take(ASKED_IN_A_ROUND) {
            // One by one: to list them the kernel goes through all that it has, for each port anew.
            if lives(&mut self.kernel, *ends)? {
                // The others come first.
                *since = now;
            } else {
                over.push(*ends);
            }
        }
        self.forget_all(&over);
        self.tidy_pinned(sessions);
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
        let found = found.into_iter().map(|(local, remote)| (plain(local), plain(remote)));
        let is_kernels = |ends: &Ends| places.contains(&ends.0) && self.pinned.get(ends).is_none();
        let found: Vec<Ends> = found.filter(is_kernels).collect();
        self.give_all_back(&found)
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
