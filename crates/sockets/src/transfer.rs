//! Octets out and in: send(2), recv(2) and their kin.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::time::Duration;

use nix::errno::Errno;
use uncork_stack::{RecvError, SendError, SocketOption, State};

use crate::handing::HANDED_OVER;
use crate::outside::Outside;
use crate::parts::{Part, Parts};
use crate::sleepers::For;
use crate::table::{Place, Slot};
use crate::tcp::Tcp;
use crate::waiting::Wait;
use crate::world::World;
use crate::{Sockets, connection, errno, has_given};

/// In how many turns at most a write leaves before other threads may have theirs.
const TURNS_A_WRITE: usize = 4;

/// More octets than a SYN has room for.
const MOST_SYN_BYTES: usize = 64 << 10;

/// The result of one try; none if the socket is not ready for it.
type Attempt = Option<Result<(), Errno>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// A transfer that is under way.
#[derive(Debug, Clone, Copy)]
struct Course {
    slot: Slot,
    place: Place,
    waits: bool,
    /// Whether Nagle's algorithm may hold back what is written.
    may_delay: bool,
    limit: Option<Duration>,
    /// SO_RCVLOWAT: for how many octets a call waits, if it waits.
    low_water_bytes: usize,
}

/// The flags of send(2) that are known here.
pub const SENT_FLAGS: i32 = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_EOR
    | libc::MSG_DONTROUTE
    | libc::MSG_CONFIRM
    // The octets are copied, as the kernel does where it has to.
    | libc::MSG_ZEROCOPY;

