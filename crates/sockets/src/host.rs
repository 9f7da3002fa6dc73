//! The privileged half: where devices come from, and what keeps the kernel from answering what is ours.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use uncork_attach::ProgramEnd;
use uncork_driver::Driver;
use uncork_stack::{Cidr, Config, Detached, FastOpen, FastOpenKeys, Mac};

use crate::asked::Setting;

/// An open device.
pub struct Device {
    /// Its name.
    pub name: String,
    /// The kernel's number of it (ifindex).
    pub index: u32,
    /// Frames in and out.
    pub driver: Box<dyn Driver + Send>,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The host's addresses on it.
    pub addresses: Vec<Cidr>,
    /// The longest time for which frames may wait for others.
    pub moderation: Duration,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The devices that the stack uses.
#[derive(Debug)]
pub enum Opened {
    /// This process's own devices.
    Own(Vec<Device>),
    /// The devices of an instance, which has the stack.
    Attached(Box<Attachment>),
}

/// What an instance has for this process.
#[derive(Debug)]
pub struct Attachment {
    /// The kernel's numbers of its devices, and their names.
    pub devices: Vec<(u32, String)>,
    /// The host's addresses on them, each with its device.
    pub addresses: Vec<(u32, IpAddr)>,
    /// The connection to it.
    pub end: ProgramEnd,
}

/// Why something stays with the kernel: a sentence for a user who asks.
pub type Reason = String;

/// Is told of a listener's descriptor that it is on the stack, or why it is not.
pub type Tell = fn(RawFd, Result<(), &str>);

/// Both ends of a connection, ours first.
pub type Ends = (SocketAddr, SocketAddr);

/// Connections from reserved ports ([`Host::reserve`]) that are no longer what they were.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Past {
    /// Connections in TIME-WAIT: their ports are for anybody.
    pub closed: Vec<Ends>,
    /// Connections that are over.
    pub over: Vec<Ends>,
    /// Connections that will not be opened.
    pub unused: Vec<Ends>,
}

/// The privileged half, as a process knows it.
pub trait Host: Send {
    /// Returns another one, for another thread's stack or a child of fork: it knows nothing of this one.
    fn another(&self) -> Box<dyn Host>;

    /// Opens the devices, or attaches to the instance that has them.
    ///
    /// # Errors
    ///
    /// Why there are none.
    fn open(&mut self) -> Result<Opened, Reason>;

    /// Returns whether the devices can be closed, and opened again when they are needed.
    fn can_close_devices(&self) -> bool {
        false
    }

    /// Notes that the devices were closed.
    fn has_closed_devices(&mut self) {}

    /// Returns what stacks of this process are to be like, by the host's settings and by what started the process.
    fn config(&mut self) -> Config {
        Config::of_programs()
    }

    /// Makes what comes to this end, at which a socket listens, the stack's from now on. An unspecified
    /// address means all that the devices have. `listening` is the kernel's descriptor that listens there.
    ///
    /// # Errors
    ///
    /// Why it stays the kernel's.
    fn own(&mut self, local: SocketAddr, listening: RawFd) -> Result<(), Reason>;

    /// Claims an end before the devices are open, if what comes is the kernel's anyway ([`Host::next_kernels`]); returns whether.
    fn own_kernels(&mut self, _local: SocketAddr, _listening: RawFd) -> bool {
        false
    }

    /// Gives an end back to the kernel, or to other processes that own it.
    fn disown(&mut self, local: SocketAddr);

    /// Returns whether other processes have this end, too.
    fn has_others(&mut self, local: SocketAddr) -> bool;

    /// Reports that this process serves one short connection after the other at `local`: if others do, too, what comes there is
    /// the kernel's from now on ([`Host::next_kernels`]).
    fn takes_turns(&mut self, _local: SocketAddr) {}

    /// Gives what comes to `local` to the kernel from now on, whether others have it, too, or not ([`Host::next_kernels`]).
    fn renounces(&mut self, _local: SocketAddr) {}

    /// Returns whether what the kernel is quicker for is to stay on the stack, too.
    fn stays(&self) -> bool {
        false
    }

    /// Passes a connection that waits to be accepted at `local` to another process that listens there.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    fn pass_on(&mut self, local: SocketAddr, waiting: OwnedFd) -> Result<(), Reason>;

