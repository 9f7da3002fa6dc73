//! Requests of programs, and the answers to them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use uncork_bpf::owned::Engine;
use uncork_guardian::{Octets, Reply, Request, VERSION, table};
use uncork_handover as handover;
use uncork_stack::FastOpenKeys;

use super::passing::UNASKED;
use super::{Guard, SLOTS_AT_LEAST, parting, sessions};
use crate::limits::ROOT;
use crate::peer::{Heard, Peer};
use crate::proof;
use crate::session::{Role, Session};
use crate::steering::plain;
use uncork_closing::ClosedApart;

/// How long the guardian waits for the close of a listener that has proven a port: only a last copy takes longer.
const MOMENT: Duration = Duration::from_millis(1);

/// The refusal for a peer that has not introduced itself.
pub(super) const UNKNOWN: &str =
    "the guardian serves only programs of its own: the token is not the right one";

impl Guard {
    /// Handles one question of a peer. An error if the peer is to be treated as gone.
    pub(super) fn serve(&mut self, at: usize) -> io::Result<()> {
        if self.peers[at].session.is_none() && !self.is_invited(at)? {
            return Ok(());
        }
        if !self.is_prepared(at) {
            return Ok(());
        }
        let Some(Heard { question, descriptor }) = self.peers[at].hear(&self.passed)? else {
            return Ok(());
        };
        let done = match question.request {
            Request::Hello { version, token } => {
                let done = self.introduce(at, version, &token);
                return self.conclude(at, question.id, done);
            }
            Request::Serve { version, token } => {
                let done = self.introduce_instance(at, version, &token);
                return self.conclude(at, question.id, done);
            }
            Request::Look { version, token, pids } => {
                let done = self.look(at, (version, &token), &pids, descriptor.as_ref());
                let told = done.map(|missing| (Reply::Looked { missing }, None));
                return self.conclude(at, question.id, told);
            }
            ref request if let Err(why) = self.may_ask(at, request) => Err(why),
            Request::Open { device } => match self.open(at, question.id, device) {
                // Answered once there is a socket.
                Ok(()) => {
                    self.go_on_opening();
                    return Ok(());
                }
                Err(why) => Err(why),
            },
            Request::Attach { wanted } => {
                let done = self.attach(at, wanted);
                return self.conclude(at, question.id, done);
            }
            Request::Give { program, local, remote } => {
                self.give_to(at, program, (plain(local), plain(remote)))
            }
            Request::Closed => self.close_devices(at),
            Request::Own { local } => self.own_by(at, local, descriptor),
            Request::OwnKernels { local } => self.own_kernels(at, local, descriptor.as_ref()),
            Request::Disown { local } => self.disown(at, plain(local)),
            Request::Others { local } => self.others(at, plain(local)),
            Request::TakesTurns { local } => self.takes_turns(at, plain(local)),
            Request::Renounces { local } => self.renounces(at, plain(local)),
            Request::PassOn { local } => self.pass_on(at, plain(local), descriptor),
            Request::OwnConnection { local, remote } => {
                self.own_connection(at, (plain(local), plain(remote)), descriptor.as_ref())
            }
            Request::DisownConnection { local, remote } => {
                self.disown_connection(at, (plain(local), plain(remote)))
            }
            Request::Ports { from, remote, wanted } => {
                let done = self.reserve(at, from, plain(remote), wanted, descriptor.as_ref());
                return self.conclude(at, question.id, done);
            }
            Request::Over { closed, over } => {
                self.let_over(at, &closed, &over);
                return Ok(());
            }
            Request::Settle => Ok(()),
            Request::FastOpenKeys => {
                let done = self.fast_open_keys(at).map(|keys| (Reply::FastOpenKeys { keys }, None));
                return self.conclude(at, question.id, done);
            }
            Request::TakeOver { snapshot, inet6 } => {
                return match self.take_over(at, &snapshot, inet6, descriptor.as_ref()) {
                    // The program can make closing this socket take long.
                    Ok(socket) => {
                        self.peers[at].answer(question.id, Reply::Taken, Some(socket.as_fd()))
                    }
                    Err(why) => self.conclude(at, question.id, Err(why)),
                };
            }
            Request::Bring { local, remote, ref segment } => {
                self.bring((plain(local), plain(remote)), segment, descriptor)
            }
        };
        self.conclude(at, question.id, done.map(|()| (Reply::Done, None)))
    }

