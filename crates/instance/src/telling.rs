//! Tells guests what has come on their connections: octets, states, room.

use uncork_attach::record::number_of;
use uncork_attach::{Damaged, MOST_BYTES, News, WINDOW_BYTES};
use uncork_stack::{ConnectionError, Ready, RecvError, SocketId, State};

use crate::floor::Floor;

/// Octets of one connection that are told before others have their turn.
const BYTES_A_TURN: usize = 128 << 10;
/// How much room is worth telling of while the guest has some.
const WORTH_BYTES: u64 = 16 << 10;

/// How far a guest has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    All,
    /// There is more to tell, and room for it.
    More,
    /// There is no room in the ring.
    Full,
}

impl Floor {
    /// Tells all guests what there is; returns whether anything was told.
    pub(crate) fn tell_all(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.guests.len() {
            match self.tell_guest(at) {
                Ok(told) => any |= told,
                Err(damaged) => self.expel(at, damaged),
            }
            if let Some(guest) = self.guest(at) {
                guest.end.show();
            }
        }
        any
    }

    fn tell_guest(&mut self, at: usize) -> Result<bool, Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(false) };
        guest.catch_up()?;
        guest.end.news.room()?;
        if guest.is_behind() {
            return Ok(false);
        }
        let mut any = false;
        // Connections that join the queue meanwhile have the next turn.
        for _ in 0..guest.queue.len() {
            let Some(guest) = self.guest(at) else { break };
            let Some(number) = guest.queue.pop_front() else { break };
            if let Some(seat) = guest.seat(number) {
                seat.queued = false;
            }
            any = true;
            match self.tell_connection(at, number) {
                Told::All => {}
                Told::More => self.note_again(at, number),
                Told::Full => {
                    self.note_again(at, number);
                    if let Some(guest) = self.guest(at) {
                        guest.starves = true;
                    }
                    break;
                }
            }
        }
        Ok(any)
    }

    fn note_again(&mut self, at: usize, number: u32) {
        if let Some(guest) = self.guest(at) {
            guest.note(number);
        }
    }

    fn tell_connection(&mut self, at: usize, number: u32) -> Told {
        let Some(guest) = self.guest(at) else { return Told::All };
        if guest.gives_back(number) {
            return Told::All;
        }
        let Some(seat) = guest.seat(number) else { return Told::All };
        let Some((link, id)) = seat.at.filter(|_| !seat.closed) else { return Told::All };
        let told = self.tell_octets(at, number, (link, id));
        if told == Told::All {
            // A guest that hears that its connection is open writes at once.
            if let Some(allowed) = self.allow_more(at, number, (link, id))
                && let Some(guest) = self.guest(at)
            {
                guest.tell(News::Room.of_number(number), &allowed.to_ne_bytes());
            }
            self.tell_state(at, number, (link, id));
        }
        told
    }

    fn tell_octets(&mut self, at: usize, number: u32, (link, id): (usize, SocketId)) -> Told {
        let mut told = 0;
        loop {
            let Some(guest) = self.guests.get_mut(at).and_then(Option::as_mut) else {
                return Told::All;
            };
            // Damage is found in the next turn.
            let Ok(room) = guest.room() else { return Told::Full };
            let Some(seat) = guest.seat(number) else { return Told::All };
            let window = WINDOW_BYTES.saturating_sub(seat.unread_bytes) as usize;
            if seat.told_end || window == 0 {
                return Told::All;
            }
            if room == 0 {
                return Told::Full;
            }
            if told >= BYTES_A_TURN {
                return Told::More;
            }
            let piece = &mut self.scratch[..room.min(window).min(MOST_BYTES)];
            let returned = seat.returned.len().min(piece.len());
            let got = if returned > 0 {
                for (octet, back) in piece.iter_mut().zip(seat.returned.drain(..returned)) {
                    *octet = back;
                }
                Ok(returned)
            } else {
                let link = &mut self.links[link];
                let now = link.now();
                link.stack().recv(now, id, piece)
            };
            match got {
                // The guest has shut down reading, which the stack calls an end: more may come all the same.
                Ok(0) if !self.links[link].has_peer_ended(id) => return Told::All,
                Ok(0) => {
                    seat.told_end = true;
                    guest.tell(News::End.of_number(number), &[]);
                    return Told::All;
                }
                Ok(bytes) => {
                    told += bytes;
                    seat.unread_bytes += u32::try_from(bytes).unwrap_or(u32::MAX);
                    if seat.listener.is_some() {
                        seat.not_accepted.extend(&piece[..bytes]);
                    }
                    // There is room for it, as was just seen.
                    let _ = guest.end.news.write(News::Data.of_number(number), &piece[..bytes]);
                }
                // The error comes after all that could be read.
                Err(RecvError::Failed(error)) => {
                    self.tell_failure(at, number, error, false);
                    return Told::All;
                }
                Err(RecvError::WouldBlock | RecvError::NoSocket) => return Told::All,
            }
        }
    }

    /// Reports that a connection has failed. `more`: there is something to be read that was not told yet.
    pub(crate) fn tell_failure(
        &mut self,
        at: usize,
        number: u32,
        error: ConnectionError,
        more: bool,
    ) {
        if let Some(guest) = self.guest(at) {
            guest.tell_of(News::Failed.of_number(number).and(u32::from(more)), &error);
            if let Some(seat) = guest.seat(number) {
                seat.told_state = State::Closed;
                seat.told_end |= !more;
                seat.told_failure = Some(error);
            }
        }
    }

    fn tell_state(&mut self, at: usize, number: u32, (link, id): (usize, SocketId)) {
        let state = self.links[link].stack().state(id).unwrap_or(State::Closed);
        // A program that writes, or polls, hears of an error at once; one that reads, after everything that there is to be read.
        if state == State::Closed
            && let Some(error) = self.links[link].stack().take_error(id)
        {
            let told_end =
                self.guest(at).and_then(|guest| guest.seat(number)).map(|seat| seat.told_end);
            return self.tell_failure(at, number, error, told_end == Some(false));
        }
        let Some(guest) = self.guest(at) else { return };
        let Some(seat) = guest.seat(number) else { return };
        // A connection that came before its handshake was over is open to the guest that has accepted it (TCP Fast Open).
        let is_early = state == State::SynReceived && seat.told_state == State::Established;
        if seat.told_state != state && !is_early {
            seat.told_state = state;
            guest.tell(News::State.of_number(number).and(number_of(state)), &[]);
        }
    }

    /// Raises how many octets the guest may send in total, if it has little room and can be given much. Returns that, to be told.
    pub(crate) fn allow_more(
        &mut self,
        at: usize,
        number: u32,
        (link, id): (usize, SocketId),
    ) -> Option<u64> {
        let (link, now) = self.link(link);
        let is_open =
            link.stack().state(id).is_some_and(|state| state.may_send() && state.is_synchronised());
        // If the stack says here that there is no room, it tells later when there is.
        let has_room = link.stack().readiness(now, id).has(Ready::WRITABLE);
        if !is_open || !has_room {
            return None;
        }
        let free = u64::from(link.stack().sendable_bytes(now, id));
        let seat = self.guest(at)?.seat(number)?;
        let allowed = seat.given + free;
        let left = seat.allowed - seat.given;
        let worth = allowed.saturating_sub(seat.allowed) >= WORTH_BYTES.max(free / 4);
        if allowed <= seat.allowed || !(worth || left == 0) {
            return None;
        }
        seat.allowed = allowed;
        Some(allowed)
    }
}
