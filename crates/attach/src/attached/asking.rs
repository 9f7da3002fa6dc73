//! The questions whose answers are waited for: what the stack knows of a connection, the connection itself, and what has since
//! come for it.

use std::net::SocketAddr;
use std::time::Instant as Clock;

use uncork_stack::{Detached, Info, Instant, Snapshot, SocketId, State};

use super::Attached;
use super::mirror::Mirror;
use crate::record::{Ends, LAST, TOLD, UNREAD, next_segment};
use crate::terms::{PATIENCE, wait};
use crate::{Command, Damaged, Header, News};

/// The number in questions about a connection that no longer has one.
const NO_NUMBER: u32 = u32::MAX;

/// A question to the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question {
    command: Command,
    /// The connection.
    about: u32,
    /// The number of the question.
    number: u32,
}

/// The answer to one question, as it comes.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The question that is waited for; answers to others are for callers that have given up.
    question: Option<Question>,
    bytes: Vec<u8>,
    /// The connection that was detached, and how many octets of it the instance has.
    snapshot: Option<(Snapshot, usize)>,
    /// What this side kept of that connection.
    mirror: Option<Mirror>,
    is_over: bool,
}

impl Heard {
    fn take(&mut self, news: News, header: Header, bytes: &[u8]) -> Result<(), Damaged> {
        let Some(Question { command, about, .. }) = self.question else { return Ok(()) };
        match (command, news) {
            (Command::Detach, News::Detached) if header.number == about => {
                // Empty if it was not detached.
                self.is_over = bytes.is_empty();
                if !self.is_over {
                    self.given_away(bytes)?;
                }
            }
            (Command::Detach, News::Octets) => {
                self.bytes.extend(bytes);
                let all = self.snapshot.as_ref().map_or(0, |(_, octets)| *octets);
                if self.bytes.len() > all {
                    return Err(Damaged("more octets than a connection has"));
                }
                self.is_over = self.bytes.len() == all;
            }
            (Command::AskInfo, News::Info) | (Command::AskCaught, News::Caught) => {
                self.bytes.extend(bytes);
                self.is_over = header.flags & LAST != 0;
            }
            _ => return Err(Damaged("the answer to another question")),
        }
        Ok(())
    }

    fn given_away(&mut self, bytes: &[u8]) -> Result<(), Damaged> {
        let snapshot: Snapshot =
            serde_json::from_slice(bytes).map_err(|_| Damaged("no connection"))?;
        let counts = [snapshot.unread_bytes, snapshot.unacknowledged_bytes, snapshot.unsent_bytes];
        let octets = counts.into_iter().map(|count| count as usize).sum();
        self.is_over = octets == 0;
        self.snapshot = Some((snapshot, octets));
        Ok(())
    }
}

impl Attached {
    /// Takes in an answer, or a part of one.
    pub(super) fn answered(
        &mut self,
        news: News,
        header: Header,
        bytes: &[u8],
    ) -> Result<(), Damaged> {
        let Header { number, extra: question, .. } = header;
        if news == News::Detached
            && let Some(at) = self.doubtful.iter().position(|one| *one == (number, question))
        {
            self.doubtful.swap_remove(at);
            self.no_longer_doubtful(number, bytes.is_empty());
            return Ok(());
        }
        if self.heard.question.is_none_or(|asked| asked.number != question) {
            return Ok(());
        }
        self.heard.take(news, header, bytes)?;
        if news == News::Detached && self.heard.snapshot.is_some() {
            // Another connection may have the number from now on.
            self.heard.mirror =
                self.seats.get_mut(number as usize).and_then(|seat| seat.mirror.take());
        }
        Ok(())
    }

    /// Tells whether this connection may have been detached.
    pub(super) fn is_doubtful(&self, number: u32) -> bool {
        self.doubtful.iter().any(|(doubtful, _)| *doubtful == number)
    }

    /// Handles an answer that came too late. If the connection was detached, nobody has it, and its number may be another
    /// connection's from now on. If not, it is still the instance's, which is told now what was held back.
    fn no_longer_doubtful(&mut self, number: u32, was_refused: bool) {
        let Some(seat) = self.seats.get_mut(number as usize) else { return };
        if !was_refused {
            seat.mirror = None;
        } else if seat.mirror.is_none() {
            self.order(Command::Close.of_number(number).flagged(UNREAD), &[]);
        }
    }

    /// Returns everything about a connection (TCP_INFO), as its instance knows it.
    pub fn info(&mut self, _: Instant, id: SocketId) -> Option<Info> {
        let number = self.number(id)?;
        let heard = self.ask(Command::AskInfo, number, 0, &[])?;
        let mut info: Info = serde_json::from_slice(&heard.bytes).ok()?;
        let readable = self.get(id)?.incoming.len();
        // Octets that have come to the program are still unread.
        info.readable_bytes += u32::try_from(readable).unwrap_or(u32::MAX);
        Some(info)
    }

    /// Detaches a connection, and forgets it (`Stack::detach`). `None` if it stays what it is, or is over: a caller that is not
    /// answered in time has lost it.
    pub fn detach(&mut self, _: Instant, id: SocketId) -> Option<Detached> {
        let number = self.number(id)?;
        let is_told = self
            .mirror_at(number)
            .is_some_and(|mirror| mirror.state == State::Closed && mirror.error.is_none());
        let Some(heard) = self.ask(Command::Detach, number, if is_told { TOLD } else { 0 }, &[])
        else {
            self.doubt(id);
            return None;
        };
        let ((mut snapshot, _), mirror) = heard.snapshot.zip(heard.mirror)?;
        let (front, back) = mirror.incoming.as_slices();
        let unread = u32::try_from(mirror.incoming.len()).ok()?;
        snapshot.unread_bytes = snapshot.unread_bytes.checked_add(unread)?;
        snapshot.receive_first = snapshot.receive_first.wrapping_sub(unread);
        Detached::new(snapshot, [front, back, &heard.bytes].concat())
    }