    /// Holds a question about a port back until what it depends on is entered, over as many turns as that takes.
    fn is_prepared(&mut self, at: usize) -> bool {
        use Request::{Disown, Others, Own, Renounces, TakesTurns};
        // A message that is not understood is left to `hear`.
        let Ok(Some(question)) = self.peers[at].listen() else { return true };
        match question.request {
            Own { local }
            | Disown { local }
            | Others { local }
            | TakesTurns { local }
            | Renounces { local } => {
                let all = sessions(&self.peers);
                let before = self.slots.max(SLOTS_AT_LEAST);
                let mut slots = before;
                let is_prepared = self.steering.prepare(local.port(), &all, &mut slots);
                self.slots = self.slots.saturating_sub(before - slots);
                is_prepared
            }
            _ => true,
        }
    }

    /// Tells whether a stranger has sent the token, and so may be heard. Until then nothing that it sent is received: closing a
    /// descriptor may take as long as its sender wants. An error if it has sent anything else.
    fn is_invited(&self, at: usize) -> io::Result<bool> {
        let Some(question) = self.peers[at].listen()? else { return Ok(false) };
        let is_invited = match &question.request {
            Request::Hello { token, .. } | Request::Look { token, .. } => {
                self.place.is_token(token)
            }
            Request::Serve { token, .. } => self.tokens.iter().any(|own| own.is(token)),
            _ => false,
        };
        if is_invited {
            return Ok(true);
        }
        let refused = Reply::Refused { why: UNKNOWN.to_owned() };
        self.peers[at].answer(question.id, refused, None)?;
        Err(io::ErrorKind::PermissionDenied.into())
    }

    pub(super) fn conclude(
        &mut self,
        at: usize,
        id: u32,
        done: Result<(Reply, Option<OwnedFd>), String>,
    ) -> io::Result<()> {
        let (reply, descriptor) = done.unwrap_or_else(|why| (Reply::Refused { why }, None));
        if self.is_instance(at) {
            return self.peers[at].say(id, reply, descriptor);
        }
        self.peers[at].answer(id, reply, descriptor.as_ref().map(|passed| passed.as_fd()))
    }

    fn introduce(
        &mut self,
        at: usize,
        version: u32,
        token: &str,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        self.check(version, token)?;
        if self.parting.is_some() {
            return Err(parting::TOO_LATE.to_owned());
        }
        self.admit(at, Role::Program)
    }

    /// Gives a peer its session; from now on it is served.
    pub(super) fn admit(
        &mut self,
        at: usize,
        role: Role,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        if self.peers[at].session.is_some() {
            return Err("this connection has been introduced already".to_owned());
        }
        let user = self.peers[at].uid;
        if matches!(role, Role::Program) {
            let there = self.peers.iter().filter(|peer| peer.session.is_some());
            self.limits.admit(user, there.map(|peer| peer.uid))?;
        }
        let memory = |error: io::Error| format!("the guardian cannot make a table for it: {error}");
        let table = table::create().map_err(memory)?;
        let theirs = table.try_clone().map_err(memory)?;
        let engine = Engine(self.engines);
        self.engines = self.engines.checked_add(1).ok_or("too many processes were served")?;
        let filter = self.next_filter.take();
        let session =
            self.peers[at].session.insert(Session::new(engine, table, role, filter).of_user(user));
        if let Some(heir) = &mut self.heir {
            heir.came(session);
        }
        let devices = self.plan.devices.clone();
        let attaches = role == Role::Program && self.has_instances();
        let queues = self.queues.is_some();
        Ok((Reply::Welcome { devices, attaches, queues }, Some(theirs)))
    }

    /// Checks that a peer knows the token and speaks this version.
    fn check(&self, version: u32, token: &str) -> Result<(), String> {
        if !self.place.is_token(token) {
            return Err(UNKNOWN.to_owned());
        }
        check_version(version)
    }

    /// Has a program report on its stack over the passed stream. A service has programs of several users, and one user's
    /// connections are none of another's business. Returns why the program has fewer queues than it should, which it does not
    /// know itself.
    fn look(
        &self,
        at: usize,
        (version, token): (u32, &str),
        pids: &[u32],
        stream: Option<&ClosedApart>,
    ) -> Result<Vec<String>, String> {
        self.check(version, token)?;
        let stream = stream.ok_or("there is no stream to tell it to")?;
        let asker = self.peers[at].uid;
        let served = self.peers.iter().filter(|peer| peer.session.is_some());
        let served = served.filter(|peer| asker == Some(ROOT) || peer.uid == asker);
        let is_it = |peer: &&Peer| peer.pid.is_some_and(|pid| pids.contains(&pid));
        let Some(peer) = served.clone().find(is_it) else {
            // Threads with stacks of their own are several peers of one process.
            let others: BTreeSet<_> = served.filter_map(|peer| peer.pid).collect();
            let others: Vec<_> = others.iter().map(u32::to_string).collect();
            return Err(match &others[..] {
                [] => "no process of the program has waited for a connection yet, or opened one, or it is another \
                       user's: ask as that one, or as root"
                    .to_owned(),
                others => format!(
                    "it has no stack of its own, or is another user's; these with the same guardian have: {}",
                    others.join(", ")
                ),
            });
        };
        let told = peer.answer(0, Reply::Asked, Some(stream.as_fd()));
        told.map_err(|error| format!("it cannot be asked: {error}"))?;
        Ok(peer.pid.map_or_else(Vec::new, |pid| self.missing_queues(pid)))
    }

