//! Desks: listeners that programs share. All programs that listen at one place share one listener of the stack: a connection
//! goes to the one with the fewest waiting, and to another one if that leaves, or dies, without having accepted it. When the
//! last has gone, waiting connections and unfinished handshakes wait a while for others, which may be about to come: all of a
//! server's processes may be exchanged at once.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uncork_attach::record::{Arrived, Ends, FastOpen, Place};
use uncork_attach::{Damaged, News};
use uncork_stack::{ListenError, ListenerId, Listening, SocketId, SocketOption, State};

use crate::floor::Floor;
use crate::guest::{Registration, Seat};
use crate::link::Owner;

/// How long unknown segments to a port that was taken over are not reset: they may be the kernel's.
const QUIET: Duration = Duration::from_millis(500);

/// How long a place is kept for others: a SYN-ACK is retransmitted after a second. The filters, too, know for so long whose
/// the unfinished handshakes are (crate guard).
const KEPT: Duration = Duration::from_millis(1500);

/// How many listeners of the stack are kept at once for programs of one user: more than servers that come and go leave in a
/// second and a half. The limit is for each user, or one that comes and goes in a loop would have all.
const KEPT_AT_ONCE: usize = 256;

/// How many listeners one program may have.
const LISTENERS: usize = 4096;

/// A place to listen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    local: SocketAddr,
    v6_only: bool,
}

impl Spot {
    fn takes_any(self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// Tells whether connections to this end come here.
    fn takes(self, local: SocketAddr) -> bool {
        let ip = self.local.ip();
        let both = ip.is_ipv6() && !self.v6_only;
        let all = self.takes_any() && (ip.is_ipv4() == local.is_ipv4() || both);
        self.local.port() == local.port() && (all || ip == local.ip())
    }
}

/// A place at which programs listen.
#[derive(Debug)]
pub(crate) struct Desk {
    spot: Spot,
    /// The listener on each device that has the address.
    on: Vec<(usize, ListenerId)>,
    /// Guests, with the numbers of their listeners.
    members: Vec<(usize, u32)>,
    /// Users whose guests are or were members: what comes here is theirs, and no other user's.
    users: Vec<Option<u32>>,
    /// What the member that asked last wants of TCP Fast Open.
    pub(crate) fast_open: Option<FastOpen>,
}

/// What the last member of a place has left. If the place is left again meanwhile by the same users, it is all in one.
#[derive(Debug)]
pub(crate) struct Kept {
    spot: Spot,
    /// Listeners that finish the handshakes that they have begun.
    on: Vec<(usize, ListenerId)>,
    /// Connections that were not accepted.
    waiting: Vec<Seat>,
    users: Vec<Option<u32>>,
    until: Instant,
    /// Whether data is no longer waited for (TCP_DEFER_ACCEPT).
    opened: bool,
}

impl Floor {
    /// Returns the places at which programs listen.
    pub(crate) fn places(&self) -> impl Iterator<Item = SocketAddr> {
        self.desks.iter().map(|desk| desk.spot.local)
    }

    /// Makes a guest listen.
    pub(crate) fn listen(&mut self, at: usize, number: u32, place: Place) -> Result<(), Damaged> {
        let may = self.guest(at).is_some_and(|guest| guest.may_listen(place.local));
        if !may {
            // The guardian has granted it before the program was told.
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
        let spot = Spot { local, v6_only };
        let user = self.guest(at).and_then(|guest| guest.uid);
        self.dismiss(spot, user);
        if let Some(desk) = self.desks.iter_mut().find(|desk| desk.spot == spot) {
            desk.members.push((at, number));
            if !desk.users.contains(&user) {
                desk.users.push(user);
            }
        } else {
            let on = self.open_all(spot, backlog)?;
            let members = vec![(at, number)];
            self.desks.push(Desk { spot, on, members, users: vec![user], fast_open: None });
        }
        self.serve_kept();
        Ok(())
    }

    /// Removes members that have lost a port to another user's program, which comes to listen there, perhaps at more addresses.
    fn dismiss(&mut self, comes: Spot, user: Option<u32>) {
        let is_in_the_way = |desk: &&Desk| {
            desk.spot != comes
                && desk.spot.local.port() == comes.local.port()
                && !desk.users.contains(&user)
        };
        let all = self.desks.iter().filter(is_in_the_way);
        let mut members: Vec<_> =
            all.flat_map(|desk| desk.members.iter().map(|member| (*member, desk.spot))).collect();
        members.retain(|((at, _), spot)| !self.may_listen(*at, *spot));
        if !members.is_empty() {
            self.remove_members(true, |member| members.iter().any(|(other, _)| *other == member));
        }
    }

    fn may_listen(&mut self, at: usize, spot: Spot) -> bool {
        self.guest(at).is_some_and(|guest| guest.may_listen(spot.local))
    }

    /// Listens on each device that has the address.
    fn open_all(
        &mut self,
        Spot { local, v6_only }: Spot,
        backlog: u32,
    ) -> Result<Vec<(usize, ListenerId)>, ListenError> {
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
            let until = link.now() + QUIET;
            link.stack().quiet_until(local.port(), until);
        }
        Ok(on)
    }

