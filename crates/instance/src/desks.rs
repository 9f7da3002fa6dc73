//! Listeners. Programs that listen at one place share one listener of the stack's: a connection goes to the one of
//! them that has the fewest waiting, and to another one if that leaves without having accepted it. When the last has left,
//! what waits, and handshakes that are under way, wait a while for others, who may be about to come: all of a server's
//! processes may be exchanged at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uncork_attach::record::{Ends, Place};
use uncork_attach::{Damaged, News};
use uncork_stack::{ListenError, ListenerId, Listening, SocketId, SocketOption, State};

use crate::floor::Floor;
use crate::guest::{Registration, Seat};
use crate::link::Owner;

/// How long a place is kept for others: a SYN-ACK is sent again after a second. So long the filters know, too, whose the
/// handshakes are that have begun (crate guard).
const KEPT: Duration = Duration::from_millis(1500);

/// Places that are kept at once: more than are left in a second and a half by servers that come and go.
const KEPT_AT_ONCE: usize = 256;

/// Listeners that one program may have.
const LISTENERS: usize = 4096;

/// A place at which programs listen.
#[derive(Debug)]
pub(crate) struct Desk {
    local: SocketAddr,
    v6_only: bool,
    /// On each device that has it.
    on: Vec<(usize, ListenerId)>,
    /// Guests, and the numbers of their listeners.
    members: Vec<(usize, u32)>,
    /// All members have left: until then it waits for others.
    kept_until: Option<Instant>,
    /// Whose the last of them was: it waits for none of another user's.
    kept_for: Option<u32>,
    /// What those had not accepted.
    waiting: Vec<Seat>,
}

impl Desk {
    /// Whether connections to this end come here.
    fn takes(&self, local: SocketAddr) -> bool {
        let ip = self.local.ip();
        let both = ip.is_ipv6() && !self.v6_only;
        let all = ip.is_unspecified() && (ip.is_ipv4() == local.is_ipv4() || both);
        self.local.port() == local.port() && (all || ip == local.ip())
    }
}

impl Floor {
    /// Where somebody listens.
    pub(crate) fn places(&self) -> impl Iterator<Item = SocketAddr> {
        self.desks.iter().filter(|desk| !desk.members.is_empty()).map(|desk| desk.local)
    }

    /// A guest listens.
    pub(crate) fn listen(&mut self, at: usize, number: u32, place: Place) -> Result<(), Damaged> {
        let may = self.guest(at).is_some_and(|guest| guest.may_listen(place.local));
        if !may {
            // The guardian has said so before the program was told.
            self.hear_words();
        }
        let Some(guest) = self.guest(at) else { return Ok(()) };
        if guest.registration(number).is_some() || guest.registrations.len() >= LISTENERS {
            return Err(Damaged("a listener that is there already, or one of too many"));
        }
        if !guest.may_listen(place.local) {
            let why = format!("{} was not granted", place.local);
            guest.tell(News::Refused.of_number(number), why.as_bytes());
            return Ok(());
        }
        let (backlog, options) = (place.backlog, Vec::new());
        let registration = Registration { number, waiting: 0, backlog, options };
        guest.registrations.push(registration);
        if let Err(error) = self.sit_down(at, number, place)
            && let Some(guest) = self.guest(at)
        {
            guest.registrations.retain(|one| one.number != number);
            guest.tell(News::Refused.of_number(number), error.to_string().as_bytes());
        }
        Ok(())
    }

    fn sit_down(&mut self, at: usize, number: u32, place: Place) -> Result<(), ListenError> {
        let Place { local, backlog, v6_only } = place;
        let is_it = |desk: &Desk| desk.local == local && desk.v6_only == v6_only;
        if let Some(desk) = self.desks.iter().position(is_it) {
            let uid = self.guest(at).and_then(|guest| guest.uid);
            let found = &mut self.desks[desk];
            if found.kept_until.is_none() || found.kept_for.is_some() && found.kept_for == uid {
                self.join(desk, (at, number));
                return Ok(());
            }
            found.kept_until = Some(Instant::now());
            self.close_desks();
        }
        let mut on = Vec::new();
        let how = Listening { backlog, v6_only, shares: true };
        for (link_at, link) in self.links.iter_mut().enumerate() {
            if !local.ip().is_unspecified() && !link.has(local.ip()) {
                continue;
            }
            match link.stack().listen_with(local, how) {
                Ok(id) => on.push((link_at, id)),
                Err(error) => {
                    self.close_all(on);
                    return Err(error);
                }
            }
            link.begin_at(local.port());
        }
        let (members, waiting) = (vec![(at, number)], Vec::new());
        let (kept_until, kept_for) = (None, None);
        self.desks.push(Desk { local, v6_only, on, members, kept_until, kept_for, waiting });
        Ok(())
    }