    /// Derives TCP Fast Open keys from the host's key, so that they outlive this process, and from the user id, so that one user
    /// cannot make another's cookies.
    fn fast_open_keys(&self, at: usize) -> Result<FastOpenKeys, String> {
        let uid = self.peers[at].uid.ok_or("it is not known whose program this is")?;
        let host = fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen_key")
            .map_err(|error| format!("the host's key of TCP Fast Open cannot be read: {error}"))?;
        let keys = FastOpenKeys::of_sysctl(&host).ok_or("the host has no key of TCP Fast Open")?;
        Ok(keys.of_user(uid))
    }

    /// Gives a program a port, and closes the socket that has proven it: the program may close its own next, and then nobody is
    /// to be accepted there.
    fn own_by(
        &mut self,
        at: usize,
        local: SocketAddr,
        proof: Option<ClosedApart>,
    ) -> Result<(), String> {
        let done = self.own(at, local, proof.as_ref());
        proof.into_iter().for_each(|proof| proof.close_within(MOMENT));
        done
    }

    fn own(
        &mut self,
        at: usize,
        local: SocketAddr,
        socket: Option<&ClosedApart>,
    ) -> Result<(), String> {
        let local = plain(local);
        let (mut places, proven) = self.places_of(local, socket)?;
        self.leave_out_refused(at, &mut places)?;
        self.leave_out_protected(&mut places)?;
        self.let_go_of_stale(at, &places, proven);
        // Connections to other owners of the port may still be passed on to this program.
        let is_kernels = places.iter().any(|place| self.turns.has_given_up(place));
        let (engine, new) = self.claim(at, (local, proven), places)?;
        let joined = if is_kernels {
            Ok(())
        } else {
            self.steering.join(engine, &new, &sessions(&self.peers))
        };
        let done =
            joined.and_then(|()| self.tell(at, |program| Reply::Granted { program, local }, None));
        match done {
            Ok(()) => {
                self.give_kept();
                if is_kernels {
                    self.tell_what_is_kernels(at);
                }
            }
            Err(_) => {
                let _ = self.let_go(at, local);
                self.tidy_claims();
            }
        }
        done
    }

    /// Claims a port where connections no longer come to stacks, so that the program need not open a device for it. Later owners
    /// of the port are to be told the same for as long as this one has it.
    fn own_kernels(
        &mut self,
        at: usize,
        local: SocketAddr,
        socket: Option<&ClosedApart>,
    ) -> Result<(), String> {
        let local = plain(local);
        let (places, proven) = self.places_of(local, socket)?;
        if !places.iter().all(|place| self.turns.has_settled(place)) {
            return Err(format!("who comes to {local} may be the stack's"));
        }
        self.claim(at, (local, proven), places).map(drop)
    }

    /// Returns the places that a program's port means on the devices, and the number of the kernel's socket that proves it.
    fn places_of(
        &self,
        local: SocketAddr,
        socket: Option<&ClosedApart>,
    ) -> Result<(Vec<SocketAddr>, u64), String> {
        if !self.plan.ports.is_empty() && !self.plan.ports.contains(&local.port()) {
            return Err(format!("port {} is not among those of --port", local.port()));
        }
        let proof = proof::of(socket, self.listener.as_fd(), local, true)?;
        let places = self.steering.places(local, proof.both_versions);
        if places.is_empty() {
            return Err(format!("{} is on none of the stack's devices", local.ip()));
        }
        Ok((places, proof.socket))
    }

    /// Removes places that an IPsec policy is about.
    fn leave_out_protected(&mut self, places: &mut Vec<SocketAddr>) -> Result<(), String> {
        let mut left = Vec::new();
        for place in &*places {
            if !self.steering.is_under_ipsec(*place, None)? {
                left.push(*place);
            }
        }
        let first = places.first().copied();
        *places = left;
        match first {
            Some(first) if places.is_empty() => {
                Err(format!("an IPsec policy is about what comes to {first}"))
            }
            _ => Ok(()),
        }
    }

