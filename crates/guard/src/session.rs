//! Sessions: what each program has, and so what must be undone at its end.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use uncork_bpf::owned::{Engine, Error};
pub(crate) use uncork_guardian::Ends;
use uncork_guardian::table;

use crate::groups::Filter;
use crate::work::Work;

/// The filter of an engine's packet socket, being loaded.
pub(crate) type Loading = Work<Result<Filter, Error>>;

/// The role of a peer with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A program with a stack of its own; where there are instances, one that is attached to none.
    Program,
    /// An instance, of this number.
    Instance(u32),
    /// A guest: a program that is attached to the instance with this engine.
    Guest(Engine),
}

/// How long a program still counts at a port that it has let go of: connections begun earlier may be on their way, or wait to be
/// accepted and be left to others.
const LATELY: Duration = Duration::from_secs(10);

/// How many sockets are remembered for one claim.
const SOCKETS: usize = 64;

/// A port that was asked for.
#[derive(Debug)]
struct Claim {
    /// The program that has asked: of an instance's claim, one of those attached to it.
    of: Engine,
    asked: SocketAddr,
    /// How often it was asked for, and not released since.
    times: usize,
    /// The places that this stands for.
    places: Vec<SocketAddr>,
    /// The kernel's numbers of the sockets that have proven it, and of those of released claims to the same port: a program does
    /// not say which of its sockets it has closed.
    sockets: Vec<u64>,
}

impl Claim {
    fn add_sockets(&mut self, sockets: impl IntoIterator<Item = u64>) {
        self.sockets.extend(sockets);
        self.sockets.drain(..self.sockets.len().saturating_sub(SOCKETS));
    }
}

/// A socket that keeps a port from others.
#[derive(Debug)]
struct Reserved {
    /// The program that has asked: of an instance's port, one of those attached to it.
    of: Engine,
    _socket: OwnedFd,
}

/// A program that is served, or an instance.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, by which packets are steered to it.
    pub(crate) engine: Engine,
    /// The table of its connections, which it writes.
    pub(crate) table: OwnedFd,
    pub(crate) role: Role,
    /// The user of the process.
    pub(crate) user: Option<u32>,
    /// Ports that were asked for; of an instance, by its programs.
    ports: Vec<Claim>,
    /// The places that these stand for, each with the number of claims to it.
    places: HashMap<SocketAddr, usize>,
    /// Places that it has let go of recently, and when.
    left: HashMap<SocketAddr, Instant>,
    /// Connections that it opened; for a guest, those that its instance has on its behalf; for an instance, all those.
    connections: HashSet<Ends>,
    /// Sockets that keep the kernel from giving away the ports of connections that it has, or may open without asking.
    reserved: HashMap<Ends, Reserved>,
    /// Connections that its instance has given to a guest, to make them the kernel's.
    given: HashSet<Ends>,
    /// The filter of its next packet socket, if loading has begun.
    pub(crate) filter: Option<Loading>,
    /// Devices, each as often as it is open; and each as often as it was closed.
    devices: Vec<i32>,
    closed: Vec<i32>,
    /// Devices that it could not open: what arrives by them is the kernel's.
    refused: HashSet<i32>,
    /// Copies of its sockets by device, so that it does not have to wait for the close of the last copy.
    sockets: HashMap<i32, OwnedFd>,
}

impl Session {
    pub(crate) fn new(engine: Engine, table: OwnedFd, role: Role, filter: Option<Loading>) -> Self {
        Self {
            engine,
            table,
            role,
            user: None,
            ports: Vec::new(),
            places: HashMap::new(),
            left: HashMap::new(),
            connections: HashSet::new(),
            reserved: HashMap::new(),
            given: HashSet::new(),
            filter,
            devices: Vec::new(),
            closed: Vec::new(),
            refused: HashSet::new(),
            sockets: HashMap::new(),
        }
    }

    /// Sets the user.
    pub(crate) fn of_user(mut self, user: Option<u32>) -> Self {
        self.user = user;
        self
    }

    /// Returns how often it has a device open.
    pub(crate) fn opens(&self, device: i32) -> usize {
        self.devices.iter().filter(|other| **other == device).count()
    }

