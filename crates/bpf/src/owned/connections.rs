//! Entering many connections at once: a system call for each would delay all that wait for the process that enters them.

use std::net::{IpAddr, SocketAddr};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::layout::{connection_key, entered};
use super::{Engine, Error, KERNEL, Ours, Owned, Protocol, Whence, full};

/// Most connections in one system call.
const AT_ONCE: usize = 4096;

/// Flag beside an engine's number (`owned/maps.h`).
const CAME: u32 = 1 << 31;

/// The local and the remote end of a TCP connection.
pub type Ends = (SocketAddr, SocketAddr);

/// The owner of connections.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub enum Whose<'a> {
    /// The engine to whose port it has come, for as long as the engine, or its user ([`Owned::leave_to_user`]), has the port.
    /// After that it gives way to a new SYN between these ends, or to an answer to one, as if nothing had been entered. What
    /// comes by another device than that of the local address is the kernel's.
    Engines(Engine, &'a dyn Fn(IpAddr) -> Whence),
    /// The kernel, regardless of the port's owner.
    Kernels,
}

impl Whose<'_> {
    /// Returns the entry of a connection with this local address.
    fn entry(self, local: IpAddr) -> [u8; 8] {
        match self {
            Self::Engines(engine, whence) => entered(engine.0.get() | CAME, whence(local)),
            Self::Kernels => entered(KERNEL, Whence::Anywhere),
        }
    }
}

impl Owned {
    /// Enters these connections for an owner; `new` of them are new here.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error. None of them is entered then.
    pub fn enter_all(&self, whose: Whose<'_>, all: &[Ends], new: usize) -> Result<(), Error> {
        if all.is_empty() {
            return Ok(());
        }
        // Before they are entered, or the programs would not look for them.
        self.counts.so_many_more(Ours::Connection(Protocol::Tcp, all[0].0, all[0].1), new)?;
        let entered = all.chunks(AT_ONCE).try_for_each(|some| {
            let keys = keys(some);
            let values: Vec<_> =
                some.iter().flat_map(|(local, _)| whose.entry(local.ip())).collect();
            let count = u32::try_from(some.len()).unwrap_or(0);
            let (any, none) = (MapFlags::ANY, MapFlags::ANY);
            self.connections().update_batch(&keys, &values, count, any, none).map_err(full)
        });
        entered.inspect_err(|_| {
            for some in all.chunks(AT_ONCE) {
                self.delete_all(some);
            }
            let what = Ours::Connection(Protocol::Tcp, all[0].0, all[0].1);
            let _ = self.counts.so_many_less(what, new);
        })
    }

    /// Removes these connections, which have been entered ([`Owned::disown`]).
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn disown_all(&self, all: &[Ends]) -> Result<(), Error> {
        for some in all.chunks(AT_ONCE) {
            self.delete_all(some);
            let what = Ours::Connection(Protocol::Tcp, some[0].0, some[0].1);
            self.counts.so_many_less(what, some.len())?;
        }
        Ok(())
    }

    fn delete_all(&self, some: &[Ends]) {
        let count = u32::try_from(some.len()).unwrap_or(0);
        let (any, none) = (MapFlags::ANY, MapFlags::ANY);
        if self.connections().delete_batch(&keys(some), count, any, none).is_ok() {
            return;
        }
        // The batch stops at the first that is missing.
        for (local, remote) in some {
            let _ = self.connections().delete(&connection_key(Protocol::Tcp, *local, *remote));
        }
    }

    /// Whether a new connection has begun between these ends, which were an engine's until then ([`Whose::Engines`]).
    #[must_use]
    pub fn has_given_way(&self, (local, remote): Ends) -> bool {
        let key = connection_key(Protocol::Tcp, local, remote);
        let found = self.connections().lookup(&key, MapFlags::ANY).ok().flatten();
        // If the kernel returns an error, nothing has changed.
        found.as_deref().and_then(word) == Some(CAME)
    }

    /// Returns the engine to which the last SYN between these ends has gone, if their port is shared.
    #[must_use]
    pub fn begun_by(&self, (local, remote): Ends) -> Option<Engine> {
        let key = connection_key(Protocol::Tcp, local, remote);
        let found = self.programs.maps()[4].lookup(&key, MapFlags::ANY).ok()??;
        word(&found).and_then(std::num::NonZeroU32::new).map(Engine)
    }

    fn connections(&self) -> &MapHandle {
        &self.programs.maps()[2]
    }
}

/// The first word of a value.
fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
}

fn keys(all: &[Ends]) -> Vec<u8> {
    let key = |(local, remote): &Ends| connection_key(Protocol::Tcp, *local, *remote);
    all.iter().flat_map(key).collect()
}
