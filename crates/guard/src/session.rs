//! What one program has, and so what is to be undone at its end.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use uncork_bpf::owned::{Engine, Error};
pub(crate) use uncork_guardian::Ends;
use uncork_guardian::table;

use crate::groups::Filter;
use crate::work::Work;

/// The filter of an engine's packet socket on its way.
pub(crate) type Loading = Work<Result<Filter, Error>>;

/// What somebody who is served is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A program with a stack of its own, or where there are instances, one that is attached to none.
    Program,
    /// An instance, of this number.
    Instance(u32),
    /// A program that is attached to the instance that is this engine.
    Guest(Engine),
}

/// How long somebody has to do with a port that he has let go of: who had begun to connect to him may be on the way, or wait to be
/// accepted, and be left to others.
const LATELY: Duration = Duration::from_secs(10);

/// So many are remembered of one claim.
const SOCKETS: usize = 64;

/// A port that was asked for.
#[derive(Debug)]
struct Claim {
    /// Who has asked: of an instance's, one of the programs that are attached to it.
    of: Engine,
    asked: SocketAddr,
    /// What this means.
    places: Vec<SocketAddr>,
    /// The kernel's numbers of the sockets that have proven it, and of those of other claims to the same that were let go of: nobody
    /// says which socket he has closed.
    sockets: Vec<u64>,
}

/// What keeps a port from others.
#[derive(Debug)]
struct Reserved {
    /// Who has asked: of an instance's, one of the programs that are attached to it.
    of: Engine,
    _socket: OwnedFd,
}

