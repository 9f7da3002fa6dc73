//! The questions that are waited for: what the stack knows of a connection, the connection itself, and what has come
//! for it since.

use std::net::SocketAddr;
use std::time::Instant as Clock;

use uncork_stack::{Detached, Info, Instant, Snapshot, SocketId, State};

use super::Attached;
use super::mirror::Mirror;
use crate::record::{Ends, TOLD, UNREAD, next_segment};
use crate::terms::{PATIENCE, wait};
use crate::{Command, Header, News};

/// The number in questions about a connection that has none any more.
const NO_NUMBER: u32 = u32::MAX;

/// Answers, as they come.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The connection whose answer is waited for; others are of who has lost his patience.
    number: Option<u32>,
    bytes: Vec<u8>,
    /// What was given away, and how many octets the instance has of it.
    snapshot: Option<(Snapshot, usize)>,
    /// What was kept of it here.
    mirror: Option<Mirror>,
    is_over: bool,
}

impl Heard {
    fn begin(&mut self, number: u32) {
        *self = Self { number: Some(number), ..Self::default() };
    }

    fn take(&mut self, news: News, header: Header, bytes: &[u8]) {
        match news {
            News::Detached => match serde_json::from_slice::<Snapshot>(bytes) {
                Ok(snapshot) => {
                    let counts = [
                        snapshot.unread_bytes,
                        snapshot.unacknowledged_bytes,
                        snapshot.unsent_bytes,
                    ];
                    let octets = counts.into_iter().map(|count| count as usize).sum();
                    self.is_over = octets == 0;
                    self.snapshot = Some((snapshot, octets));
                }
                Err(_) => self.is_over = true,
            },
            News::Octets => {
                self.bytes.extend(bytes);
                self.is_over =
                    self.snapshot.as_ref().is_some_and(|(_, octets)| self.bytes.len() >= *octets);
            }
            _ => {
                self.bytes.extend(bytes);
                self.is_over = header.extra == 1;
            }
        }
    }
}

impl Attached {
    /// An answer, or a part of one.
    pub(super) fn answered(&mut self, news: News, header: Header, bytes: &[u8]) {
        let number = header.number;
        if news == News::Detached
            && let Some(at) = self.doubtful.iter().position(|one| *one == number)
        {
            self.doubtful.swap_remove(at);
            self.no_longer_doubtful(number, bytes.is_empty());
            return;
        }
        if self.heard.number != Some(number) {
            return;
        }
        self.heard.take(news, header, bytes);
        if news == News::Detached && self.heard.snapshot.is_some() {
            // Another connection may have the number from now on.
            self.heard.mirror =
                self.seats.get_mut(number as usize).and_then(|seat| seat.mirror.take());
        }
    }

    /// What was given away too late is nobody's, and its number may be another one's from now on. What was not is the instance's,
    /// which is told now what it was not told before.
    fn no_longer_doubtful(&mut self, number: u32, was_refused: bool) {
        let Some(seat) = self.seats.get_mut(number as usize) else { return };
        if !was_refused {
            seat.mirror = None;
        } else if seat.mirror.is_none() {
            self.order(Command::Close.of_number(number).flagged(UNREAD), &[]);
        }
    }

    /// Everything about a connection (TCP_INFO), as its instance knows it.
    pub fn info(&mut self, _: Instant, id: SocketId) -> Option<Info> {
        let number = self.number(id)?;
        let heard = self.ask(Command::AskInfo.of_number(number), &[])?;
        let mut info: Info = serde_json::from_slice(&heard.bytes).ok()?;
        let readable = self.get(id)?.incoming.len();
        // What has come to the program is no less unread for that.
        info.readable_bytes += u32::try_from(readable).unwrap_or(u32::MAX);
        Some(info)
    }

    /// Gives a connection away, and forgets it (`Stack::detach`).
    pub fn detach(&mut self, _: Instant, id: SocketId) -> Option<Detached> {
        let number = self.number(id)?;
        let is_told = self
            .mirror_at(number)
            .is_some_and(|mirror| mirror.state == State::Closed && mirror.error.is_none());
        let ask = Command::Detach.of_number(number).flagged(if is_told { TOLD } else { 0 });
        let Some(heard) = self.ask(ask, &[]) else {
            // It may be gone, or about to: nobody here can go on with it.
            if let Some(mirror) = self.mirror_at(number) {
                mirror.lose();
                self.note(number);
                if !self.doubtful.contains(&number) {
                    self.doubtful.push(number);
                }
            }
            return None;
        };
        let ((mut snapshot, _), mirror) = heard.snapshot.zip(heard.mirror)?;
        let (front, back) = mirror.incoming.as_slices();
        let unread = u32::try_from(mirror.incoming.len()).ok()?;
        snapshot.unread_bytes += unread;
        snapshot.receive_first = snapshot.receive_first.wrapping_sub(unread);
        Detached::new(snapshot, [front, back, &heard.bytes].concat())
    }

    /// What has come for a connection that was given away (`Stack::take_caught`).
    pub fn take_caught(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<Vec<u8>> {
        // Made of numbers: it can always be written.
        let ends = serde_json::to_vec(&Ends { local, remote }).unwrap_or_default();
        let heard = self.ask(Command::AskCaught.of_number(NO_NUMBER), &ends).unwrap_or_default();
        let mut rest = &heard.bytes[..];
        std::iter::from_fn(|| next_segment(&mut rest)).map(<[u8]>::to_vec).collect()
    }

    /// Asks, and waits for the answer; none if the instance gives none.
    fn ask(&mut self, question: Header, what: &[u8]) -> Option<Heard> {
        let heard = self.ask_and_wait(question, what);
        // Others sleep, perhaps: what has come for them was taken in here, and so was the ring for it.
        self.watch_on();
        heard
    }

    fn ask_and_wait(&mut self, question: Header, what: &[u8]) -> Option<Heard> {
        let number = question.number;
        if number != NO_NUMBER && self.doubtful.contains(&number) {
            return None;
        }
        self.heard.begin(number);
        self.order(question, what);
        let until = Clock::now() + PATIENCE;
        while !self.heard.is_over {
            // Its error is told by the next turn of everybody's.
            self.turn().ok()?;
            let left = until.saturating_duration_since(Clock::now());
            if left.is_zero() {
                self.heard = Heard::default();
                return None;
            }
            if !self.heard.is_over {
                let (_, limit) = self.rest();
                wait(self.end.wakes(), Some(limit.unwrap_or(left).min(left))).ok()?;
                // Or by its end.
                self.end.sleeper.was_woken();
            }
        }
        Some(std::mem::take(&mut self.heard))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;
    use crate::{accept, offer};

    #[test]
    fn who_sleeps_while_another_asks_is_woken_by_what_comes_then() {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut instance = offer(std::sync::Arc::new(ours)).unwrap();
        let mut attached = Attached::new(accept(theirs).unwrap());
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
                let mut asked = Vec::new();
                while instance.commands.next(&mut asked).unwrap().is_none() {
                    thread::yield_now();
                }
                let mut answer = News::Caught.of_number(NO_NUMBER);
                answer.extra = 1;
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
