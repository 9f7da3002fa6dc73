//! Listeners: who waits for connections, where, and how many may wait for him.

pub(crate) mod cookie;
pub(crate) mod fast_open;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::connection::SocketOption;
use crate::handle::{ListenerId, SocketId};

/// Why a listener could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error("another listener has this address and port")]
    AddressInUse,
    /// The address is none of the stack's.
    #[error("the address is not one of this stack")]
    NotOurs,
}

/// At which addresses somebody listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    One(IpAddr),
    /// 0.0.0.0
    AllV4,
    /// `[::]` with IPV6_V6ONLY
    AllV6,
    /// `[::]`
    All,
}

impl Place {
    /// What an address to listen at means where nothing else is said.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            address if !address.is_unspecified() => Self::One(address),
            IpAddr::V4(_) => Self::AllV4,
            IpAddr::V6(_) => Self::All,
        }
    }

    /// How near it is to an address that it takes: nearer ones go first.
    fn nearness(self) -> u8 {
        match self {
            Self::One(_) => 2,
            Self::AllV4 | Self::AllV6 => 1,
            Self::All => 0,
        }
    }

    /// Whether two listeners at these would want the same segments, and neither is nearer to them.
    fn collides(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(other)) => one == other,
            (Self::One(_), _) | (_, Self::One(_)) => false,
            (one, other) => one == other || one == Self::All || other == Self::All,
        }
    }

    fn takes(self, address: IpAddr) -> bool {
        match self {
            Self::One(one) => one == address,
            Self::AllV4 => address.is_ipv4(),
            Self::AllV6 => address.is_ipv6(),
            Self::All => true,
        }
    }
}

/// Waits for connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    at: Place,
    port: u16,
    /// Others may listen there, too, who do not mind either (SO_REUSEPORT).
    shares: bool,
    /// Nothing new comes to it if somebody else is there: it only ends what is under way. How many have left before it.
    leaves: Option<u64>,
    /// Connections that may wait to be accepted, and handshakes that may be under way.
    backlog: u32,
    /// Handshakes under way (the SYN queue).
    pub(crate) handshakes: u32,
    /// Connections that wait to be accepted.
    accept: VecDeque<SocketId>,
    /// What may be open before its handshake is over.
    pub(crate) fast_open: fast_open::Pending,
    /// Options that its connections begin with.
    pub(crate) options: Vec<SocketOption>,
}

/// Connections that were proven by a cookie may wait to be accepted up to so many, however short the backlog is.
const PROVEN: usize = 512;

/// What can be done with a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room for a handshake.
    Free,
    /// Too many handshakes are under way: answer with a cookie.
    Cookie,
    /// Too many connections wait to be accepted: nothing can be done.
    None,
}

impl Listener {
    pub(crate) fn room(&self) -> Room {
        // Linux lets one more in than the backlog says, of both (sk_acceptq_is_full,
        // inet_csk_reqsk_queue_is_full in 6.18).
        if self.is_full() {
            Room::None
        } else if self.handshakes > self.backlog {
            Room::Cookie
        } else {
            Room::Free
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.accept.len() > self.backlog as usize
    }

    /// The same for who has brought a cookie back, and so is who he says he is. His SYN came when there was room, in the middle of a
    /// burst: where many frames are taken in at once, as here, or round trips are long, all handshakes of a short backlog are under way
    /// then, and have filled the queue when his ACK comes. Linux drops that; it is lost to a peer who waits to be greeted, and what follows
    /// his first segment is reset, as it says nothing of the cookie.
    pub(crate) fn is_full_for_proven(&self) -> bool {
        self.accept.len() > (self.backlog as usize).max(PROVEN)
    }

    /// A handshake is over.
    pub(crate) fn queue(&mut self, socket: SocketId) {
        self.accept.push_back(socket);
    }

    pub(crate) fn accept(&mut self) -> Option<SocketId> {
        self.accept.pop_front()
    }

    /// It does not wait any more.
    pub(crate) fn take_back(&mut self, socket: SocketId) {
        self.accept.retain(|other| *other != socket);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.accept.len()
    }
}

/// How one listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Connections that may wait to be accepted, and handshakes that may be under way.
    pub backlog: u32,
    /// `[::]` is IPv6 alone (IPV6_V6ONLY), so that another may listen at 0.0.0.0.
    pub v6_only: bool,
    /// Others may listen at the same place, if they do not mind either (SO_REUSEPORT): each gets its share of
    /// what comes, by a hash of both ends.
    pub shares: bool,
}

