//! Where devices come from, and who keeps the kernel's hands off what is ours: the privileged half.

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
    /// The kernel's number of it.
    pub index: u32,
    /// Frames in and out.
    pub driver: Box<dyn Driver + Send>,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The host's addresses on it.
    pub addresses: Vec<Cidr>,
    /// For how long frames may wait for others, at the most.
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
    /// This process's own.
    Own(Vec<Device>),
    /// Those of an instance's, which has the stack.
    Attached(Box<Attachment>),
}

/// What an instance has for this process.
#[derive(Debug)]
pub struct Attachment {
    /// The kernel's numbers of its devices, and their names.
    pub devices: Vec<(u32, String)>,
    /// The host's addresses on them, each with its device.
    pub addresses: Vec<(u32, IpAddr)>,
    /// The way to it.
    pub end: ProgramEnd,
}

/// Why something stays with the kernel: a sentence for whoever asks.
pub type Reason = String;

/// Hears of a listener's descriptor that it is on the stack, or why it is not.
pub type Tell = fn(RawFd, Result<(), &str>);

/// Both ends of a connection, ours first.
pub type Ends = (SocketAddr, SocketAddr);

/// Connections from reserved ports ([`Host::reserve`]) that are no more what they were.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Past {
    /// In TIME-WAIT: their ports are for anybody.
    pub closed: Vec<Ends>,
    /// Over.
    pub over: Vec<Ends>,
    /// They will not be opened.
    pub unused: Vec<Ends>,
}

/// The privileged half, as a process knows it.
pub trait Host: Send {
    /// The same, for another thread's stack or a child of fork: it knows nothing of this one.
    fn another(&self) -> Box<dyn Host>;

    /// Opens the devices, or attaches to who has them.
    ///
    /// # Errors
    ///
    /// Why there are none.
    fn open(&mut self) -> Result<Opened, Reason>;

    /// Whether they can be closed, and opened again when they are needed.
    fn can_close_devices(&self) -> bool {
        false
    }

    /// That was done.
    fn has_closed_devices(&mut self) {}

    /// What stacks of this process are to be like, by what the host's settings say and who has started it.
    fn config(&mut self) -> Config {
        Config::of_programs()
    }

    /// What comes to this end, at which somebody listens, is the stack's from now on. An unspecified
    /// address means all that the devices have. `listening` is the kernel's descriptor that listens there.
    ///
    /// # Errors
    ///
    /// Why it stays the kernel's.
    fn own(&mut self, local: SocketAddr, listening: RawFd) -> Result<(), Reason>;

    /// The same before the devices are open, where who comes is the kernel's in any case ([`Host::next_kernels`]). Whether it is.
    fn own_kernels(&mut self, _local: SocketAddr, _listening: RawFd) -> bool {
        false
    }

    /// It is the kernel's again, or that of other processes that own it.
    fn disown(&mut self, local: SocketAddr);

    /// Whether other processes have this end, too.
    fn has_others(&mut self, local: SocketAddr) -> bool;

    /// This process serves one short connection after the other at `local`: if others do, too, who comes there is the kernel's
    /// from now on ([`Host::next_kernels`]).
    fn takes_turns(&mut self, _local: SocketAddr) {}

    /// Who comes to `local` is the kernel's from now on, whether others have it, too, or not ([`Host::next_kernels`]).
    fn renounces(&mut self, _local: SocketAddr) {}

    /// Whether what the kernel is quicker for is to stay on the stack, too.
    fn stays(&self) -> bool {
        false
    }

    /// A connection that waits to be accepted at `local` is for another process that listens there.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    fn pass_on(&mut self, local: SocketAddr, waiting: OwnedFd) -> Result<(), Reason>;

    /// A connection that was the stack's becomes the kernel's, in a new socket, which is of IPv6 if `inet6`, and has these
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

    /// The next connection of the kernel's that this process is to accept in another one's place, with our end
    /// of it.
    fn next_passed(&mut self) -> Option<(SocketAddr, OwnedFd)>;

    /// The next end that this process owns and at which who comes is the kernel's from now on ([`Host::disown`] as ever).
    fn next_kernels(&mut self) -> Option<SocketAddr> {
        None
    }

    /// The end of a stream where somebody wants to be told what the stack does.
    fn next_asker(&mut self) -> Option<OwnedFd>;

    /// Devices that could not be opened, each with why: what comes by them is the kernel's.
    fn missing_devices(&self) -> &[String] {
        &[]
    }

    /// Why queues of devices that have come are not used, a sentence each.
    fn unused_queues(&self) -> &[String] {
        &[]
    }

    /// What comes from `remote` to `local` is the stack's from now on. `bound` is the kernel's descriptor that
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
    /// then on, and nothing else has to be asked for them. `socket` is a descriptor of a socket of TCP. Gives the number of
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

    /// What has become of that, once: it is waited for.
    ///
    /// # Errors
    ///
    /// As [`Host::reserve`].
    fn reserved(&mut self, asked: u32) -> Result<Vec<u16>, Reason>;

    /// Nobody will ask for what this question brings: it is given back.
    fn forsake(&mut self, asked: u32);

    /// Waits until all that was said before has been done.
    fn settle(&mut self);

    /// What has become of connections from such ports, and what could not be said the last time. Whether all of it could be
    /// said now.
    fn are_past(&mut self, past: Past) -> bool;

    /// It is the kernel's again.
    fn disown_connection(&mut self, local: SocketAddr, remote: SocketAddr);

    /// A segment of the peer's that the stack has got when `fd` had become the kernel's already, with the ends that it has: the
    /// kernel is to have it, too. If it cannot, the peer sends it again.
    fn bring(&mut self, ends: (SocketAddr, SocketAddr), fd: RawFd, segment: &[u8]);

    /// The process ends before a connection that it has closed does: the kernel sends what is left.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    fn let_go(&mut self, detached: &Detached) -> Result<(), Reason>;

    /// What the host's settings permit of TCP Fast Open (net.ipv4.tcp_fastopen), at this moment.
    fn fast_open(&mut self) -> FastOpen {
        FastOpen(0)
    }

    /// What cookies are to be made with that all of the program's processes take; none if nobody knows.
    fn fast_open_keys(&mut self) -> Option<FastOpenKeys> {
        None
    }

    /// Readable when [`Host::is_gone`] has to be asked.
    fn wakes(&self) -> Option<RawFd>;

    /// Whether the privileged half has ended, and with it all that it had attached: the kernel gets what was the
    /// stack's.
    fn is_gone(&mut self) -> bool;

    /// Whether it is about to end, and waits for this process to leave it ([`Host::quit`]).
    fn is_to_be_left(&mut self) -> bool;

    /// Nothing is asked of it any more.
    fn quit(&mut self);

    /// The stack has this connection, for whoever has to end it if this process dies. None if the list is
    /// full.
    fn enter(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u32>;

    /// It has it no more.
    fn leave(&mut self, entry: u32);

    /// Its own descriptors in this process, which the program knows nothing of.
    fn descriptors(&self) -> Vec<RawFd>;
}

/// A connection in the list of the privileged half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Where it stands, if there was room.
    pub(crate) at: Option<u32>,
}
