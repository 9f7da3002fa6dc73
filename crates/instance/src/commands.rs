//! Carries out guests' commands.

use serde::de::DeserializeOwned;
use serde_json as json;
use uncork_attach::record::{
    END_OF_RECORD, Ends, MORE, SHUT_READ, SHUT_WRITE, TOLD, UNREAD, put_segment,
};
use uncork_attach::{Command, Damaged, Header, MOST_BUFFER_BYTES, News};
use uncork_stack::{
    ConnectionError, Detached, SendError, Shutdown, Snapshot, SocketId, SocketOption, State,
};

use crate::floor::Floor;
use crate::guest::Seat;
use crate::link::Owner;

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damaged> {
    json::from_slice(bytes).map_err(|_| Damaged("a command that is not understood"))
}

/// Limits an option: no guest gets more of the instance's memory than its half of the library would let it have.
fn limited(option: SocketOption) -> SocketOption {
    match option {
        SocketOption::SendBuffer(bytes) => SocketOption::SendBuffer(bytes.min(MOST_BUFFER_BYTES)),
        SocketOption::ReceiveBuffer(bytes) => {
            SocketOption::ReceiveBuffer(bytes.min(MOST_BUFFER_BYTES))
        }
        SocketOption::ReceiveAtLeast(bytes) => {
            SocketOption::ReceiveAtLeast(bytes.min(MOST_BUFFER_BYTES))
        }
        other => other,
    }
}

impl Floor {
    /// Carries out a command of guest `at`.
    pub(crate) fn command(
        &mut self,
        at: usize,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), Damaged> {
        let Header { flags, number, extra, .. } = header;
        match Command::of(header).ok_or(Damaged("a command of no kind"))? {
            Command::Listen => self.listen(at, number, parse(bytes)?),
            Command::ListenerOption => self.set_listener_option(at, number, limited(parse(bytes)?)),
            Command::ListenerFastOpen => self.open_fast_at(at, number, parse(bytes)?),
            Command::LeaveListener => {
                self.leave_desk(at, number);
                if let Some(guest) = self.guest(at) {
                    guest.tell(News::Left.of_number(number), &[]);
                }
                Ok(())
            }
            Command::Accept => self.accepted(at, number),
            Command::Return => self.take_back(at, number),
            Command::Connect => self.connect(at, number, parse(bytes)?),
            Command::Send => self.send(at, number, bytes, flags),
            Command::Read => self.read(at, number, extra),
            Command::Close => self.close(at, number, flags & UNREAD != 0),
            Command::AskInfo => self.tell_info(at, number, extra),
            Command::Detach => self.detach(at, (number, extra), flags & TOLD != 0),
            Command::AskCaught => self.tell_caught(at, (number, extra), parse(bytes)?),
            Command::Shutdown => self.shutdown(at, number, flags),
            Command::BeginClose => self.with(at, number, |link, id| {
                let now = link.now();
                link.stack().begin_close(now, id);
            }),
            Command::Abort => self.with(at, number, |link, id| {
                let now = link.now();
                link.stack().abort(now, id);
            }),
            Command::Complete => self.with(at, number, |link, id| {
                let now = link.now();
                link.stack().complete(now, id);
            }),
            Command::Option => {
                let option = limited(parse(bytes)?);
                self.with(at, number, |link, id| {
                    let now = link.now();
                    link.stack().set_option(now, id, option);
                })
            }
        }
    }