    /// Removes places whose device could not be opened: what arrives by it is the kernel's.
    fn leave_out_refused(&self, at: usize, places: &mut Vec<SocketAddr>) -> Result<(), String> {
        let stack = self.session(self.instance_of(at)?.unwrap_or(at))?;
        let is_refused = |place: &SocketAddr| {
            let device = self.steering.device_of(place.ip());
            device.is_some_and(|device| stack.is_refused(device.cast_signed()))
        };
        places.retain(|place| !is_refused(place));
        if places.is_empty() {
            return Err("the device of that address could not be opened".to_owned());
        }
        Ok(())
    }

    /// Claims a port for a program, against other guardians, and records it.
    fn claim(
        &mut self,
        at: usize,
        (local, proven): (SocketAddr, u64),
        places: Vec<SocketAddr>,
    ) -> Result<(Engine, Vec<SocketAddr>), String> {
        let claimed = self.claims.take(&places, self.peers[at].uid, &self.limits);
        let claimed = claimed.and_then(|()| self.note_claim(at, (local, proven), places));
        claimed.inspect_err(|_| self.tidy_claims())
    }

    /// Records that a program has a port. Returns the engine concerned, and the places that are new to it.
    fn note_claim(
        &mut self,
        at: usize,
        (local, proven): (SocketAddr, u64),
        places: Vec<SocketAddr>,
    ) -> Result<(Engine, Vec<SocketAddr>), String> {
        let program = self.session(at)?.engine;
        if let Some(instance) = self.instance_of(at)? {
            self.session_mut(at)?.grant(program, local, places.clone(), proven);
            let instance = self.session_mut(instance)?;
            return Ok((instance.engine, instance.grant(program, local, places, proven)));
        }
        Ok((program, self.session_mut(at)?.grant(program, local, places, proven)))
    }

    /// Checks that others listen at a port that this program is about to leave to them, and counts the departure.
    fn others(&mut self, at: usize, local: SocketAddr) -> Result<(), String> {
        let mut places = self.shared_places(at, local)?;
        places.retain(|place| self.turns.note(*place));
        self.give_up(&places);
        Ok(())
    }

    /// Gives a shared port to the kernel's single accept queue, as this program serves one connection after the other.
    fn takes_turns(&mut self, at: usize, local: SocketAddr) -> Result<(), String> {
        let places = self.shared_places(at, local)?;
        self.give_up_for_good(places);
        Ok(())
    }

    /// Gives a port to the kernel because its program is better served by it in any case.
    fn renounces(&mut self, at: usize, local: SocketAddr) -> Result<(), String> {
        let places = self.places_held(at, local)?;
        if places.is_empty() {
            return Err(format!("the program has not asked for {local}"));
        }
        self.give_up_for_good(places);
        Ok(())
    }

    fn give_up_for_good(&mut self, mut places: Vec<SocketAddr>) {
        places.retain(|place| self.turns.give_up(*place));
        self.give_up(&places);
    }

    /// Returns the places of one of this program's ports.
    fn places_held(&self, at: usize, local: SocketAddr) -> Result<Vec<SocketAddr>, String> {
        Ok(self.session(at)?.held_for(local).into_iter().collect())
    }

    /// Returns the places of one of this program's ports, provided that another program has all of them, too.
    fn shared_places(&self, at: usize, local: SocketAddr) -> Result<Vec<SocketAddr>, String> {
        let own = self.session(at)?;
        let places = self.places_held(at, local)?;
        // For a guest, only programs on the same instance count: there a connection moves from one to the other.
        let is_other = |other: &&Session| match own.role {
            Role::Guest(instance) => other.engine != own.engine && other.is_guest_of(instance),
            _ => other.engine != own.engine,
        };
        let mut others = sessions(&self.peers).into_iter().filter(is_other);
        let has_all = |other: &Session| {
            let held = other.held();
            places.iter().all(|place| held.contains(place))
        };
        if places.is_empty() || !others.any(has_all) {
            return Err(format!("nobody else listens at {local}"));
        }
        Ok(places)
    }

    /// Tells a program at which of its ports it need not listen on its stack any more. It may hear of a port twice.
    fn tell_what_is_kernels(&mut self, at: usize) {
        let Ok(session) = self.session(at) else { return };
        // A guest's ports are its instance's business.
        if session.role != Role::Program {
            return;
        }
        for local in session.asked_where(|place| self.turns.has_settled(place)) {
            // A program that does not hear it continues as before.
            let _ = self.peers[at].say(UNASKED, Reply::Kernels { local }, None);
        }
    }

