//! All UDP sockets, by port.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::{Queue, Socket, UdpError, UdpId};
use crate::event::Ready;

/// Most buffers that are kept for reuse.
const MOST_SPARE: usize = 256;

/// The sockets, those of them with something to send, and buffers for reuse.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    entries: Vec<Option<Socket>>,
    generation: u32,
    ports: BTreeMap<u16, Vec<u32>>,
    /// Places of sockets with something to send, each once.
    pub(crate) ready: VecDeque<u32>,
    spare: Vec<Vec<u8>>,
}

impl Sockets {
    /// Adds a socket. Two may share a port if their addresses differ.
    pub(crate) fn add(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        if self.is_taken(local) {
            return Err(UdpError::AddressInUse);
        }
        let free = self.entries.iter().position(Option::is_none);
        let place = free.unwrap_or(self.entries.len());
        self.generation = self.generation.wrapping_add(1);
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let id = UdpId { place, generation: self.generation };
        let socket = Socket {
            id,
            local,
            bound: local.ip(),
            remote: None,
            received: Queue::default(),
            sending: Queue::default(),
            refused: false,
            wants_room: false,
            in_ready: false,
            in_news: false,
            news: Ready::default(),
        };
        match self.entries.get_mut(place as usize) {
            Some(entry) => *entry = Some(socket),
            None => self.entries.push(Some(socket)),
        }
        self.ports.entry(local.port()).or_default().push(place);
        Ok(id)
    }

    pub(crate) fn is_taken(&self, local: SocketAddr) -> bool {
        let overlaps = |other: IpAddr| {
            other == local.ip() || other.is_unspecified() || local.ip().is_unspecified()
        };
        let places = self.ports.get(&local.port()).map_or(&[][..], Vec::as_slice);
        places.iter().any(|&place| self.at(place).is_some_and(|socket| overlaps(socket.bound)))
    }

    fn at(&self, place: u32) -> Option<&Socket> {
        self.entries.get(place as usize)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, place: u32) -> Option<&mut Socket> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn get(&mut self, id: UdpId) -> Result<&mut Socket, UdpError> {
        let socket = self.at_mut(id.place).filter(|socket| socket.id == id);
        socket.ok_or(UdpError::NoSocket)
    }

    /// Returns the socket that gets a datagram: the most specific one.
    pub(crate) fn find(&mut self, ours: SocketAddr, peer: SocketAddr) -> Option<&mut Socket> {
        let places = self.ports.get(&ours.port())?;
        let fit = |place: u32| self.at(place).and_then(|socket| socket.fit(ours.ip(), peer));
        let fitting = places.iter().filter_map(|&place| Some((fit(place)?, place)));
        let (_, place) = fitting.max_by_key(|(fit, _)| *fit)?;
        self.at_mut(place)
    }

    pub(crate) fn remove(&mut self, id: UdpId) {
        let Ok(socket) = self.get(id) else { return };
        let port = socket.local.port();
        for queue in [&mut socket.received, &mut socket.sending] {
            queue.datagrams.clear();
        }
        self.entries[id.place as usize] = None;
        if let Some(places) = self.ports.get_mut(&port) {
            places.retain(|&place| place != id.place);
            if places.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Enters a socket with something to send into the ready queue.
    pub(crate) fn make_ready(&mut self, place: u32) {
        if let Some(socket) = self.at_mut(place)
            && !socket.in_ready
            && !socket.sending.datagrams.is_empty()
        {
            socket.in_ready = true;
            self.ready.push_back(place);
        }
    }

    /// Copies these octets into a buffer, a used one if there is one.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < MOST_SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
