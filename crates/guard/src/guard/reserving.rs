//! Ports that a program may open connections from without asking for each.
//!
//! Asking for each connection would cost two wake-ups of other processes before its SYN, and two more after its end: five times
//! what the kernel takes to open one. So a program that opens several connections to one remote end gets ports in advance. The
//! guardian itself binds a socket to each, so that the kernel gives it to nobody else, whatever the program does.
//!
//! Where the stack is an instance's, so are the connections and the ports: the instance says when they are over.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with,
};
use rustix::process::{Resource, getrlimit};
use uncork_guardian::{Ends, Reply};

use super::{Guard, sessions};
use crate::proof;
use crate::session::Role;
use crate::steering::plain;
use uncork_closing::ClosedApart;

/// How many ports may be asked for at a time.
const AT_A_TIME: u16 = 64;
/// If so many ports in a row are taken, nearly all are.
const TRIES: usize = 16;
/// One part in so many of this process's descriptors, and of the ephemeral ports, may be reserved: others need some, whatever a
/// program asks for. One program may have one part in so many of those. A program that gets none binds a port itself.
const SHARE: usize = 2;
/// The refusal where no more ports may be reserved.
const FULL: &str = "as many ports are reserved as may be: half of those that there are, or of the guardian's descriptors, and \
                    half of that for one program";
/// How many ports there are where the kernel does not tell: its own default (ip(7), ip_local_port_range).
const PORTS: usize = 60_999 - 32_768 + 1;

impl Guard {
    /// Reserves ports for a program.
    pub(super) fn reserve(
        &mut self,
        at: usize,
        from: IpAddr,
        remote: SocketAddr,
        wanted: u16,
        socket: Option<&ClosedApart>,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        let from = from.to_canonical();
        if self.steering.device_of(from).is_none() {
            return Err(format!("{from} is on none of the stack's devices"));
        }
        proof::that_it_may_take(socket, self.listener.as_fd())?;
        // The ports of a guest are its instance's.
        let holder = self.instance_of(at)?.unwrap_or(at);
        let room = self.room_for_ports(at, holder)?.min(usize::from(wanted.min(AT_A_TIME)));
        let mut ports = Vec::new();
        while ports.len() < room {
            match self.reserve_one((at, holder), from, remote) {
                Ok(port) => ports.push(port),
                // Some are better than none.
                Err(_) if !ports.is_empty() => break,
                Err(why) => return Err(why),
            }
        }
        if ports.is_empty() {
            return Err(FULL.to_owned());
        }
        if holder != at {
            self.grant_ports((at, holder), (from, remote), &ports)?;
        }
        Ok((Reply::Ports { ports }, None))
    }

    /// Grants a guest connections from ports that are reserved for its instance.
    fn grant_ports(
        &mut self,
        (at, instance): (usize, usize),
        (from, remote): (IpAddr, SocketAddr),
        ports: &[u16],
    ) -> Result<(), String> {
        let ends = |port: &u16| (SocketAddr::new(from, *port), remote);
        let session = self.session_mut(at)?;
        ports.iter().for_each(|port| session.add(ends(port)));
        let told = ports.to_vec();
        let word = |program| Reply::GrantedPorts { program, from, remote, ports: told };
        self.tell(at, word, None).inspect_err(|_| {
            self.let_over_of_stack(instance, &[], &ports.iter().map(ends).collect::<Vec<_>>());
        })
    }