    /// Returns how often it has opened a device, including those times that it has closed it since.
    pub(crate) fn has_opened_device(&self, device: i32) -> usize {
        let closed = self.closed.iter().filter(|other| **other == device).count();
        self.opens(device) + closed
    }

    /// Keeps a copy of the socket by which it has opened a device.
    pub(crate) fn note_open(&mut self, device: i32, copy: OwnedFd) {
        self.devices.push(device);
        self.refused.remove(&device);
        self.sockets.insert(device, copy);
    }

    /// Notes that it could not open a device.
    pub(crate) fn note_refused(&mut self, device: i32) {
        if self.opens(device) == 0 {
            self.refused.insert(device);
        }
    }

    /// Records that a device is gone: nothing arrives by its socket any more.
    pub(crate) fn lose_device(&mut self, device: i32) {
        let lost = self.devices.extract_if(.., |other| *other == device);
        self.closed.extend(lost);
        self.refused.insert(device);
    }

    /// Tells whether it goes without this device.
    pub(crate) fn is_refused(&self, device: i32) -> bool {
        self.refused.contains(&device)
    }

    /// Takes the copy of the socket that it had for a device until now.
    pub(crate) fn forget_socket(&mut self, device: i32) -> Option<(i32, OwnedFd)> {
        self.sockets.remove_entry(&device)
    }

    /// Takes all such copies, each with its device's number, from a program that has ended or has closed its own.
    pub(crate) fn take_sockets(&mut self) -> impl Iterator<Item = (i32, OwnedFd)> + use<> {
        self.closed.append(&mut self.devices);
        std::mem::take(&mut self.sockets).into_iter()
    }

    /// Records a port that a program has asked for, and returns those of its places that are new.
    pub(crate) fn grant(
        &mut self,
        of: Engine,
        asked: SocketAddr,
        places: Vec<SocketAddr>,
        socket: u64,
    ) -> Vec<SocketAddr> {
        self.left.retain(|place, _| !places.contains(place));
        let is_it = |claim: &&mut Claim| claim.of == of && claim.asked == asked;
        let Some(same) = self.ports.iter_mut().find(is_it) else {
            let new =
                places.iter().copied().filter(|place| !self.places.contains_key(place)).collect();
            places.iter().for_each(|place| *self.places.entry(*place).or_default() += 1);
            self.ports.push(Claim { of, asked, times: 1, places, sockets: vec![socket] });
            return new;
        };
        same.times += 1;
        same.add_sockets([socket]);
        let mut new = Vec::new();
        for place in places {
            if !same.places.contains(&place) {
                same.places.push(place);
                let claims = self.places.entry(place).or_default();
                *claims += 1;
                new.extend((*claims == 1).then_some(place));
            }
        }
        new
    }

    /// Forgets a port, and returns those of its places that no other claim has. `None` if there is no such claim.
    pub(crate) fn release(&mut self, of: Engine, asked: SocketAddr) -> Option<Vec<SocketAddr>> {
        let is_it = |claim: &Claim| claim.of == of && claim.asked == asked;
        let at = self.ports.iter().position(is_it)?;
        let claim = &mut self.ports[at];
        claim.times -= 1;
        if claim.times > 0 {
            return Some(Vec::new());
        }
        let mut places = self.ports.swap_remove(at).places;
        places.retain(|place| {
            let claims = self.places.get_mut(place).map_or(0, |claims| {
                *claims -= 1;
                *claims
            });
            if claims == 0 {
                self.places.remove(place);
            }
            claims == 0
        });
        let now = Instant::now();
        self.left.retain(|_, since| now - *since < LATELY);
        self.left.extend(places.iter().map(|place| (*place, now)));
        Some(places)
    }

    pub(crate) fn add(&mut self, ends: Ends) {
        self.connections.insert(ends);
    }

    /// Records a connection that it may open, with the socket that reserves its port.
    pub(crate) fn reserve(&mut self, of: Engine, ends: Ends, socket: OwnedFd) {
        self.connections.insert(ends);
        self.reserved.insert(ends, Reserved { of, _socket: socket });
    }

    /// Lets the kernel give away the port of this connection.
    pub(crate) fn free_port(&mut self, ends: &Ends) {
        self.reserved.remove(ends);
    }

    /// Returns how many ports are reserved for it.
    pub(crate) fn reserves(&self) -> usize {
        self.reserved.len()
    }

