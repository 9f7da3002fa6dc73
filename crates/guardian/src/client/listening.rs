//! Ports at which a program listens.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::Client;
use crate::{Error, Request};

impl Client {
    /// From now on what comes to this port is the stack's, but for the connections that the kernel has there
    /// already; of an unspecified address: on all addresses of the devices. `listening` is the kernel's
    /// socket that listens there, which proves that this program may have the port. If other processes
    /// own it, too, connections are shared out among all of them.
    ///
    /// The kernel is asked for its connections just before and just after. For half a second after this
    /// has returned, the stack must not reset what it does not know on that port: it may be a segment of one
    /// that began in between.
    ///
    /// It may be owned several times; as often it has to be disowned.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another.
    pub fn own(&mut self, local: SocketAddr, listening: BorrowedFd<'_>) -> Result<(), Error> {
        self.done_or_undone(Request::Own { local }, listening)
    }

    /// The same before a device is open, where who comes is the kernel's in any case as in [`Client::next_kernels`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] where it is not, or another.
    pub fn own_kernels(
        &mut self,
        local: SocketAddr,
        listening: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        self.done_or_undone(Request::OwnKernels { local }, listening)
    }

    /// New connections to this port are the kernel's again, or those of others who own it, if there are any. Those
    /// that are in the table stay the stack's. Where the guardian is slow it is said, and not waited for.
    ///
    /// # Errors
    ///
    /// [`Error`] says which.
    pub fn disown(&mut self, local: SocketAddr) -> Result<(), Error> {
        let done = self.done_or_said(Request::Disown { local }, None);
        // Whoever owns it next has to hear of that anew.
        self.unasked.kernels.retain(|other| plain(*other) != plain(local));
        done
    }

    /// Gives a connection of the kernel's that waits to be accepted at a port to another process that owns it, be it
    /// after a while: as long as somebody listens there, and for ten seconds. Then it is reset.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is none, or another.
    pub fn pass_on(&mut self, local: SocketAddr, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.done_or_said(Request::PassOn { local }, Some(socket))
    }

    /// A connection of the kernel's that another process had to accept and this one has now, with our end of it.
    /// They come when the descriptor is readable and [`Client::check`] is called, or in the middle of other questions.
    pub fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)> {
        self.unasked.passed.pop_front()
    }

    /// A port that this program owns and at which who comes is the kernel's from now on, as the processes that own it leave it
    /// to one another again and again. They come as those do.
    pub fn next_kernels(&mut self) -> Option<SocketAddr> {
        self.unasked.kernels.pop_front()
    }

    /// Whether others have a port, too, that this program owns.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if nobody has, or another.
    pub fn others(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done(Request::Others { local }, None)
    }

    /// This process serves one short connection after the other at a port that it owns. If others have it, too, who comes there
    /// is the kernel's from now on ([`Client::next_kernels`]).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if nobody has, or another.
    pub fn takes_turns(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done_or_said(Request::TakesTurns { local }, None)
    }

    /// Who comes to a port that this program owns is to be the kernel's, whether others have it, too, or not.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if it is not owned, or another.
    pub fn renounces(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done_or_said(Request::Renounces { local }, None)
    }
}

/// The guardian's way to write an end of IPv4.
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
