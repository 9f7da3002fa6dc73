//! What this guardian's programs have, as other guardians of the network namespace are told: each would steer all that comes
//! to a place to its own programs, and two would answer.
//!
//! A name in the abstract namespace of Unix sockets is one's alone, and goes with whoever has it, however he ends.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

/// Places, each with the name that says so.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashMap<SocketAddr, OwnedFd>);

impl Claims {
    /// Takes these, as far as they were not taken.
    ///
    /// # Errors
    ///
    /// A sentence, if another guardian's programs have one of them.
    pub(crate) fn take(&mut self, places: &[SocketAddr]) -> Result<(), String> {
        for place in places {
            if !self.0.contains_key(place) {
                self.0.insert(*place, claim(*place)?);
            }
        }
        Ok(())
    }

    /// Lets go of all but these.
    pub(crate) fn keep_only(&mut self, held: &HashSet<SocketAddr>) {
        self.0.retain(|place, _| held.contains(place));
    }
}

fn claim(place: SocketAddr) -> Result<OwnedFd, String> {
    let taken = || -> Result<OwnedFd, Errno> {
        let name = format!("uncork-owns-{place}");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(socket)
    };
    taken().map_err(|error| match error {
        Errno::ADDRINUSE => format!(
            "{place} is on the stack of another program, which has a guardian of its own: start both by one \
             `uncork run --stack`, or with one guardian (uncork stack guard)"
        ),
        error => format!("other guardians cannot be told of {place}: {error}"),
    })
}
