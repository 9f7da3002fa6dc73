//! Ports at which a program listens.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::Client;
use crate::{Error, Request};

impl Client {
    /// Claims a port: from now on packets to it are the stack's, except those of connections that the kernel already has there;
    /// for an unspecified address, on all addresses of the devices. `listening` is the kernel's socket that listens there, which
    /// proves that this program may have the port. If other processes own it, too, connections are shared among all of them.
    ///
    /// The kernel is asked for its connections just before and just after. For half a second after this
    /// has returned, the stack must not reset unknown segments at that port: they may belong to a connection
    /// that began in between.
    ///
    /// A port may be claimed several times, and has to be disowned as often.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another.
    pub fn own(&mut self, local: SocketAddr, listening: BorrowedFd<'_>) -> Result<(), Error> {
        self.done_or_undone(Request::Own { local }, listening)
    }

    /// Claims a port before a device is open, where connections are the kernel's in any case (see [`Client::next_kernels`]).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] where they are not, or another.
    pub fn own_kernels(
        &mut self,
        local: SocketAddr,
        listening: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        self.done_or_undone(Request::OwnKernels { local }, listening)
    }

    /// Gives up a port: new connections go to the kernel again, or to others that own it. Connections in the table
    /// stay the stack's. If the guardian is slow, this does not wait for it.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn disown(&mut self, local: SocketAddr) -> Result<(), Error> {
        let done = self.done_or_said(Request::Disown { local }, None);
        // The next process that owns it has to be told anew.
        self.unasked.kernels.retain(|other| plain(*other) != plain(local));
        done
    }

    /// Gives a kernel connection that waits to be accepted at a port to another process that owns it, if necessary later:
    /// for ten seconds, and as long as any process listens there. Then it is reset.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is none, or another.
    pub fn pass_on(&mut self, local: SocketAddr, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.done_or_said(Request::PassOn { local }, Some(socket))
    }

    /// Returns the next kernel connection that another process was to accept and this one now has, with its local end.
    /// Connections arrive when the descriptor is readable and [`Client::check`] is called, or together with other answers.
    pub fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)> {
        self.unasked.passed.pop_front()
    }

    /// Returns the next port that this program owns and whose new connections are the kernel's from now on, as its owners leave
    /// it to one another again and again. Ports arrive as for [`Client::next_passed`].
    pub fn next_kernels(&mut self) -> Option<SocketAddr> {
        self.unasked.kernels.pop_front()
    }

    /// Checks that other programs have a port that this program owns.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if no other has, or another.
    pub fn others(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done(Request::Others { local }, None)
    }

    /// Reports that this process serves one short connection after another at a port that it owns. If others have it, too, new
    /// connections there are the kernel's from now on ([`Client::next_kernels`]).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if no other has, or another.
    pub fn takes_turns(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done_or_said(Request::TakesTurns { local }, None)
    }

    /// Leaves new connections at a port that this program owns to the kernel, whether others have it or not.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if it is not owned, or another.
    pub fn renounces(&mut self, local: SocketAddr) -> Result<(), Error> {
        self.done_or_said(Request::Renounces { local }, None)
    }
}

/// Writes IPv4 ends as the guardian does.
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}
