//! What this guardian's programs have, as other guardians of the network namespace are told: each would steer all that comes
//! to a place to its own programs, and two would answer.
//!
//! A name in the abstract namespace of Unix sockets is one's alone, and goes with whoever has it, however he ends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Uid, geteuid};
use uncork_sockdiag::SockDiag;

/// Who asks whose a name is stays there.
const BACKLOG: i32 = 128;

/// After so long somebody who has a name listens there, if he does.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

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
    let mut again = true;
    loop {
        match take(place) {
            Ok(claim) => return Ok(Some(claim)),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => {
                return Err(format!("other guardians cannot be told of {place}: {error}"));
            }
        }
        match whose(place) {
            Whose::Guardians => {
                return Err(format!(
                    "{place} is on the stack of another program, which has a guardian of its own: start both by one \
                     `uncork run --stack`, or with one guardian (uncork stack guard)"
                ));
            }
            Whose::Nobodys if again => {
                // It may have gone meanwhile, or be about to be listened at.
                again = false;
                std::thread::sleep(BETWEEN_LOOKS);
            }
            Whose::Nobodys => return Ok(None),
        }
    }
}

fn take(place: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    bind(&socket, &address(place)?)?;
    // So that it can be seen whose it is.
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Who has the name of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Root's, or of who this is.
    Guardians,
    /// Of somebody else, who may take it like anybody, and is not to keep others from a port by that.
    Nobodys,
}

fn whose(place: SocketAddr) -> Whose {
    let connected = || -> Result<Uid, Errno> {
        let socket = socket()?;
        connect(&socket, &address(place)?)?;
        let peer = getsockopt(&socket, PeerCredentials);
        Ok(Uid::from_raw(peer.map_err(|error| Errno::from_raw_os_error(error as i32))?.uid()))
    };
    match connected() {
        Ok(uid) => of(uid),
        // As many have asked as there is room for: a guardian takes none of them, and somebody else makes none.
        Err(Errno::AGAIN) => match listens_at(place) {
            Ok(uid) => uid.map_or(Whose::Nobodys, of),
            // A kernel that does not tell (CONFIG_UNIX_DIAG): who cannot be seen is believed.
            Err(_) => Whose::Guardians,
        },
        // Whoever says that he has a place listens there.
        Err(_) => Whose::Nobodys,
    }
}

fn of(uid: Uid) -> Whose {
    if uid.is_root() || uid == geteuid() { Whose::Guardians } else { Whose::Nobodys }
}

fn listens_at(place: SocketAddr) -> io::Result<Option<Uid>> {
    let uid = SockDiag::open()?.listens_at(name(place).as_bytes())?;
    Ok(uid.map(Uid::from_raw))
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn address(place: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name(place).as_bytes())
}

fn name(place: SocketAddr) -> String {
    format!("uncork-owns-{place}")
}