    fn close_all(&mut self, on: Vec<(usize, ListenerId)>) {
        for (link, id) in on {
            let (link, now) = self.link(link);
            link.stack().close_listener(now, id);
        }
    }

    /// Sets an option of the connections that will come to a listener.
    pub(crate) fn set_listener_option(
        &mut self,
        at: usize,
        number: u32,
        option: SocketOption,
    ) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        // The listener may have been refused.
        let Some(registration) = guest.registration(number) else { return Ok(()) };
        let kind = std::mem::discriminant(&option);
        registration.options.retain(|other| std::mem::discriminant(other) != kind);
        registration.options.push(option);
        let member = (at, number);
        let desk = self.desks.iter().find(|desk| desk.members.contains(&member));
        for (link, id) in desk.map_or_else(Vec::new, |desk| desk.on.clone()) {
            // What concerns the handshake is the same for all that listen there.
            self.links[link].stack().set_listener_option(id, option);
        }
        Ok(())
    }

    /// Sets what a listener does with TCP Fast Open. As with handshakes, the latest setting holds for all that listen there.
    pub(crate) fn open_fast_at(
        &mut self,
        at: usize,
        number: u32,
        mut fast_open: FastOpen,
    ) -> Result<(), Damaged> {
        let registration = self.guest(at).and_then(|guest| guest.registration(number));
        let Some(backlog) = registration.map(|one| one.backlog) else { return Ok(()) };
        // They wait to be accepted: there cannot be more of them than may wait, whatever the guest says.
        fast_open.listen.pending = fast_open.listen.pending.min(backlog.saturating_add(1));
        let member = (at, number);
        let Some(desk) = self.desks.iter().position(|desk| desk.members.contains(&member)) else {
            return Ok(());
        };
        self.desks[desk].fast_open = Some(fast_open);
        self.tell_fast_open(desk);
        Ok(())
    }

    /// Applies what a desk wants of TCP Fast Open, as far as the host permits it.
    pub(crate) fn tell_fast_open(&mut self, desk: usize) {
        let Some(FastOpen { listen, keys }) = self.desks[desk].fast_open else { return };
        let listen = listen.permitted(self.permitted.switches(self.host.as_mut()));
        for (link, id) in self.desks[desk].on.clone() {
            self.links[link].stack().open_fast_at(id, listen, keys);
        }
    }

    /// Takes one of a guest's listeners out of its desk.
    pub(crate) fn leave_desk(&mut self, at: usize, number: u32) {
        if let Some(guest) = self.guest(at) {
            guest.registrations.retain(|one| one.number != number);
        }
        self.remove_members(true, |member| member == (at, number));
    }

    /// Takes a guest that is gone out of all desks. Others may have what it has not accepted, even later if it `keeps`. A dead
    /// guest may be a worker whose parent has its listener, too, and will listen there or have another worker do so.
    pub(crate) fn leave_desks(&mut self, at: usize, keeps: bool) {
        self.remove_members(keeps, |(guest, _)| guest == at);
    }

    /// Removes members. Places without members are closed, or kept for others.
    fn remove_members(&mut self, keeps: bool, leaves: impl Fn((usize, u32)) -> bool) {
        for desk in &mut self.desks {
            desk.members.retain(|&member| !leaves(member));
        }
        let over: Vec<_> = self.desks.extract_if(.., |desk| desk.members.is_empty()).collect();
        for Desk { spot, on, users, .. } in over {
            let are_known = users.iter().all(Option::is_some);
            if keeps && are_known {
                self.keep(spot, on, users);
            } else {
                self.close_all(on);
            }
        }
    }

