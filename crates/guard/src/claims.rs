//! Claims to places, by which the guardians of a network namespace keep out of each other's way: otherwise each would steer
//! packets to one place to its own programs, and two would answer.
//!
//! A name in the abstract namespace of Unix sockets has a single owner, and goes away with it, however it ends.

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

use crate::limits::{Limits, ROOT};

/// Connections made only to find out who owns a name stay in this backlog.
const BACKLOG: i32 = 128;

/// How long the owner of a name may take from bind(2) to listen(2), if it ever listens.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Claimed places.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    of: HashMap<SocketAddr, Claimed>,
    /// How many of them were claimed for which user.
    counts: HashMap<Option<u32>, usize>,
}

#[derive(Debug)]
struct Claimed {
    /// The socket that bears the place's name; none if another program has taken the name.
    _name: Option<OwnedFd>,
    /// The user of the program for which it was claimed first.
    user: Option<u32>,
}

impl Claims {
    /// Claims these places for a program of this user, except those that are claimed already.
    ///
    /// # Errors
    ///
    /// A sentence, if another guardian's programs have one of them, or the user has as many as one may have.
    pub(crate) fn take(
        &mut self,
        places: &[SocketAddr],
        user: Option<u32>,
        limits: &Limits,
    ) -> Result<(), String> {
        for place in places {
            if !self.of.contains_key(place) {
                let of = |user| self.counts.get(&user).copied().unwrap_or_default();
                limits.admit_place(user, of(user), self.of.len() - of(Some(ROOT)))?;
                self.of.insert(*place, Claimed { _name: claim(*place)?, user });
                *self.counts.entry(user).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Drops all claims but these.
    pub(crate) fn keep_only(&mut self, held: &HashSet<SocketAddr>) {
        self.of.retain(|place, _| held.contains(place));
        self.counts.clear();
        for claimed in self.of.values() {
            *self.counts.entry(claimed.user).or_default() += 1;
        }
    }
}

/// Claims a place. `None` if its name belongs to a process that is no guardian.
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
                // The owner may have gone meanwhile, or be about to listen.
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
    // So that others can find out who owns it.
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The kind of process that owns the name of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Root's, or one of this process's own user.
    Guardians,
    /// Another user's: anybody can take such a name, and must not keep others from a port by that.
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
        // The backlog is full: a guardian never accepts, and another program may have left no room.
        Err(Errno::AGAIN) => match listens_at(place) {
            Ok(uid) => uid.map_or(Whose::Nobodys, of),
            // A kernel that does not tell (CONFIG_UNIX_DIAG): an owner that cannot be seen is believed.
            Err(_) => Whose::Guardians,
        },
        // A guardian that owns a place listens there.
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
