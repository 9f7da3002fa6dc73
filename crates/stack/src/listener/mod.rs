//! Listeners: their addresses and ports, SYN queues and accept queues.

pub(crate) mod cookie;
pub(crate) mod fast_open;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::connection::SocketOption;
use crate::handle::{ListenerId, SocketId};

/// Why a listener could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Another listener has this address and port.
    #[error("another listener has this address and port")]
    AddressInUse,
    /// The address is not one of the stack's.
    #[error("the address is not one of this stack")]
    NotOurs,
}

/// The addresses at which a listener accepts connections.
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
    /// Returns the place for an address to listen at, without IPV6_V6ONLY.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            address if !address.is_unspecified() => Self::One(address),
            IpAddr::V4(_) => Self::AllV4,
            IpAddr::V6(_) => Self::All,
        }
    }

    /// Ranks how specific the place is: the more specific listener gets the segment.
    fn nearness(self) -> u8 {
        match self {
            Self::One(_) => 2,
            Self::AllV4 | Self::AllV6 => 1,
            Self::All => 0,
        }
    }

    /// Returns whether two listeners would want the same segments, and neither is more specific.
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

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    at: Place,
    port: u16,
    /// Other listeners that share as well may have the same place (SO_REUSEPORT).
    shares: bool,
    /// Set once it is leaving: it gets new connections only while no other listener is there. The number orders leavers.
    leaves: Option<u64>,
    /// Bound of the accept queue, and of the SYN queue.
    backlog: u32,
    /// Handshakes under way (the SYN queue).
    pub(crate) handshakes: u32,
    /// Connections that wait to be accepted.
    accept: VecDeque<SocketId>,
    /// Connections that are open before their handshake is complete.
    pub(crate) fast_open: fast_open::Pending,
    /// Options that accepted connections begin with.
    pub(crate) options: Vec<SocketOption>,
}

/// Length up to which the accept queue takes connections that were proven by a cookie, however short the backlog is.
const PROVEN: usize = 512;

/// What a listener can do with a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room in the SYN queue.
    Free,
    /// The SYN queue is full: answer with a cookie.
    Cookie,
    /// The accept queue is full: drop the SYN.
    None,
}

impl Listener {
    pub(crate) fn room(&self) -> Room {
        // Linux lets one more than the backlog into each of the two queues (sk_acceptq_is_full,
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

    /// Returns whether the accept queue is full even for a peer that has returned a cookie, and so has proven its address. Its
    /// SYN came in a burst, when there was room: where many frames are taken in at once, as here, or round trips are long, all
    /// handshakes of a short backlog are under way then, and have filled the queue when its ACK comes. Linux drops that: a peer
    /// that waits to be greeted waits in vain, and what follows another's first segment is reset, as it carries no cookie.
    pub(crate) fn is_full_for_proven(&self) -> bool {
        self.accept.len() > (self.backlog as usize).max(PROVEN)
    }

    /// Adds a connection to the accept queue.
    pub(crate) fn queue(&mut self, socket: SocketId) {
        self.accept.push_back(socket);
    }

    pub(crate) fn accept(&mut self) -> Option<SocketId> {
        self.accept.pop_front()
    }

    /// Removes a connection from the accept queue.
    pub(crate) fn take_back(&mut self, socket: SocketId) {
        self.accept.retain(|other| *other != socket);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.accept.len()
    }
}

/// Parameters of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Bound of the accept queue, and of the SYN queue.
    pub backlog: u32,
    /// `[::]` is for IPv6 only (IPV6_V6ONLY), so that another listener may have 0.0.0.0.
    pub v6_only: bool,
    /// Other listeners that share as well may have the same place (SO_REUSEPORT): each gets its share of the
    /// connections, by a hash of both ends.
    pub shares: bool,
}

/// All listeners, by port.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    entries: Vec<Option<Listener>>,
    generation: u32,
    ports: BTreeMap<u16, Vec<u32>>,
    /// Number of listeners that have begun to leave.
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

    /// Returns the listener for an address: the most specific one; among several such, always the same for a `hash`.
    pub(crate) fn find(&mut self, local: SocketAddr, hash: u64) -> Option<&mut Listener> {
        let places = self.ports.get(&local.port())?;
        let nearest = || {
            let all = places.iter().filter_map(|&place| {
                let one = self.entries[place as usize].as_ref()?;
                // One that is leaving gets connections only while no other is there; of several the last, which stays longest.
                let order = (one.leaves.is_none(), one.at.nearness(), one.leaves);
                one.at.takes(local.ip()).then_some((place, order))
            });
            let nearest = all.clone().map(|(_, nearness)| nearness).max();
            all.filter(move |&(_, nearness)| Some(nearness) == nearest).map(|(place, _)| place)
        };
        let count = nearest().count();
        let chosen = (hash >> 32).checked_rem(count as u64)?;
        let place = nearest().nth(usize::try_from(chosen).ok()?)?;
        self.entries[place as usize].as_mut()
    }

    /// Returns whether a listener is there. While one is only leaving, others may have what comes there.
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

    /// Makes a listener leave: it gets new connections only while no other listener is there.
    pub(crate) fn leave(&mut self, id: ListenerId) {
        let left = self.left;
        if let Some(listener) = self.get(id) {
            listener.leaves = Some(left);
            self.left += 1;
        }
    }

    /// Removes a listener; returns its accept queue.
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