/// A program that is served, or an instance.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, by which packets are its.
    pub(crate) engine: Engine,
    /// The table of its connections, which it writes.
    pub(crate) table: OwnedFd,
    pub(crate) role: Role,
    /// Whose the process is.
    pub(crate) user: Option<u32>,
    /// What was asked for, of an instance by its programs.
    ports: Vec<Claim>,
    /// Places that it has let go of, and when, a short while ago.
    left: HashMap<SocketAddr, Instant>,
    /// Those that it opened, or of a guest those that its instance has for it; of an instance all those.
    connections: HashSet<Ends>,
    /// What keeps the kernel from giving away the ports of those that it may open without asking, or has.
    reserved: HashMap<Ends, Reserved>,
    /// Of a guest: those that its instance has given it, to make them the kernel's.
    given: HashSet<Ends>,
    /// Of its next packet socket, if it was begun.
    pub(crate) filter: Option<Loading>,
    /// Devices, each as often as it was opened, and how many it says that it has closed.
    devices: Vec<i32>,
    closed: Vec<i32>,
    /// Devices that it could not open, and what comes by them is the kernel's.
    refused: HashSet<i32>,
    /// Copies of the sockets that it has of them, so that it does not wait for the end of the last one.
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

    /// It is this user's.
    pub(crate) fn of_user(mut self, user: Option<u32>) -> Self {
        self.user = user;
        self
    }

    /// How often it has a device open.
    pub(crate) fn opens(&self, device: i32) -> usize {
        self.devices.iter().filter(|other| **other == device).count()
    }

    /// How often it has done so, those included that it says that it has closed.
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

    /// It could not open it.
    pub(crate) fn note_refused(&mut self, device: i32) {
        if self.opens(device) == 0 {
            self.refused.insert(device);
        }
    }

    /// The device is gone, and by its socket nothing comes any more.
    pub(crate) fn lose_device(&mut self, device: i32) {
        let lost = self.devices.extract_if(.., |other| *other == device);
        self.closed.extend(lost);
        self.refused.insert(device);
    }

    /// Whether it has gone without this one.
    pub(crate) fn is_refused(&self, device: i32) -> bool {
        self.refused.contains(&device)
    }

    /// The copy of the socket that it had there until now.
    pub(crate) fn forget_socket(&mut self, device: i32) -> Option<(i32, OwnedFd)> {
        self.sockets.remove_entry(&device)
    }

    /// All such copies, of who has ended, or has closed his, each with the number of its device.
    pub(crate) fn take_sockets(&mut self) -> impl Iterator<Item = (i32, OwnedFd)> + use<> {
        self.closed.append(&mut self.devices);
        std::mem::take(&mut self.sockets).into_iter()
    }

    /// Notes a port that somebody has asked for, and gives those of its places that are new.
    pub(crate) fn grant(
        &mut self,
        of: Engine,
        asked: SocketAddr,
        places: Vec<SocketAddr>,
        socket: u64,
    ) -> Vec<SocketAddr> {
        let held = self.held();
        self.left.retain(|place, _| !places.contains(place));
        let new = places.iter().copied().filter(|place| !held.contains(place)).collect();
        self.ports.push(Claim { of, asked, places, sockets: vec![socket] });
        new
    }

    /// Forgets a port, and gives those of its places that no other claim has. None if there is no such.
    pub(crate) fn release(&mut self, of: Engine, asked: SocketAddr) -> Option<Vec<SocketAddr>> {
        let is_it = |claim: &Claim| claim.of == of && claim.asked == asked;
        let at = self.ports.iter().position(is_it)?;
        let Claim { mut places, mut sockets, .. } = self.ports.swap_remove(at);
        if let Some(same) = self.ports.iter_mut().find(|claim| is_it(claim)) {
            same.sockets.append(&mut sockets);
            same.sockets.drain(..same.sockets.len().saturating_sub(SOCKETS));
        }
        let held = self.held();
        places.retain(|place| !held.contains(place));
        let now = Instant::now();
        self.left.retain(|_, since| now - *since < LATELY);
        self.left.extend(places.iter().map(|place| (*place, now)));
        Some(places)
    }

    pub(crate) fn add(&mut self, ends: Ends) {
        self.connections.insert(ends);
    }

    /// It may open this one, whose port somebody is kept from by a socket.
    pub(crate) fn reserve(&mut self, of: Engine, ends: Ends, socket: OwnedFd) {
        self.connections.insert(ends);
        self.reserved.insert(ends, Reserved { of, _socket: socket });
    }

    /// The port of this one is the kernel's to give away.
    pub(crate) fn free_port(&mut self, ends: &Ends) {
        self.reserved.remove(ends);
    }

    /// How many ports are kept from others for it.
    pub(crate) fn reserves(&self) -> usize {
        self.reserved.len()
    }

    /// The same of those that this one has asked for.
    pub(crate) fn reserves_of(&self, program: Engine) -> usize {
        self.reserved.values().filter(|reserved| reserved.of == program).count()
    }

    /// Whether there was such a connection.
    pub(crate) fn remove(&mut self, ends: &Ends) -> bool {
        self.connections.remove(ends)
    }

    /// Places that it has.
    pub(crate) fn held(&self) -> HashSet<SocketAddr> {
        self.ports.iter().flat_map(|claim| &claim.places).copied().collect()
    }

    /// Places that it has for a port that it has asked for by this name.
    pub(crate) fn held_for(&self, asked: SocketAddr) -> HashSet<SocketAddr> {
        let claims = self.ports.iter().filter(|claim| claim.asked == asked);
        claims.flat_map(|claim| &claim.places).copied().collect()
    }

    /// Ports that were asked for, each as often as it was.
    pub(crate) fn asked(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|claim| claim.asked)
    }

    /// Ports that mean one of these places, each with the sockets that have proven it.
    pub(crate) fn proven(&self, places: &[SocketAddr]) -> HashMap<SocketAddr, Vec<u64>> {
        let is_there = |claim: &Claim| claim.places.iter().any(|place| places.contains(place));
        self.proven_where(is_there)
    }

    /// The same of all ports.
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

    /// Those all of whose places are so.
    pub(crate) fn asked_where(&self, is: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
        let are = |claim: &&Claim| !claim.places.is_empty() && claim.places.iter().all(&is);
        self.ports.iter().filter(are).map(|claim| claim.asked).collect()
    }

    /// Whether it has opened this one.
    pub(crate) fn has_opened(&self, ends: &Ends) -> bool {
        self.connections.contains(ends)
    }

    /// Whether it is attached to the instance that is this engine.
    pub(crate) fn is_guest_of(&self, instance: Engine) -> bool {
        self.role == Role::Guest(instance)
    }

    /// Its instance has given it this one.
    pub(crate) fn give(&mut self, ends: Ends) {
        self.given.insert(ends);
    }

    /// Those that its instance has given it, and that are not the kernel's.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Ends> {
        self.given.iter()
    }

    /// This one is the kernel's now, or over. The kernel's socket has the port itself.
    pub(crate) fn gave_away(&mut self, ends: &Ends) {
        self.given.remove(ends);
        self.connections.remove(ends);
        self.reserved.remove(ends);
    }

    /// Its instance is gone, and with it all that it had there.
    pub(crate) fn detach(&mut self) {
        self.role = Role::Program;
        self.ports.clear();
        self.left.clear();
        self.connections.clear();
        self.reserved.clear();
        self.given.clear();
    }

    /// Connections that it opened.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &Ends> {
        self.connections.iter()
    }

    /// Whether it has this place.
    pub(crate) fn holds(&self, place: &SocketAddr) -> bool {
        self.ports.iter().any(|claim| claim.places.contains(place))
    }

    /// Whether it has this place, or has let go of it a short while ago.
    pub(crate) fn had(&self, place: SocketAddr) -> bool {
        let lately = |since: &Instant| since.elapsed() < LATELY;
        self.holds(&place) || self.left.get(&place).is_some_and(lately)
    }

    /// Whether its instance has given it this one.
    pub(crate) fn has_been_given(&self, ends: &Ends) -> bool {
        self.given.contains(ends)
    }

    /// What it has written into so many slots of its table, from this one on, and how many there were. It may write there what it
    /// likes ([`crate::steering::Steering::is_its`]).
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
