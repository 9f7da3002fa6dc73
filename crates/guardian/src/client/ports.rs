//! Reserved ports, to open connections from.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::net::SendFlags;

use super::{Client, Unasked, failure};
use crate::{Answer, Ends, Error, Question, Reply, Request, channel};

/// How many connections of each kind are reported in one message, which would have room for three times as many.
const AT_A_TIME: usize = 128;

/// A question for ports that was sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: u32,
    from: IpAddr,
    remote: SocketAddr,
    /// The answer, once it has come.
    reply: Option<Reply>,
    /// Whether nobody will fetch the answer.
    forsaken: bool,
}

impl Client {
    /// Reserves ports of an address to open connections to one remote end from, `wanted` or fewer: those connections are the
    /// stack's from now on, and the kernel gives the ports to no other process. `socket` is any TCP socket of the kernel's, of
    /// this network namespace.
    ///
    /// The question is sent without waiting: [`Client::reserved`] waits for the answer, once, with the number returned here.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn reserve(
        &mut self,
        from: IpAddr,
        remote: SocketAddr,
        wanted: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<u32, Error> {
        let id = self.say(Request::Ports { from, remote, wanted }, Some(socket))?;
        let asked = Asked { id, from, remote, reply: None, forsaken: false };
        self.unasked.reserving.push(asked);
        Ok(id)
    }

    /// Waits for the ports that were asked for, and returns them.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another.
    pub fn reserved(&mut self, id: u32) -> Result<Vec<u16>, Error> {
        let all = &self.unasked.reserving;
        let at = all.iter().position(|asked| asked.id == id).ok_or(Error::Language)?;
        let reply = match self.unasked.reserving.swap_remove(at) {
            Asked { reply: Some(reply), .. } => reply,
            waits => match self.hear(id) {
                Ok((reply, _)) => reply,
                Err(error) => {
                    if matches!(error, Error::Slow(_)) {
                        // The answer still comes.
                        self.unasked.reserving.push(Asked { forsaken: true, ..waits });
                    }
                    return Err(error);
                }
            },
        };
        match reply {
            Reply::Ports { ports } => Ok(ports),
            Reply::Refused { why } => Err(Error::Refused(why)),
            _ => Err(Error::Language),
        }
    }

    /// Gives up ports that were asked for: they are returned when the answer has come.
    pub fn forsake(&mut self, id: u32) {
        let all = &mut self.unasked.reserving;
        let Some(at) = all.iter().position(|asked| asked.id == id) else { return };
        all[at].forsaken = true;
        if let Some(reply) = all[at].reply.take() {
            self.unasked.keep(Answer { id, reply }, None);
        }
    }

    /// Reports connections from reserved ports: `closed` ones in TIME-WAIT, and `over` ones that are over, or were never
    /// opened. The report is sent without waiting; what the guardian does not take now is sent the next time, or by
    /// [`Client::check`].
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn over(&mut self, closed: &[Ends], over: &[Ends]) -> Result<(), Error> {
        self.unasked.closed.extend(closed);
        self.unasked.over.extend(over);
        self.say_what_is_over(SendFlags::DONTWAIT)
    }

    /// Waits until the guardian has received all such reports.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.done(Request::Settle, None)
    }

    pub(super) fn say_what_is_over(&mut self, flags: SendFlags) -> Result<(), Error> {
        while let Some(&local) = self.unasked.disowned.last() {
            self.last = self.last.wrapping_add(1);
            let question = Question { id: self.last, request: Request::Disown { local } };
            channel::send(self.socket.as_fd(), &question, None, flags)
                .map_err(|error| failure("tell the guardian", error))?;
            self.unasked.disowned.pop();
        }
        loop {
            let Unasked { closed, over, .. } = &self.unasked;
            let closes = closed.len().min(AT_A_TIME);
            // A connection may be both: it is reported as over after all that are closed.
            let overs = if closes == closed.len() { over.len().min(AT_A_TIME) } else { 0 };
            if closes == 0 && overs == 0 {
                return Ok(());
            }
            let (closed, over) = (closed[..closes].to_vec(), over[..overs].to_vec());
            self.last = self.last.wrapping_add(1);
            let question = Question { id: self.last, request: Request::Over { closed, over } };
            channel::send(self.socket.as_fd(), &question, None, flags)
                .map_err(|error| failure("tell the guardian", error))?;
            self.unasked.closed.drain(..closes);
            self.unasked.over.drain(..overs);
        }
    }
}

impl Unasked {
    /// Stores the answer to a question for ports, or returns the ports if nobody wants them.
    pub(super) fn keep_ports(&mut self, at: usize, reply: Reply) {
        if !self.reserving[at].forsaken {
            self.reserving[at].reply = Some(reply);
            return;
        }
        let Asked { from, remote, .. } = self.reserving.swap_remove(at);
        if let Reply::Ports { ports } = reply {
            let ends = |port| (SocketAddr::new(from, port), remote);
            self.over.extend(ports.into_iter().map(ends));
        }
    }
}