    /// Returns how many of those this program has asked for.
    pub(crate) fn reserves_of(&self, program: Engine) -> usize {
        self.reserved.values().filter(|reserved| reserved.of == program).count()
    }

    /// Forgets a connection; tells whether there was one.
    pub(crate) fn remove(&mut self, ends: &Ends) -> bool {
        self.connections.remove(ends)
    }

    /// Returns the places that it has.
    pub(crate) fn held(&self) -> HashSet<SocketAddr> {
        self.places.keys().copied().collect()
    }

    /// Returns the places of a port that it has asked for by this name.
    pub(crate) fn held_for(&self, asked: SocketAddr) -> HashSet<SocketAddr> {
        let claims = self.ports.iter().filter(|claim| claim.asked == asked);
        claims.flat_map(|claim| &claim.places).copied().collect()
    }

    /// Returns the ports that were asked for, each as often as it was.
    pub(crate) fn asked(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().flat_map(|claim| std::iter::repeat_n(claim.asked, claim.times))
    }

    /// Returns the ports that stand for any of these places, each with the sockets that have proven it.
    pub(crate) fn proven(&self, places: &[SocketAddr]) -> HashMap<SocketAddr, Vec<u64>> {
        let is_there = |claim: &Claim| claim.places.iter().any(|place| places.contains(place));
        self.proven_where(is_there)
    }

    /// Returns all ports, each with the sockets that have proven it.
    pub(crate) fn all_proven(&self) -> HashMap<SocketAddr, Vec<u64>> {
        self.proven_where(|_| true)
    }

    fn proven_where(&self, is: impl Fn(&Claim) -> bool) -> HashMap<SocketAddr, Vec<u64>> {
        let mut proven: HashMap<_, Vec<_>> = HashMap::new();
        for claim in self.ports.iter().filter(|claim| is(claim)) {
            proven.entry(claim.asked).or_default().extend(&claim.sockets);
        }
        proven
    }

    /// Returns the ports all of whose places satisfy this.
    pub(crate) fn asked_where(&self, is: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
        let are = |claim: &&Claim| !claim.places.is_empty() && claim.places.iter().all(&is);
        self.ports.iter().filter(are).map(|claim| claim.asked).collect()
    }

    /// Tells whether it has opened this connection.
    pub(crate) fn has_opened(&self, ends: &Ends) -> bool {
        self.connections.contains(ends)
    }

    /// Tells whether it is attached to the instance with this engine.
    pub(crate) fn is_guest_of(&self, instance: Engine) -> bool {
        self.role == Role::Guest(instance)
    }

    /// Notes that its instance has given it this connection.
    pub(crate) fn give(&mut self, ends: Ends) {
        self.given.insert(ends);
    }

