//! What this guardian's programs have, as other guardians of the network namespace are told: each would steer all that comes
//! to a place to its own programs, and two would answer.
//!
//! A name in the abstract namespace of Unix sockets is one's alone, and goes with whoever has it, however he ends.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;

/// Who asks whose a name is stays there.
const BACKLOG: i32 = 128;

/// Places, each with the name that says so.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashMap<SocketAddr, Option<OwnedFd>>);

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

/// None if somebody has the name who is no guardian.
fn claim(place: SocketAddr) -> Result<Option<OwnedFd>, String> {
    match take(place) {
        Ok(claim) => Ok(Some(claim)),
        Err(Errno::ADDRINUSE) if is_a_guardian_s(place) => Err(format!(
            "{place} is on the stack of another program, which has a guardian of its own: start both by one \
             `uncork run --stack`, or with one guardian (uncork stack guard)"
        )),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(format!("other guardians cannot be told of {place}: {error}")),
    }
}

fn take(place: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    bind(&socket, &name(place)?)?;
    // So that it can be seen whose it is.
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Whether root has the name, or who this is: anybody may take it, and is not to keep others from a port by that. Who cannot
/// be asked has been asked often, or is about to end: he is believed.
fn is_a_guardian_s(place: SocketAddr) -> bool {
    let asked = || -> Result<bool, Errno> {
        let socket = socket()?;
        connect(&socket, &name(place)?)?;
        let peer = getsockopt(&socket, PeerCredentials);
        let uid = peer.map_err(|error| Errno::from_raw_os_error(error as i32))?.uid();
        Ok(uid == 0 || uid == geteuid().as_raw())
    };
    asked().unwrap_or(true)
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn name(place: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("uncork-owns-{place}").as_bytes())
}