    /// Records that the instance has not said in time whether this connection is detached.
    fn doubt(&mut self, id: SocketId) {
        // It may be detached, or about to be: nobody here can use it any more. If it is, and its octets have not come, nothing
        // more is heard of it.
        let Some(number) = self.number(id) else { return };
        if let Some(mirror) = self.mirror_at(number) {
            mirror.lose();
            self.note(number);
        }
        if !self.is_doubtful(number) {
            self.doubtful.push((number, self.asked));
        }
    }

    /// Returns what has come for a detached connection (`Stack::take_caught`).
    pub fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
        // It is made of numbers: it can always be written.
        let ends = serde_json::to_vec(&Ends { local, remote }).unwrap_or_default();
        let heard = self.ask(Command::AskCaught, NO_NUMBER, 0, &ends).unwrap_or_default();
        let mut rest = &heard.bytes[..];
        std::iter::from_fn(|| next_segment(&mut rest)).map(<[u8]>::to_vec).collect()
    }

    /// Asks, and waits for the answer; `None` if the instance gives none.
    fn ask(&mut self, command: Command, about: u32, flags: u8, what: &[u8]) -> Option<Heard> {
        if command.is_of_connection() && self.is_doubtful(about) {
            return None;
        }
        self.asked = self.asked.wrapping_add(1);
        let question = Some(Question { command, about, number: self.asked });
        self.heard = Heard { question, ..Heard::default() };
        self.order(command.of_number(about).flagged(flags).and(self.asked), what);
        let answered = self.wait_for_answer();
        let heard = std::mem::take(&mut self.heard);
        // Other threads may sleep: what has come for them was taken in here, and so was the ring for it.
        self.watch_on();
        answered.map(|()| heard)
    }

    fn wait_for_answer(&mut self) -> Option<()> {
        let until = Clock::now() + PATIENCE;
        while !self.heard.is_over {
            // The error is reported by the next turn, whichever thread makes it.
            self.turn().ok()?;
            let left = until.saturating_duration_since(Clock::now());
            if left.is_zero() && !self.heard.is_over {
                return None;
            }
            if !self.heard.is_over {
                let (_, limit) = self.rest();
                wait(self.end.wakes(), Some(limit.unwrap_or(left).min(left))).ok()?;
                // Or by the instance's end.
                self.end.sleeper.was_woken();
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;
    use crate::{InstanceEnd, accept, offer};

    fn pair() -> (InstanceEnd, Attached) {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let instance = offer(std::sync::Arc::new(ours)).unwrap();
        (instance, Attached::new(accept(theirs).unwrap()))
    }

    /// Returns the number of the question that comes.
    fn asked(instance: &mut InstanceEnd) -> u32 {
        loop {
            if let Some(header) = instance.commands.next(&mut Vec::new()).unwrap() {
                return header.extra;
            }
            thread::yield_now();
        }
    }

    /// Returns the damage found by a program that asks for [`News::Caught`] and is answered with this.
    fn is_told(news: News) -> Option<Damaged> {
        let (mut instance, mut attached) = pair();
        thread::scope(|scope| {
            scope.spawn(|| {
                let answer = news.of_number(NO_NUMBER).flagged(LAST);
                let question = asked(&mut instance);
                assert!(instance.news.write(answer.and(question), &[]).unwrap());
                instance.show();
            });
            let ends = ["10.0.0.1:80", "10.0.0.2:80"].map(|end| end.parse().unwrap());
            assert!(attached.take_caught(ends[0], ends[1]).is_empty());
        });
        attached.failed
    }

    #[test]
    fn who_answers_with_what_was_not_asked_for_is_not_believed() {
        assert_eq!(is_told(News::Caught), None);
        for other in [News::Info, News::Detached, News::Octets] {
            assert_eq!(is_told(other), Some(Damaged("the answer to another question")));
        }
    }

    #[test]
    fn who_sleeps_while_another_asks_is_woken_by_what_comes_then() {
        let (mut instance, mut attached) = pair();
        let patience = Some(std::time::Duration::ZERO);
        let is_woken = |attached: &Attached| {
            let [bell, control] = attached.end.wakes();
            wait([bell, control], patience).unwrap();
            let is_rung = rustix::io::read(bell, &mut [0; 8]).is_ok();
            is_rung || recv(control, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_ok()
        };
        assert_eq!(attached.rest().1, None, "it sleeps");
        thread::scope(|scope| {
            scope.spawn(|| {
                let question = asked(&mut instance);
                let answer = News::Caught.of_number(NO_NUMBER).flagged(LAST).and(question);
                assert!(instance.news.write(answer, &[]).unwrap());
                instance.show();
            });
            let ends = ["10.0.0.1:80", "10.0.0.2:80"].map(|end| end.parse().unwrap());
            assert!(attached.take_caught(ends[0], ends[1]).is_empty());
        });
        assert!(!is_woken(&attached), "there is nothing else");
        assert!(instance.news.write(News::Refused.of_number(0), &[]).unwrap());
        instance.show();
        assert!(is_woken(&attached));
    }
}