impl<O: Outside> Sockets<O> {
    fn wait_for(part: Part, course: Course, way: Way, restarts: &Cell<bool>) -> Wait<'_> {
        Wait {
            waits_for: For::Socket(course.slot),
            parts: Parts::of(part),
            may_leave: way == Way::In && restarts.get(),
            limit: course.limit,
            mask: None,
            kernel: &mut [],
            restarts,
        }
    }

    /// Does send(2) of these, one after the other. Returns how much was taken, which is all of it if the socket
    /// waits and nothing fails.
    ///
    /// # Errors
    ///
    /// As the call has them; a caller that gets EPIPE without MSG_NOSIGNAL is due a SIGPIPE.
    pub fn send(&self, fd: RawFd, pieces: &[IoSlice<'_>], flags: i32) -> Result<usize, Errno> {
        if flags & !SENT_FLAGS != 0 {
            self.may_send_with(fd, flags)?;
        }
        let (mut sent, restarts) = (0, Cell::new(true));
        let done = self.transfer(fd, flags, (Way::Out, &restarts), &mut |world, course| {
            let before = sent;
            let done = world.send(course.place, pieces, &mut sent, flags);
            if course.may_delay && sent > before {
                world.note_draft(course.place);
            }
            restarts.set(sent == 0);
            if done != Err(Errno::EAGAIN) {
                return Some(done);
            }
            if course.waits {
                world.note_writer(course.place, true);
            }
            None
        });
        if matches!(done, Err(Errno::EAGAIN | Errno::EINTR)) && sent == 0 {
            self.forget_writer(fd);
        }
        self.keeper_must_send(self.at(fd));
        match done {
            Err(LAUNCHED) => self.send_behind_syn(fd, pieces, flags, sent),
            Err(error) if sent == 0 => Err(not_open(error)),
            _ => Ok(sent),
        }
    }

    /// Notes that a thread that has waited to write has given up.
    #[cold]
    pub(crate) fn forget_writer(&self, fd: RawFd) {
        let _ = self.call(fd, |world| {
            let place = world.course(fd, 0, Way::Out)?.place;
            world.note_writer(place, false);
            Ok(())
        });
    }

    /// Checks flags that are not among [`SENT_FLAGS`].
    #[cold]
    fn may_send_with(&self, fd: RawFd, flags: i32) -> Result<(), Errno> {
        match flags & !SENT_FLAGS {
            libc::MSG_FASTOPEN => self.may_send_fast(fd, flags),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Sends the octets that did not leave with the SYN, when there is a connection.
    #[cold]
    fn send_behind_syn(
        &self,
        fd: RawFd,
        pieces: &[IoSlice<'_>],
        flags: i32,
        sent: usize,
    ) -> Result<usize, Errno> {
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        match self.finish_fast(fd, flags, sent, all > sent) {
            Err(Errno::EAGAIN) => {}
            done => return done.map(|()| sent),
        }
        let mut left: Vec<_> = pieces.to_vec();
        let mut left = left.as_mut_slice();
        IoSlice::advance_slices(&mut left, sent);
        if left.is_empty() {
            return Ok(sent);
        }
        let behind = self.send(fd, left, flags & !libc::MSG_FASTOPEN);
        behind.map_or_else(
            |error| if sent > 0 { Ok(sent) } else { Err(error) },
            |more| Ok(sent + more),
        )
    }

    /// Makes an attempt, and others for as long as the socket waits; one more if it does not. [`HANDED_OVER`] if it
    /// has become the kernel's.
    fn transfer(
        &self,
        fd: RawFd,
        flags: i32,
        (way, restarts): (Way, &Cell<bool>),
        attempt: &mut dyn FnMut(&mut World, Course) -> Attempt,
    ) -> Result<(), Errno> {
        let mut attempt = |world: &mut World, course: Course| match attempt(world, course) {
            Some(Err(_)) | None
                if world.table.is_handed_over(fd) && world.table.get(course.slot).is_none() =>
            {
                Some(Err(HANDED_OVER))
            }
            tried => tried,
        };
        let tries = self.outside.tries();
        let (course, first) = self.call(fd, |world| {
            let course = world.course(fd, flags, way)?;
            let first = attempt(world, course);
            if first.is_some() {
                return Ok((course, first));
            }
            match (course.waits, tries) {
                // The peer waits for what the program has said: it leaves before anything else is done.
                (true, true) => world.begin_trying(),
                // The turn is made where the thread falls asleep.
                (true, false) => return Ok((course, None)),
                // For what has come or gone meanwhile.
                (false, _) => world.turn_if_due(),
            }
            Ok((course, attempt(world, course)))
        })?;
        match first {
            Some(done) => done,
            None if !course.waits => Err(Errno::EAGAIN),
            None => {
                let wait = Self::wait_for(self.at(fd), course, way, restarts);
                let done = self.wait(wait, &mut |world, _| attempt(world, course))?;
                done.unwrap_or(Err(Errno::EAGAIN))
            }
        }
    }

    /// Does recv(2) into these, one after the other. Zero is the peer's end.
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn receive(
        &self,
        fd: RawFd,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            // The stack has nothing of that kind.
            let oob = flags & libc::MSG_OOB != 0;
            return Err(if oob { Errno::EINVAL } else { Errno::EAGAIN });
        }
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let whole = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_DONTWAIT == 0;
        let (mut received, restarts) = (0, Cell::new(true));
        let done = self.transfer(fd, flags, (Way::In, &restarts), &mut |world, course| {
            let wanted = if whole { all } else { course.low_water_bytes.min(all) };
            let taken = world.receive(course.place, pieces, &mut received, flags);
            restarts.set(received == 0);
            match taken {
                Err(Errno::EAGAIN) => (received > 0 && received >= wanted).then_some(Ok(())),
                Err(error) => Some(Err(error)),
                Ok(_) if all == 0 => Some(Ok(())),
                Ok(end) => (end || received >= wanted).then_some(Ok(())),
            }
        });
        // There is room again, which the peer is told.
        has_given(self.at(fd));
        match done {
            Err(error) if received == 0 => Err(error),
            _ => Ok(received),
        }
    }
}

/// A SYN that had waited for data has left. The kernel returns this to no caller that writes.
const LAUNCHED: Errno = Errno::EINPROGRESS;

/// Returns whether anything may come after what is there: a peek does not read as far as the end.
fn comes_more(stack: &dyn Tcp, place: Place) -> bool {
    use State::{CloseWait, Closed, Closing, LastAck, TimeWait};
    let state = stack.state(place.id).unwrap_or(Closed);
    !matches!(state, CloseWait | Closing | LastAck | TimeWait | Closed)
}

/// Returns what a socket without a connection says to a caller that writes (tcp_sendmsg).
fn not_open(error: Errno) -> Errno {
    if error == Errno::ENOTCONN { Errno::EPIPE } else { error }
}

impl World {
    /// Returns how many octets the socket would take now; any number, if it waits.
    pub(crate) fn room(&mut self, fd: RawFd) -> Result<usize, Errno> {
        let course = self.course(fd, 0, Way::Out)?;
        if course.waits {
            return Ok(usize::MAX);
        }
        let (link, now) = self.link_as_turned(course.place)?;
        Ok(link.stack().sendable_bytes(now, course.place.id) as usize)
    }

    /// Notes whether a write waits for a connection that is being opened.
    pub(crate) fn note_writer(&mut self, place: Place, waits: bool) {
        let Ok((link, now)) = self.link(place) else { return };
        if link.stack().state(place.id) == Some(State::SynSent) {
            link.stack().set_option(now, place.id, SocketOption::WriterWaits(waits));
        }
    }

    fn course(&mut self, fd: RawFd, flags: i32, way: Way) -> Result<Course, Errno> {
        let (slot, socket) = self.table.find(fd)?;
        let place = connection(socket)?;
        let waits = !socket.non_blocking && flags & libc::MSG_DONTWAIT == 0;
        let limit = match way {
            Way::In => socket.asked.receive_timeout,
            Way::Out => socket.asked.send_timeout,
        };
        let low = socket.asked.low_water();
        let low_water_bytes = usize::try_from(low).unwrap_or(usize::MAX);
        let may_delay = socket.asked.may_delay();
        Ok(Course { slot, place, waits, may_delay, limit, low_water_bytes })
    }

    /// Gives the stack what is left of `pieces` after the first `sent` octets. `Ok`: all was taken.
    fn send(
        &mut self,
        place: Place,
        pieces: &[IoSlice<'_>],
        sent: &mut usize,
        flags: i32,
    ) -> Result<(), Errno> {
        let more = flags & libc::MSG_MORE != 0;
        if self.given.turns_to(place) {
            self.turn_between();
        }
        let (link, _) = self.link_as_turned(place)?;
        if link.stack().state(place.id) == Some(State::SynSent) {
            // Not before there is a connection (sk_stream_wait_connect), unless its SYN takes it along.
            let deferred = link.stack().is_deferred(place.id);
            return if deferred {
                self.send_with_syn(place, pieces, sent)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        for turns in 0.. {
            let before = *sent;
            let result = self.give(place, pieces, sent, more);
            if flags & libc::MSG_EOR != 0 && result.is_ok() {
                self.link_as_turned(place)?.0.stack().end_record(place.id);
            }
            // If nothing was taken there is nothing to send, and a caller that waits for room would look again and again.
            let given = *sent - before;
            if given == 0 || !self.given.add(place, given) {
                return result;
            }
            let goes_on = result == Err(Errno::EAGAIN);
            if goes_on && turns >= TURNS_A_WRITE {
                // It leaves before a caller that waits falls asleep.
                return result;
            }
            self.turn_between();
            self.look_soon_if_some_is_left(place);
            if !goes_on {
                return result;
            }
            // The turn may have made room: a thread that does not sleep yet would not be told.
        }
        Ok(())
    }

    /// Gives the stack as much of `pieces` as it takes now.
    fn give(
        &mut self,
        place: Place,
        pieces: &[IoSlice<'_>],
        sent: &mut usize,
        more: bool,
    ) -> Result<(), Errno> {
        // The clock is read when it leaves: what is only given needs no time of its own.
        let (link, now) = self.link_as_turned(place)?;
        // After this piece come empty ones, or none: it is the end of the write.
        let Some(last) = pieces.iter().rposition(|piece| !piece.is_empty()) else {
            // On a connection that has failed even that returns the error.
            link.stack().send(now, place.id, &[], more).map_err(errno::of_send)?;
            return Ok(());
        };
        let mut behind = *sent;
        for (at, piece) in pieces.iter().enumerate() {
            let Some(rest) = piece.get(behind..).filter(|_| behind < piece.len()) else {
                behind -= piece.len();
                continue;
            };
            behind = 0;
            let taken = match link.stack().send(now, place.id, rest, more || at < last) {
                Err(SendError::Failed(error)) if *sent > 0 => {
                    // What was taken is told now, and the error at the next call.
                    link.stack().put_back_error(place.id, error);
                    return Err(errno::of_send(error.into()));
                }
                taken => taken.map_err(errno::of_send)?,
            };
            *sent += taken;
            if taken < rest.len() {
                return Err(Errno::EAGAIN);
            }
        }
        Ok(())
    }

    /// Notes that what was written may be a part of a message.
    fn note_draft(&mut self, place: Place) {
        if let Some(whole) = self.drafts.note(place) {
            self.complete(whole);
        }
    }

    /// Gives the SYN as much as it has room for, possibly nothing, and lets it go.
    #[cold]
    fn send_with_syn(
        &mut self,
        place: Place,
        pieces: &[IoSlice<'_>],
        sent: &mut usize,
    ) -> Result<(), Errno> {
        // All at once: the first octets let the SYN go.
        let all = pieces.iter().flat_map(|piece| piece.iter().copied());
        let bytes: Vec<u8> = all.take(MOST_SYN_BYTES).collect();
        let (link, now) = self.link(place)?;
        *sent = link.stack().send(now, place.id, &bytes, false).map_err(errno::of_send)?;
        link.stack().launch(now, place.id);
        self.turn();
        Err(LAUNCHED)
    }

    /// Takes what has come into `pieces` after the first `received` octets; returns whether that is the end.
    fn receive(
        &mut self,
        place: Place,
        pieces: &mut [IoSliceMut<'_>],
        received: &mut usize,
        flags: i32,
    ) -> Result<bool, Errno> {
        let (link, turned) = self.link_as_turned(place)?;
        let look = flags & libc::MSG_PEEK != 0;
        // A peek begins at the first octet each time.
        let mut behind = if look { 0 } else { *received };
        if look {
            *received = 0;
        }
        if pieces.iter().all(|piece| piece.is_empty()) {
            // A caller that wants nothing waits for something all the same (tcp_recvmsg).
            let there = link.stack().peek(turned, place.id, &mut [0]);
            return there.map(|there| there == 0).map_err(errno::of_recv);
        }
        if look && pieces.len() > 1 {
            return self.look(place, pieces, received);
        }
        for piece in pieces {
            let long = piece.len();
            let Some(room) = piece.get_mut(behind..).filter(|_| behind < long) else {
                behind -= long;
                continue;
            };
            behind = 0;
            let wanted = room.len();
            let stack = link.stack();
            let taken = if look {
                stack.peek(turned, place.id, room)
            } else {
                stack.recv(turned, place.id, room)
            };
            match taken {
                Ok(0) => return Ok(true),
                Ok(taken) => {
                    *received += taken;
                    if taken < wanted {
                        return Ok(look && !comes_more(stack, place));
                    }
                }
                Err(RecvError::WouldBlock) if *received > 0 => return Ok(false),
                // What was taken is told now, and the error at the next call: nothing more is waited for (tcp_recvmsg).
                Err(RecvError::Failed(error)) if *received > 0 => {
                    stack.put_back_error(place.id, error);
                    return Ok(true);
                }
                Err(error) => return Err(errno::of_recv(error)),
            }
        }
        Ok(false)
    }

    /// Peeks into several pieces, where the stack only does into one.
    fn look(
        &mut self,
        place: Place,
        pieces: &mut [IoSliceMut<'_>],
        received: &mut usize,
    ) -> Result<bool, Errno> {
        let (link, turned) = self.link_as_turned(place)?;
        let mut all = vec![0; pieces.iter().map(|piece| piece.len()).sum()];
        let looked = link.stack().peek(turned, place.id, &mut all).map_err(errno::of_recv)?;
        let mut left = &all[..looked];
        for piece in pieces {
            let (now, later) = left.split_at(left.len().min(piece.len()));
            piece[..now.len()].copy_from_slice(now);
            left = later;
        }
        *received = looked;
        Ok(looked == 0 || !comes_more(link.stack(), place))
    }
}