    /// Does something with a connection, if the stack has it.
    fn with(
        &mut self,
        at: usize,
        number: u32,
        act: impl FnOnce(&mut crate::Link, SocketId),
    ) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        if let Some((link, id)) = seat.at {
            guest.note(number);
            act(&mut self.links[link], id);
        }
        Ok(())
    }

    fn connect(&mut self, at: usize, number: u32, ends: Ends) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        // Numbers follow one another, so that little room is wasted between them.
        if number.is_multiple_of(2) || number as usize > guest.seats.len() + 1 {
            return Err(Damaged("a number that is not the program's"));
        }
        let granted =
            |floor: &mut Self| floor.guest(at).is_some_and(|guest| guest.connections.remove(&ends));
        if !granted(self) {
            // The guardian has granted it before the program was told.
            self.hear_words();
            if !granted(self) {
                return Err(Damaged("a connection that was not granted"));
            }
        }
        let Some(guest) = self.guest(at) else { return Ok(()) };
        if guest.seat(number).is_some() {
            return Err(Damaged("a number that was given already"));
        }
        let begun = self.link_of(ends.local).and_then(|link_at| {
            self.keep_lists(link_at);
            let (link, now) = self.link(link_at);
            let id = link.stack().connect(now, Some(ends.local), ends.remote).ok()?;
            link.bind(id, Owner { guest: at, number });
            Some((link_at, id))
        });
        if begun.is_some() {
            self.opened.insert(ends);
        } else {
            self.host.disown(ends);
        }
        let Some(guest) = self.guest(at) else { return Ok(()) };
        guest.put(number, Seat::new(begun, ends, State::SynSent));
        if begun.is_none() {
            let error = ConnectionError::Unreachable;
            guest.tell_of(News::Failed.of_number(number), &error);
        }
        Ok(())
    }

    fn send(&mut self, at: usize, number: u32, bytes: &[u8], flags: u8) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        let given = seat.given + bytes.len() as u64;
        if given > seat.allowed {
            return Err(Damaged("more was sent than there is room for"));
        }
        seat.given = given;
        let Some((link, id)) = seat.at else { return Ok(()) };
        guest.note(number);
        let (link, now) = self.link(link);
        let sent = link.stack().send_promised(now, id, bytes, flags & MORE != 0);
        if flags & END_OF_RECORD != 0 {
            link.stack().end_record(id);
        }
        if let Err(SendError::Failed(error)) = sent {
            let unread = link.stack().readable_bytes(id) > 0;
            let returned = self.guest(at).and_then(|guest| guest.seat(number));
            let more = unread || returned.is_some_and(|seat| !seat.returned.is_empty());
            self.tell_failure(at, number, error, more);
        }
        Ok(())
    }

    fn read(&mut self, at: usize, number: u32, bytes: u32) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        if seat.listener.is_some() {
            return Err(Damaged("a connection was read that was not accepted"));
        }
        let left = seat.unread_bytes.checked_sub(bytes);
        seat.unread_bytes = left.ok_or(Damaged("more was read than has come"))?;
        guest.note(number);
        Ok(())
    }

    fn shutdown(&mut self, at: usize, number: u32, flags: u8) -> Result<(), Damaged> {
        let how = match (flags & SHUT_READ != 0, flags & SHUT_WRITE != 0) {
            (true, true) => Shutdown::Both,
            (true, false) => Shutdown::Read,
            (false, true) => Shutdown::Write,
            (false, false) => return Err(Damaged("a shutdown of nothing")),
        };
        self.with(at, number, |link, id| {
            let now = link.now();
            link.stack().shutdown(now, id, how);
        })
    }

    fn close(&mut self, at: usize, number: u32, unread: bool) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let seat = guest.open_seat(number)?;
        seat.closed = true;
        let unread = unread || !seat.returned.is_empty();
        let Some((link_at, id)) = seat.at else {
            guest.vacate(number);
            return Ok(());
        };
        // The guest may use a number of its own again once nothing is left, TIME-WAIT included.
        if number.is_multiple_of(2) {
            guest.vacate(number);
            self.links[link_at].unbind(id);
        }
        let (link, now) = self.link(link_at);
        if unread {
            link.stack().abort(now, id);
        }
        link.stack().close(now, id);
        Ok(())
    }

    fn tell_info(&mut self, at: usize, number: u32, question: u32) -> Result<(), Damaged> {
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let place = guest.open_seat(number)?.at;
        let info = place.and_then(|(link, id)| {
            let (link, now) = self.link(link);
            link.stack().info(now, id)
        });
        let told = info.map_or_else(Vec::new, |info| json::to_vec(&info).unwrap_or_default());
        if let Some(guest) = self.guest(at) {
            guest.tell_long(News::Info.of_number(number).and(question), &told);
        }
        Ok(())
    }

    /// Detaches a connection for a guest that wants to hand it over to the kernel.
    fn detach(
        &mut self,
        at: usize,
        (number, question): (u32, u32),
        is_told: bool,
    ) -> Result<(), Damaged> {
        let answer = |news: News| news.of_number(number).and(question);
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let program = guest.program;
        let seat = guest.open_seat(number)?;
        let (place, ends) = (seat.at, seat.ends);
        let failure = seat.told_failure.filter(|_| !is_told);
        let detached = place.and_then(|(link, id)| {
            let stack = self.links[link].stack();
            if let Some(error) = failure {
                stack.put_back_error(id, error);
            }
            // The guardian is not asked in vain: it has others to answer.
            if !stack.is_detachable(id) || !self.host.give(program, ends) {
                return None;
            }
            let (link, now) = self.link(link);
            link.stack().detach(now, id)
        });
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let Some(detached) = detached else {
            guest.tell(answer(News::Detached), &[]);
            return Ok(());
        };
        let seat = guest.open_seat(number)?;
        seat.closed = true;
        let detached = whole(detached, seat);
        // The guardian takes it back once the kernel has it, and not before.
        self.opened.remove(&ends);
        let Some(guest) = self.guest(at) else { return Ok(()) };
        let Snapshot { local, remote, .. } = detached.snapshot;
        guest.remember_given(Ends { local, remote });
        guest.tell_of(answer(News::Detached), &detached.snapshot);
        if !detached.bytes().is_empty() {
            guest.tell_long(answer(News::Octets), detached.bytes());
        }
        if number.is_multiple_of(2)
            && let Some((link, id)) = place
        {
            guest.vacate(number);
            self.links[link].unbind(id);
        }
        Ok(())
    }

    /// Tells a guest what came here for its detached connection until the kernel had it: that is to go there, too.
    fn tell_caught(
        &mut self,
        at: usize,
        (number, question): (u32, u32),
        ends: Ends,
    ) -> Result<(), Damaged> {
        let mut caught = Vec::new();
        // No guest is told what came for another's connection.
        if self.guest(at).is_some_and(|guest| guest.forget_given(ends))
            && let Some(link) = self.link_of(ends.local)
        {
            // That a device is gone is found in the turn that follows.
            let _ = self.turn_links(false);
            for segment in self.links[link].stack().take_caught(ends.local, ends.remote) {
                put_segment(&mut caught, &segment);
            }
        }
        if let Some(guest) = self.guest(at) {
            guest.tell_long(News::Caught.of_number(number).and(question), &caught);
        }
        Ok(())
    }
}

/// Adds the octets that were kept here and not in the stack.
fn whole(detached: Detached, seat: &mut Seat) -> Detached {
    let count = |queue: &std::collections::VecDeque<u8>| u32::try_from(queue.len()).unwrap_or(0);
    let mut snapshot = detached.snapshot.clone();
    snapshot.unread_bytes += count(&seat.returned);
    snapshot.receive_first = snapshot.receive_first.wrapping_sub(count(&seat.returned));
    let bytes = [seat.returned.make_contiguous(), detached.bytes()];
    Detached::new(snapshot, bytes.concat()).unwrap_or(detached)
}