    /// Gives new connections to these places to the kernel from now on; those already with a stack are still passed on.
    fn give_up(&mut self, places: &[SocketAddr]) {
        let all = sessions(&self.peers);
        for place in places {
            // What a guest has is its instance's.
            let has_it = |session: &&&Session| {
                !matches!(session.role, Role::Guest(_)) && session.held().contains(place)
            };
            for member in all.iter().filter(has_it) {
                // A place where this fails stays as it was, which also works.
                if self.steering.leave(member.engine, &[*place], &all).is_err() {
                    self.turns.never_settles(place);
                }
            }
        }
    }

    /// Tells programs when no connection is on its way to their stacks any more, at ports that are the kernel's for good.
    pub(super) fn settle_turns(&mut self) {
        if self.turns.settle() {
            (0..self.peers.len()).for_each(|at| self.tell_what_is_kernels(at));
        }
    }

    pub(super) fn disown(&mut self, at: usize, local: SocketAddr) -> Result<(), String> {
        let done = self.take_away(at, local)?;
        self.tidy_claims();
        done
    }

    /// Takes a port away from a program, tells its instance, and leaves the claims as they are. The outer error if the program
    /// did not have it.
    pub(super) fn take_away(
        &mut self,
        at: usize,
        local: SocketAddr,
    ) -> Result<Result<(), String>, String> {
        let done = self.let_go(at, local)?;
        self.tell_later(at, |program| Reply::Revoked { program, local });
        Ok(done)
    }

    fn let_go(&mut self, at: usize, local: SocketAddr) -> Result<Result<(), String>, String> {
        let not_owned = || format!("{local} was not owned");
        let program = self.session(at)?.engine;
        let places = self.session_mut(at)?.release(program, local).ok_or_else(not_owned)?;
        let Some(instance) = self.instance_of(at)? else {
            return Ok(self.steering.leave(program, &places, &sessions(&self.peers)));
        };
        let instance = self.session_mut(instance)?;
        let engine = instance.engine;
        let places = instance.release(program, local).ok_or_else(not_owned)?;
        Ok(self.steering.leave(engine, &places, &sessions(&self.peers)))
    }

    fn own_connection(
        &mut self,
        at: usize,
        ends: (SocketAddr, SocketAddr),
        socket: Option<&ClosedApart>,
    ) -> Result<(), String> {
        if self.steering.device_of(ends.0.ip()).is_none() {
            return Err(format!("{} is on none of the stack's devices", ends.0.ip()));
        }
        proof::of(socket, self.listener.as_fd(), ends.0, false)?;
        if let Some(instance) = self.instance_of(at)? {
            return self.own_connection_by(at, instance, ends);
        }
        let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
        self.steering.open(session.engine, session.user, ends)?;
        session.add(ends);
        Ok(())
    }

    fn disown_connection(
        &mut self,
        at: usize,
        ends: (SocketAddr, SocketAddr),
    ) -> Result<(), String> {
        if self.session(at)?.has_opened(&ends) {
            return self.forget_opened(at, &ends);
        }
        Err(format!("no connection from {} to {} was owned", ends.0, ends.1))
    }

    /// Hands the kernel a segment that arrived at the stack while the kernel was taking the connection over.
    fn bring(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        segment: &Octets,
        socket: Option<ClosedApart>,
    ) -> Result<(), String> {
        if self.steering.device_of(local.ip()).is_none() {
            return Err(format!("{} is on none of the stack's devices", local.ip()));
        }
        // A process that has this socket may let it receive whatever it likes.
        proof::that_it_is_between(socket, self.listener.as_fd(), (local, remote))?;
        handover::bring(local, remote, segment.as_slice()).map_err(|error| error.to_string())
    }

    pub(super) fn session(&self, at: usize) -> Result<&Session, String> {
        self.peers[at].session.as_ref().ok_or_else(|| UNKNOWN.to_owned())
    }

    pub(super) fn session_mut(&mut self, at: usize) -> Result<&mut Session, String> {
        self.peers[at].session.as_mut().ok_or_else(|| UNKNOWN.to_owned())
    }
}

/// Checks that a peer speaks this version of the protocol.
pub(super) fn check_version(version: u32) -> Result<(), String> {
    if version != VERSION {
        let text = "uncork and libuncork.so are of different versions: install both anew";
        return Err(text.to_owned());
    }
    Ok(())
}