    /// One more at a place: what was kept there is his.
    fn join(&mut self, desk: usize, member: (usize, u32)) {
        let found = &mut self.desks[desk];
        found.members.push(member);
        if found.kept_until.take().is_none() {
            return;
        }
        let waiting = std::mem::take(&mut found.waiting);
        let port = found.local.port();
        for (link, id) in found.on.clone() {
            self.links[link].stack().resume_listener(id);
            self.links[link].begin_at(port);
        }
        for seat in waiting {
            self.pass_on(seat);
        }
        self.serve_desk(desk);
    }

    fn close_all(&mut self, on: Vec<(usize, ListenerId)>) {
        for (link, id) in on {
            let (link, now) = self.link(link);
            link.stack().close_listener(now, id);
        }
    }

    /// An option of what will come to a listener.
    pub(crate) fn set_listener_option(
        &mut self,
        at: usize,
        number: u32,
        option: SocketOption,
    ) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        // It may have been refused.
        let Some(registration) = guest.registration(number) else { return Ok(()) };
        let kind = std::mem::discriminant(&option);
        registration.options.retain(|other| std::mem::discriminant(other) != kind);
        registration.options.push(option);
        let member = (at, number);
        let desk = self.desks.iter().find(|desk| desk.members.contains(&member));
        for (link, id) in desk.map_or_else(Vec::new, |desk| desk.on.clone()) {
            // What a handshake has to know of is the same for all who listen there.
            self.links[link].stack().set_listener_option(id, option);
        }
        Ok(())
    }

    /// A guest listens no more.
    pub(crate) fn leave_desk(&mut self, at: usize, number: u32) {
        if let Some(guest) = self.guest(at) {
            guest.registrations.retain(|one| one.number != number);
        }
        let uid = self.guest(at).and_then(|guest| guest.uid);
        self.remove_members(uid, |member| member == (at, number));
    }

    /// A guest is gone: what it has not accepted is for others.
    pub(crate) fn leave_desks(&mut self, at: usize) {
        self.remove_members(None, |(guest, _)| guest == at);
    }

    /// Whose members are all gone is closed, or kept for others of this user's.
    fn remove_members(&mut self, uid: Option<u32>, leaves: impl Fn((usize, u32)) -> bool) {
        let kept = self.desks.iter().filter(|desk| desk.kept_until.is_some()).count();
        let keeps = uid.is_some() && kept < KEPT_AT_ONCE;
        let until = Instant::now() + if keeps { KEPT } else { Duration::ZERO };
        for at in 0..self.desks.len() {
            let desk = &mut self.desks[at];
            let before = desk.members.len();
            desk.members.retain(|&member| !leaves(member));
            if before == 0 || !desk.members.is_empty() {
                continue;
            }
            (desk.kept_until, desk.kept_for) = (Some(until), uid);
            for (link, id) in desk.on.clone() {
                self.links[link].stack().leave_listener(id);
            }
        }
        self.close_desks();
    }

    /// Closes places for which nobody has come in time.
    pub(crate) fn close_desks(&mut self) {
        let now = Instant::now();
        let is_over = |desk: &mut Desk| desk.kept_until.is_some_and(|until| until <= now);
        let over: Vec<_> = self.desks.extract_if(.., is_over).collect();
        for desk in over {
            self.close_all(desk.on);
            for (link, id) in desk.waiting.into_iter().filter_map(|seat| seat.at) {
                self.reset(link, id);
            }
        }
    }

    /// When one has to be closed.
    pub(crate) fn next_close(&self) -> Option<Instant> {
        self.desks.iter().filter_map(|desk| desk.kept_until).min()
    }

    /// A connection waits at a listener of the stack's.
    pub(crate) fn serve_desk_of(&mut self, link: usize, listener: ListenerId) {
        let on = (link, listener);
        if let Some(desk) = self.desks.iter().position(|desk| desk.on.contains(&on)) {
            self.serve_desk(desk);
        }
    }

    /// There may be room at a guest's listener again.
    pub(crate) fn serve_member(&mut self, at: usize, number: u32) {
        let member = (at, number);
        if let Some(desk) = self.desks.iter().position(|desk| desk.members.contains(&member)) {
            self.serve_desk(desk);
        }
    }

    fn serve_desk(&mut self, desk: usize) {
        for (link, listener) in self.desks[desk].on.clone() {
            while self.links[link].stack().accept_waiting(listener) > 0 {
                let Some(member) = self.freest(desk) else { return };
                let Some(id) = self.links[link].stack().accept(listener) else { break };
                if let Some((local, remote)) = self.links[link].stack().ends(id) {
                    let state = self.links[link].stack().state(id).unwrap_or(State::Closed);
                    let seat = Seat::new(Some((link, id)), Ends { local, remote }, state);
                    self.assign(member, seat);
                }
            }
        }
    }

    /// The member with the fewest waiting that may have another one; of several, who has had none for the longest time.
    fn freest(&mut self, desk: usize) -> Option<(usize, u32)> {
        let members = self.desks[desk].members.clone();
        let waiting = members.into_iter().filter_map(|(at, number)| {
            let registration = self.guest(at)?.registration(number)?;
            // As with the kernel's backlog, one more than it says (sk_acceptq_is_full).
            let may = registration.waiting <= registration.backlog;
            may.then_some((registration.waiting, (at, number)))
        });
        let (_, chosen) = waiting.min_by_key(|(waiting, _)| *waiting)?;
        let members = &mut self.desks[desk].members;
        members.retain(|member| *member != chosen);
        members.push(chosen);
        Some(chosen)
    }

    /// A connection is for this one to accept.
    fn assign(&mut self, (at, listener): (usize, u32), mut seat: Seat) {
        let Some((link, id)) = seat.at else { return };
        let Some(guest) = self.guest(at) else { return };
        let number = guest.number();
        let options = guest.registration(listener).map_or_else(Vec::new, |registration| {
            registration.waiting += 1;
            registration.options.clone()
        });
        seat.listener = Some(listener);
        seat.told_state = State::Established;
        let ends = seat.ends;
        guest.put(number, seat);
        guest.tell_of(News::Incoming.of_number(number).and(listener), &ends);
        guest.note(number);
        let (link, now) = self.link(link);
        link.bind(id, Owner { guest: at, number });
        for option in options {
            link.stack().set_option(now, id, option);
        }
    }

    /// A guest has accepted a connection.
    pub(crate) fn accepted(&mut self, at: usize, number: u32) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let listener = guest.open_seat(number)?.listener.take();
        let listener = listener.ok_or(Damaged("a connection that was accepted already"))?;
        if let Some(registration) = guest.registration(listener) {
            registration.waiting = registration.waiting.saturating_sub(1);
        }
        self.serve_member(at, listener);
        Ok(())
    }

    /// A guest gives back what it has not accepted, with what has come on it: `bytes`, and `more` of it.
    pub(crate) fn take_back(
        &mut self,
        at: usize,
        number: u32,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        if seat.listener.is_none() {
            return Err(Damaged("a connection that was accepted already"));
        }
        let long = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let left = seat.unread_bytes.checked_sub(long);
        seat.unread_bytes = left.ok_or(Damaged("more than has come"))?;
        seat.coming_back.extend(bytes);
        if !more && let Some(seat) = guest.vacate(number) {
            self.pass_on(seat);
        }
        Ok(())
    }

    /// A connection that was not accepted is for somebody else.
    pub(crate) fn pass_on(&mut self, mut seat: Seat) {
        let Some((link, id)) = seat.at else { return };
        self.links[link].unbind(id);
        // What others gave back before, and was not told yet, comes behind that.
        seat.coming_back.append(&mut seat.returned);
        seat.returned = std::mem::take(&mut seat.coming_back);
        // Whoever has it next was told nothing: neither that he may send, nor that the peer has ended.
        (seat.queued, seat.told_end, seat.allowed) = (false, false, seat.given);
        // Where somebody is comes first, then who listens at that address and at no other.
        let takes = |at: &usize| self.desks[*at].takes(seat.ends.local);
        let desk = (0..self.desks.len()).filter(takes).min_by_key(|&at| {
            let desk = &self.desks[at];
            (desk.members.is_empty(), desk.local.ip().is_unspecified())
        });
        // Without what has been on its way to the guest nobody else can go on with it.
        let Some(desk) = desk.filter(|_| seat.unread_bytes == 0) else {
            return self.reset(link, id);
        };
        match self.freest(desk) {
            Some(member) => self.assign(member, seat),
            None if self.desks[desk].kept_until.is_some() => self.desks[desk].waiting.push(seat),
            None => self.reset(link, id),
        }
    }

    fn reset(&mut self, link: usize, id: SocketId) {
        let (link, now) = self.link(link);
        link.stack().abort(now, id);
        link.stack().close(now, id);
    }
}