    /// Keeps these listeners of the stack for others of these users, together with what was left there before.
    fn keep(&mut self, spot: Spot, on: Vec<(usize, ListenerId)>, mut users: Vec<Option<u32>>) {
        users.sort_unstable();
        let before = self.kept.iter().position(|kept| kept.spot == spot && kept.users == users);
        if let Some(before) = before {
            self.close_idle(before);
        }
        if self.most_kept(&users) >= KEPT_AT_ONCE {
            return self.close_all(on);
        }
        for &(link, id) in &on {
            self.links[link].stack().leave_listener(id);
        }
        let until = Instant::now() + KEPT;
        let mut kept = Kept { spot, on, waiting: Vec::new(), users, until, opened: false };
        if let Some(before) = before.map(|at| self.kept.remove(at)) {
            kept.on.extend(before.on);
            kept.waiting = before.waiting;
        }
        // After all that are kept for a shorter time.
        self.kept.push(kept);
    }

    /// Closes listeners that were left here earlier and have no connections, as a program has listened here since, and leaves
    /// now: what comes from now on comes to its listener.
    fn close_idle(&mut self, kept: usize) {
        let (busy, idle) = std::mem::take(&mut self.kept[kept].on)
            .into_iter()
            .partition(|&(link, id)| self.links[link].stack().has_comers(id));
        self.kept[kept].on = busy;
        self.close_all(idle);
    }

    /// Returns how many are kept for that one of these users with the most. A place that is on no device counts, too.
    fn most_kept(&self, users: &[Option<u32>]) -> usize {
        let of = |user| {
            let its = self.kept.iter().filter(|kept| kept.users.contains(user));
            its.map(|kept| kept.on.len().max(1)).sum()
        };
        users.iter().map(of).max().unwrap_or_default()
    }

    /// Closes what was kept in vain.
    pub(crate) fn close_kept(&mut self) {
        let now = Instant::now();
        let over: Vec<_> = self.kept.extract_if(.., |kept| kept.until <= now).collect();
        for mut kept in over {
            // A program that listens there by now has got everything but connections that wait for data.
            if !kept.opened && self.heir_of(&kept).is_some() {
                for &(link, id) in &kept.on {
                    let (link, now) = self.link(link);
                    link.stack().open_deferred(now, id);
                }
                kept.opened = true;
                kept.until = now + KEPT;
                self.kept.push(kept);
                self.serve_kept();
                continue;
            }
            self.close_all(kept.on);
            for (link, id) in kept.waiting.into_iter().filter_map(|seat| seat.at) {
                self.reset(link, id);
            }
        }
    }

    /// Returns when the next of these has to be closed.
    pub(crate) fn next_close(&self) -> Option<Instant> {
        self.kept.iter().map(|kept| kept.until).min()
    }

    /// Serves the desk of a listener of the stack at which a connection waits.
    pub(crate) fn serve_desk_of(&mut self, link: usize, listener: ListenerId) {
        let on = (link, listener);
        match self.desks.iter().position(|desk| desk.on.contains(&on)) {
            Some(desk) => self.serve_desk(desk),
            None => self.serve_kept(),
        }
    }

    /// Serves the desk of a guest's listener, which may have room again.
    pub(crate) fn serve_member(&mut self, at: usize, number: u32) {
        let member = (at, number);
        if let Some(desk) = self.desks.iter().position(|desk| desk.members.contains(&member)) {
            self.serve_desk(desk);
            self.serve_kept();
        }
    }

    fn serve_desk(&mut self, desk: usize) {
        self.take_in(desk, &self.desks[desk].on.clone());
    }

    /// Gives what programs of the same users have left to those that are there now.
    fn serve_kept(&mut self) {
        for at in 0..self.kept.len() {
            let Some(desk) = self.heir_of(&self.kept[at]) else { continue };
            for seat in std::mem::take(&mut self.kept[at].waiting) {
                match self.freest(desk) {
                    Some(member) => self.assign(member, seat),
                    None => self.kept[at].waiting.push(seat),
                }
            }
            self.take_in(desk, &self.kept[at].on.clone());
        }
    }