/// All listeners, by port.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    entries: Vec<Option<Listener>>,
    generation: u32,
    ports: BTreeMap<u16, Vec<u32>>,
    /// How many have left.
    left: u64,
}

impl Listeners {
    pub(crate) fn add(
        &mut self,
        at: Place,
        port: u16,
        listening: Listening,
    ) -> Result<ListenerId, ListenError> {
        let Listening { backlog, shares, .. } = listening;
        let others = self.ports.entry(port).or_default();
        let taken = others.iter().any(|&place| {
            let other = self.entries[place as usize].as_ref();
            other.is_some_and(|other| other.at.collides(at) && !(shares && other.shares))
        });
        if taken {
            return Err(ListenError::AddressInUse);
        }
        let free = self.entries.iter().position(Option::is_none);
        let place = free.unwrap_or(self.entries.len());
        self.generation = self.generation.wrapping_add(1);
        let id = ListenerId {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            generation: self.generation,
        };
        let accept = VecDeque::new();
        let options = Vec::new();
        let fast_open = fast_open::Pending::default();
        let listener = Listener {
            id,
            at,
            port,
            shares,
            leaves: None,
            backlog,
            handshakes: 0,
            accept,
            fast_open,
            options,
        };
        match self.entries.get_mut(place) {
            Some(entry) => *entry = Some(listener),
            None => self.entries.push(Some(listener)),
        }
        others.push(id.place);
        Ok(id)
    }

    /// Who listens there: for that address, or for all; of several one, who is always the same for a `hash`.
    pub(crate) fn find(&mut self, local: SocketAddr, hash: u64) -> Option<&mut Listener> {
        let places = self.ports.get(&local.port())?;
        let nearest = || {
            let all = places.iter().filter_map(|&place| {
                let one = self.entries[place as usize].as_ref()?;
                // Who leaves takes what comes only while nobody else is there; of several the last, who stays longest.
                let order = (one.leaves.is_none(), one.at.nearness(), one.leaves);
                one.at.takes(local.ip()).then_some((place, order))
            });
            let nearest = all.clone().map(|(_, nearness)| nearness).max();
            all.filter(move |&(_, nearness)| Some(nearness) == nearest).map(|(place, _)| place)
        };
        let count = nearest().count();
        // The table of connections uses the lower half.
        let chosen = (hash >> 32).checked_rem(count as u64)?;
        let place = nearest().nth(usize::try_from(chosen).ok()?)?;
        self.entries[place as usize].as_mut()
    }

    /// Whether anybody listens there. While somebody only leaves, others may have what comes there.
    pub(crate) fn is_anybody_at(&self, local: SocketAddr) -> bool {
        let places = self.ports.get(&local.port()).into_iter().flatten();
        places
            .filter_map(|&place| self.entries[place as usize].as_ref())
            .any(|one| one.leaves.is_none() && one.at.takes(local.ip()))
    }

    pub(crate) fn get(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let entry = self.entries.get_mut(id.place as usize)?.as_mut();
        entry.filter(|listener| listener.id == id)
    }

    /// Nothing new comes to a listener if somebody else is there.
    pub(crate) fn leave(&mut self, id: ListenerId) {
        let left = self.left;
        if let Some(listener) = self.get(id) {
            listener.leaves = Some(left);
            self.left += 1;
        }
    }

    /// Takes a listener away; gives those that have waited for him.
    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<VecDeque<SocketId>> {
        let port = self.get(id)?.port;
        if let Some(places) = self.ports.get_mut(&port) {
            places.retain(|&place| place != id.place);
            if places.is_empty() {
                self.ports.remove(&port);
            }
        }
        self.entries[id.place as usize].take().map(|listener| listener.accept)
    }
}