    /// Returns the connections that its instance has given it, and that are not the kernel's yet.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Ends> {
        self.given.iter()
    }

    /// Forgets a connection that is the kernel's now, or over. The kernel's socket has the port itself.
    pub(crate) fn gave_away(&mut self, ends: &Ends) {
        self.given.remove(ends);
        self.connections.remove(ends);
        self.reserved.remove(ends);
    }

    /// Forgets everything that it had on its instance, which is gone.
    pub(crate) fn detach(&mut self) {
        self.role = Role::Program;
        self.ports.clear();
        self.places.clear();
        self.left.clear();
        self.connections.clear();
        self.reserved.clear();
        self.given.clear();
    }

    /// Returns the connections that it opened.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &Ends> {
        self.connections.iter()
    }

    /// Tells whether it has this place.
    pub(crate) fn holds(&self, place: &SocketAddr) -> bool {
        self.places.contains_key(place)
    }

    /// Tells whether it has this place, or had it until recently.
    pub(crate) fn had(&self, place: SocketAddr) -> bool {
        let lately = |since: &Instant| since.elapsed() < LATELY;
        self.holds(&place) || self.left.get(&place).is_some_and(lately)
    }

    /// Tells whether its instance has given it this connection.
    pub(crate) fn has_been_given(&self, ends: &Ends) -> bool {
        self.given.contains(ends)
    }

    /// Returns what it has written into this many slots of its table, from this one on, and how many slots there were. It can
    /// write anything there ([`crate::steering::Steering::is_its`]).
    pub(crate) fn table(&self, first: usize, most: usize) -> (Vec<Ends>, usize) {
        table::read_from(self.table.as_fd(), first, most).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_let_go_of_with_the_last_claim_to_it() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = table::create().unwrap();
        let memory = memory.as_fd().try_clone_to_owned().unwrap();
        let mut session = Session::new(Engine::ONLY, memory, Role::Program, None);
        let own = Engine::ONLY;
        let (any, one, other) = (end("0.0.0.0:80"), end("10.0.0.1:80"), end("10.0.1.1:80"));
        assert_eq!(session.grant(own, any, vec![one, other], 1), [one, other]);
        assert_eq!(session.grant(own, one, vec![one], 1), []);
        assert_eq!(session.grant(own, any, vec![one, other], 1), []);
        assert_eq!(session.release(own, any), Some(vec![]));
        assert_eq!(session.release(own, any), Some(vec![other]));
        assert_eq!(session.release(own, any), None);
        assert_eq!(session.release(own, one), Some(vec![one]));
        assert!(session.held().is_empty());
    }

    #[test]
    fn who_lets_go_of_a_port_does_not_say_which_socket_is_closed() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = table::create().unwrap();
        let mut session = Session::new(Engine::ONLY, memory, Role::Program, None);
        let (own, any, one) = (Engine::ONLY, end("0.0.0.0:80"), end("10.0.0.1:80"));
        for socket in [7, 8] {
            session.grant(own, any, vec![one], socket);
        }
        let proven = |session: &Session| {
            let mut sockets = session.proven(&[one]).remove(&any).unwrap_or_default();
            sockets.sort_unstable();
            sockets
        };
        assert_eq!(proven(&session), [7, 8]);
        assert_eq!(session.release(own, any), Some(vec![]));
        assert_eq!(proven(&session), [7, 8]);
        for socket in 0..100 {
            session.grant(own, any, vec![one], socket);
            session.release(own, any);
        }
        assert!(proven(&session).len() <= SOCKETS + 1);
        assert!(session.proven(&[any]).is_empty());
        assert_eq!(session.release(own, any), Some(vec![one]));
        assert!(proven(&session).is_empty());
    }

    #[test]
    fn each_program_of_an_instance_lets_go_of_what_it_has_asked_for_itself() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = table::create().unwrap();
        let mut session = Session::new(Engine::ONLY, memory, Role::Instance(0), None);
        let (first, second) = (Engine::ONLY, Engine(2.try_into().unwrap()));
        let (any, four, six) = (end("[::]:80"), end("10.0.0.1:80"), end("[fd00::1]:80"));
        // The second's socket is of IPv6 alone.
        assert_eq!(session.grant(first, any, vec![four, six], 1), [four, six]);
        assert_eq!(session.grant(second, any, vec![six], 1), []);
        assert_eq!(session.release(first, any), Some(vec![four]));
        assert_eq!(session.release(first, any), None);
        assert_eq!(session.release(second, any), Some(vec![six]));
    }

    #[test]
    fn a_guest_has_nothing_but_what_it_was_given() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = table::create().unwrap();
        let mut session = Session::new(Engine::ONLY, memory, Role::Guest(Engine::ONLY), None);
        let ends = (end("10.0.0.1:80"), end("10.0.0.2:4711"));
        session.grant(Engine::ONLY, ends.0, vec![ends.0], 1);
        session.add(ends);
        assert!(!session.has_been_given(&ends));
        session.give(ends);
        assert!(session.has_been_given(&ends));
        session.gave_away(&ends);
        assert!(!session.has_been_given(&ends) && !session.has_opened(&ends));
    }

    #[test]
    fn who_has_let_go_of_a_port_has_to_do_with_it_for_a_while() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let memory = table::create().unwrap();
        let mut session = Session::new(Engine::ONLY, memory, Role::Program, None);
        let (own, place) = (Engine::ONLY, end("10.0.0.1:80"));
        assert!(!session.had(place));
        session.grant(own, place, vec![place], 1);
        assert!(session.had(place) && session.holds(&place));
        session.release(own, place);
        assert!(session.had(place) && !session.holds(&place));
        *session.left.get_mut(&place).unwrap() -= LATELY;
        assert!(!session.had(place));
        session.grant(own, place, vec![place], 1);
        assert!(session.had(place) && session.left.is_empty());
    }
}