    /// Returns the desk where the same users listen at the same place.
    fn heir_of(&self, Kept { spot, users, .. }: &Kept) -> Option<usize> {
        self.desks.iter().position(|desk| {
            desk.spot == *spot && desk.users.iter().any(|user| users.contains(user))
        })
    }

    /// Assigns connections that wait at these listeners of the stack to members of a desk.
    fn take_in(&mut self, desk: usize, on: &[(usize, ListenerId)]) {
        for &(link, listener) in on {
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

    /// Returns the member with the fewest waiting that may have another; among several, the one that has had none for longest.
    /// One that has lost the port, and not left yet, gets some only while it is alone: it may be another user's by now.
    fn freest(&mut self, desk: usize) -> Option<(usize, u32)> {
        let Desk { members, spot, .. } = &self.desks[desk];
        let (mut members, spot) = (members.clone(), *spot);
        let may: Vec<_> = members.iter().map(|(at, _)| self.may_listen(*at, spot)).collect();
        if may.contains(&true) {
            let mut may = may.into_iter();
            members.retain(|_| may.next() == Some(true));
        }
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

    /// Assigns a connection to this member, which is to accept it.
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
        let (place, now) = self.link(link);
        place.bind(id, Owner { guest: at, number });
        for option in options {
            place.stack().set_option(now, id, option);
        }
        let allowed = self.allow_more(at, number, (link, id)).unwrap_or(0);
        if let Some(guest) = self.guest(at) {
            let arrived = Arrived { ends, allowed };
            guest.tell_of(News::Incoming.of_number(number).and(listener), &arrived);
            guest.note(number);
        }
    }

    /// Records that a guest has accepted a connection.
    pub(crate) fn accepted(&mut self, at: usize, number: u32) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        let listener = seat.listener.take();
        let listener = listener.ok_or(Damaged("a connection that was accepted already"))?;
        seat.not_accepted = Vec::new();
        if let Some(registration) = guest.registration(listener) {
            registration.waiting = registration.waiting.saturating_sub(1);
        }
        self.serve_member(at, listener);
        Ok(())
    }

    /// Takes back a connection that a guest has not accepted.
    pub(crate) fn take_back(&mut self, at: usize, number: u32) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        if guest.open_seat(number)?.listener.is_none() {
            return Err(Damaged("a connection that was accepted already"));
        }
        let user = guest.uid;
        if let Some(seat) = guest.vacate(number) {
            self.pass_on(seat, user);
        }
        Ok(())
    }

    /// Passes on a connection that a guest of this user's has not accepted.
    pub(crate) fn pass_on(&mut self, mut seat: Seat, user: Option<u32>) {
        let Some((link, id)) = seat.at else { return };
        self.links[link].unbind(id);
        // Octets given back by others, and not told to this guest yet, come after those that it was told.
        let mut returned = VecDeque::from(std::mem::take(&mut seat.not_accepted));
        returned.append(&mut seat.returned);
        seat.returned = returned;
        // The next guest has been told nothing: neither that it may send, nor that the peer has ended.
        (seat.queued, seat.told_end, seat.allowed) = (false, false, seat.given);
        seat.unread_bytes = 0;
        if let Some(error) = seat.told_failure.take() {
            self.links[link].stack().put_back_error(id, error);
        }
        let local = seat.ends.local;
        let takes = |spot: Spot, users: &[Option<u32>]| spot.takes(local) && users.contains(&user);
        // A desk at that very address comes first.
        let desks =
            (0..self.desks.len()).filter(|&at| takes(self.desks[at].spot, &self.desks[at].users));
        let desk = desks.min_by_key(|&at| self.desks[at].spot.takes_any());
        let member = desk.and_then(|desk| self.freest(desk));
        // Of several that were left there, the last is kept longest.
        let kept = self.kept.iter_mut().rev().filter(|kept| takes(kept.spot, &kept.users));
        let kept = kept.min_by_key(|kept| kept.spot.takes_any());
        match (member, kept) {
            (Some(member), _) => self.assign(member, seat),
            (None, Some(kept)) => kept.waiting.push(seat),
            (None, None) => self.reset(link, id),
        }
    }

    fn reset(&mut self, link: usize, id: SocketId) {
        let (link, now) = self.link(link);
        link.stack().abort(now, id);
        link.stack().close(now, id);
    }
}