    fn reserve_one(
        &mut self,
        (at, holder): (usize, usize),
        from: IpAddr,
        remote: SocketAddr,
    ) -> Result<u16, String> {
        // Whichever port it has.
        if self.steering.is_under_ipsec(SocketAddr::new(from, 0), Some(remote))? {
            return Err(format!("an IPsec policy is about what passes from {from} to {remote}"));
        }
        let mut why = String::new();
        for _ in 0..TRIES {
            let taken = take_port(from);
            let (local, socket) = taken.map_err(|error| {
                format!("the kernel does not reserve a port of {from}: {error}")
            })?;
            let ends = (local, remote);
            let session = self.session_mut(holder)?;
            // An earlier connection, in TIME-WAIT.
            if session.has_opened(&ends) {
                why = format!("a connection from {local} to {remote} is not over yet");
                continue;
            }
            let (engine, user) = (session.engine, session.user);
            match self.steering.open(engine, user, ends) {
                Ok(()) => {
                    let of = self.session(at)?.engine;
                    self.session_mut(holder)?.reserve(of, ends, socket);
                    return Ok(local.port());
                }
                Err(refused) => why = refused,
            }
        }
        Err(why)
    }

    /// Returns how many more ports may be reserved, within the limits of all programs and of this one.
    fn room_for_ports(&self, at: usize, holder: usize) -> Result<usize, String> {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let limit = descriptors.min(ports_to_give()) / SHARE;
        let all = sessions(&self.peers);
        let reserved: usize = all.iter().map(|session| session.reserves()).sum();
        let own = self.session(holder)?.reserves_of(self.session(at)?.engine);
        Ok(limit.saturating_sub(reserved).min((limit / SHARE).saturating_sub(own)))
    }

    /// Handles connections of a program's that are closed, or over.
    pub(super) fn let_over(&mut self, at: usize, closed: &[Ends], over: &[Ends]) {
        if !matches!(self.session(at).map(|session| session.role), Ok(Role::Guest(_))) {
            return self.let_over_of_stack(at, closed, over);
        }
        for (local, remote) in over.iter().map(|ends| both_plain(*ends)) {
            if self.lose_given(at, &(local, remote)) {
                continue;
            }
            // The instance may have opened it by now.
            let had = self.session_mut(at).is_ok_and(|session| session.remove(&(local, remote)));
            if had {
                let word = |program| Reply::RevokedConnection { program, local, remote };
                self.tell_later(at, word);
            }
        }
    }

    /// Forgets a connection that an instance has given to a program of its, and that the kernel has not taken: it has no owner
    /// now. False if it was no such connection.
    fn lose_given(&mut self, at: usize, ends: &Ends) -> bool {
        if !self.session(at).is_ok_and(|session| session.given().any(|given| given == ends)) {
            return false;
        }
        if let Ok(Some(instance)) = self.instance_of(at) {
            let _ = self.forget_opened(instance, ends);
        }
        // A connection that came to a listener was not opened.
        if let Ok(session) = self.session_mut(at) {
            session.gave_away(ends);
        }
        true
    }

    fn let_over_of_stack(&mut self, at: usize, closed: &[Ends], over: &[Ends]) {
        let Some(session) = self.peers[at].session.as_mut() else { return };
        closed.iter().for_each(|ends| session.free_port(&both_plain(*ends)));
        for ends in over {
            // An entry that cannot be removed is found again by the housekeeping.
            let _ = self.forget_opened(at, &both_plain(*ends));
        }
    }

    /// Forgets a connection that a program has opened, or could have, and that is over.
    pub(super) fn forget_opened(&mut self, at: usize, ends: &Ends) -> Result<(), String> {
        let session = self.session_mut(at)?;
        session.free_port(ends);
        if !session.remove(ends) {
            // A connection that the kernel has by now is handled elsewhere.
            return Ok(());
        }
        let engine = session.engine;
        self.guests_of(engine).for_each(|guest| guest.gave_away(ends));
        self.steering.forget(*ends)
    }
}

/// Returns how many ports the kernel chooses from.
fn ports_to_give() -> usize {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<usize>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => (last + 1).saturating_sub(first),
        _ => PORTS,
    }
}

fn both_plain((local, remote): Ends) -> Ends {
    (plain(local), plain(remote))
}

/// Takes a port of the kernel's choice, with the socket that keeps it from others.
fn take_port(from: IpAddr) -> Result<(SocketAddr, OwnedFd), Errno> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    let name = getsockname(&socket)?;
    Ok((plain(SocketAddr::try_from(name)?), socket))
}