    /// Makes a connection that was the stack's the kernel's, in a new socket, which is of IPv6 if `inet6`, and has these
    /// settings.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    fn to_kernel(
        &mut self,
        detached: &Detached,
        inet6: bool,
        settings: &[Setting],
    ) -> Result<OwnedFd, Reason>;

    /// Takes the next kernel connection that this process is to accept in another one's place, with our end
    /// of it.
    fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)>;

    /// Takes the next end that this process owns, and goes on to ([`Host::disown`]), and where what comes is now the kernel's.
    fn next_kernels(&mut self) -> Option<SocketAddr> {
        None
    }

    /// Takes the stream of the next client that wants to be told what the stack does.
    fn next_asker(&mut self) -> Option<OwnedFd>;

    /// Returns the devices that could not be opened, each with why: what comes by them is the kernel's.
    fn missing_devices(&self) -> &[String] {
        &[]
    }

    /// Returns why queues of devices that were handed over are not used, a sentence each.
    fn unused_queues(&self) -> &[String] {
        &[]
    }

    /// Makes what comes from `remote` to `local` the stack's from now on. `bound` is the kernel's descriptor that
    /// is bound to `local`.
    ///
    /// # Errors
    ///
    /// Why it stays the kernel's.
    fn own_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bound: RawFd,
    ) -> Result<(), Reason>;

    /// Asks for ports of an address to open connections to one remote end from, `wanted` or fewer: those are the stack's from
    /// then on, and nothing else has to be asked for them. `socket` is the descriptor of a TCP socket. Returns the number of
    /// the question.
    ///
    /// # Errors
    ///
    /// Why there are none: the kernel is to be asked for each.
    fn reserve(
        &mut self,
        from: IpAddr,
        remote: SocketAddr,
        wanted: u16,
        socket: RawFd,
    ) -> Result<u32, Reason>;

    /// Waits for the answer to that, and returns it, once.
    ///
    /// # Errors
    ///
    /// As [`Host::reserve`].
    fn reserved(&mut self, asked: u32) -> Result<Vec<u16>, Reason>;

    /// Gives up the answer to this question: what it brings is given back.
    fn forsake(&mut self, asked: u32);

    /// Waits until all that was said before has been done.
    fn settle(&mut self);

    /// Reports what has become of connections from such ports, and what could not be reported the last time. Returns whether all
    /// of it could be now.
    fn are_past(&mut self, past: Past) -> bool;

    /// Gives a connection back to the kernel.
    fn disown_connection(&mut self, local: SocketAddr, remote: SocketAddr);

    /// Gives the kernel a segment of the peer, and the connection's ends, that the stack has got when `fd` had become the
    /// kernel's already. If the kernel cannot take it, the peer retransmits it.
    fn bring(&mut self, ends: (SocketAddr, SocketAddr), fd: RawFd, segment: &[u8]);

    /// Gives a connection that the process has closed to the kernel, as the process ends before it: the kernel sends the rest.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    fn let_go(&mut self, detached: &Detached) -> Result<(), Reason>;

    /// Returns what the host's settings permit of TCP Fast Open (net.ipv4.tcp_fastopen) at this moment.
    fn fast_open(&mut self) -> FastOpen {
        FastOpen(0)
    }

    /// Returns the keys of cookies that all of the program's processes take; none if they are not known.
    fn fast_open_keys(&mut self) -> Option<FastOpenKeys> {
        None
    }

    /// Returns the descriptor that is readable when [`Host::is_gone`] has to be asked.
    fn wakes(&self) -> Option<RawFd>;

    /// Returns whether the privileged half has ended, and with it all that it had attached: the kernel gets what was the
    /// stack's.
    fn is_gone(&mut self) -> bool;

    /// Returns whether it is about to end, and waits for this process to leave it ([`Host::quit`]).
    fn is_to_be_left(&mut self) -> bool;

    /// Leaves it: nothing is asked of it any more.
    fn quit(&mut self);

    /// Enters a connection on the stack in the list of those that have to be ended if this process dies. None if the list
    /// is full.
    fn enter(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u32>;

    /// Removes a connection from that list.
    fn leave(&mut self, entry: u32);

    /// Returns its own descriptors in this process, which the program does not know of.
    fn descriptors(&self) -> Vec<RawFd>;
}

/// A connection in the list of the privileged half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Its place there, if there was room.
    pub(crate) at: Option<u32>,
}
