//! Instances: processes with the stacks of the programs that are attached to them.
//!
//! What a program asks for belongs to its instance: the steering knows only the instance's engine. So an instance's session holds
//! the claims of all its programs, each with the program that made it, and leaves a place when the last of them does. Its table
//! and its connections are treated like those of a program with a stack of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uncork_bpf::owned::Engine;
use uncork_guardian::{Reply, Request, Token};

use super::passing::UNASKED;
use super::serve::{UNKNOWN, check_version};
use super::{Guard, random, sessions};
use crate::Error;
use crate::session::{Ends, Role, Session};

impl Guard {
    /// Makes programs attach to instances, this many, instead of having stacks of their own. The number of each instance that
    /// comes is sent to `came`.
    ///
    /// # Errors
    ///
    /// If there are no random octets.
    pub fn with_instances(mut self, count: u32, came: Sender<u32>) -> Result<Self, Error> {
        self.tokens =
            (0..count).map(|_| Ok(Token::new(random()?))).collect::<Result<_, Error>>()?;
        self.came = Some(came);
        Ok(self)
    }

    /// Returns the token of each instance, in the order of their numbers: nobody else may know it.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub(super) fn has_instances(&self) -> bool {
        !self.tokens.is_empty()
    }

    pub(super) fn is_instance(&self, at: usize) -> bool {
        self.session(at).is_ok_and(|session| matches!(session.role, Role::Instance(_)))
    }

    /// Checks that a peer in this role may make this request.
    pub(super) fn may_ask(&self, at: usize, request: &Request) -> Result<(), String> {
        use Request::{
            Attach, Bring, Disown, DisownConnection, FastOpenKeys, Give, Open, Others, Over, Own,
            OwnConnection, PassOn, Ports, Settle, TakeOver,
        };
        let (may, why) = match self.session(at)?.role {
            Role::Program if !self.has_instances() => (
                !matches!(request, Attach { .. } | Give { .. }),
                "there are no instances here: start them with uncork stack start",
            ),
            Role::Program => (
                matches!(request, Attach { .. }),
                "the process is attached to no instance of the stack",
            ),
            Role::Instance(_) => (
                matches!(
                    request,
                    Open { .. }
                        | DisownConnection { .. }
                        | Over { .. }
                        | TakeOver { .. }
                        | Give { .. }
                ),
                "that is for programs, not for an instance",
            ),
            Role::Guest(_) => (
                matches!(
                    request,
                    Own { .. }
                        | FastOpenKeys
                        | Disown { .. }
                        | OwnConnection { .. }
                        | Ports { .. }
                        | Over { .. }
                        | Settle
                        | Others { .. }
                        | PassOn { .. }
                        | TakeOver { .. }
                        | Bring { .. }
                ),
                "that is for the instance to which the process is attached",
            ),
        };
        if may { Ok(()) } else { Err(why.to_owned()) }
    }

    pub(super) fn introduce_instance(
        &mut self,
        at: usize,
        version: u32,
        token: &str,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        let number = self.tokens.iter().position(|own| own.is(token)).ok_or(UNKNOWN)?;
        let number = u32::try_from(number).map_err(|_| UNKNOWN)?;
        check_version(version)?;
        // An instance that has died may not be buried yet.
        let is_it = |other: &usize| self.number(*other) == Some(number);
        let mut others = (0..self.peers.len()).filter(is_it);
        if others.any(|other| !self.peers[other].is_gone()) {
            return Err(format!("instance {number} of the stack is there already"));
        }
        let welcome = self.admit(at, Role::Instance(number))?;
        if let Some(came) = &self.came {
            // If nobody listens any more, nobody need know.
            let _ = came.send(number);
        }
        Ok(welcome)
    }

    fn number(&self, at: usize) -> Option<u32> {
        match self.session(at).ok()?.role {
            Role::Instance(number) => Some(number),
            _ => None,
        }
    }

    /// Attaches a program to an instance: each gets one end of a socket pair.
    pub(super) fn attach(
        &mut self,
        at: usize,
        wanted: Option<u32>,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        let (instance, number) = self.choose(wanted, self.peers[at].pid)?;
        let engine = self.session(instance)?.engine;
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) =
            pair.map_err(|error| format!("there are no sockets for it: {error}"))?;
        let (pid, uid) = (self.peers[at].pid, self.peers[at].uid);
        let session = self.session_mut(at)?;
        session.role = Role::Guest(engine);
        let told = self.tell(at, |program| Reply::Guest { program, pid, uid }, Some(theirs));
        if let Err(why) = told {
            self.session_mut(at)?.detach();
            return Err(why);
        }
        Ok((Reply::Attached { instance: number }, Some(ours)))
    }

    /// Chooses the instance with this number; otherwise the one with the fewest programs. For a process whose threads attach one
    /// by one, the one that the fewest of them have comes first.
    fn choose(&self, wanted: Option<u32>, pid: Option<u32>) -> Result<(usize, u32), String> {
        let living = (0..self.peers.len()).filter(|at| !self.peers[*at].is_gone());
        let mut up: Vec<_> = living.filter_map(|at| Some((at, self.number(at)?))).collect();
        up.sort_unstable_by_key(|(_, number)| *number);
        let guests = |(at, _): &(usize, u32)| {
            let Ok(instance) = self.session(*at) else { return (usize::MAX, usize::MAX) };
            let is_guest = |session: &Session| session.is_guest_of(instance.engine);
            let all = self.peers.iter().filter(|peer| peer.session.as_ref().is_some_and(is_guest));
            let own = all.clone().filter(|peer| pid.is_some() && peer.pid == pid);
            (own.count(), all.count())
        };
        let Some(wanted) = wanted else {
            let fewest = up.into_iter().min_by_key(guests);
            return fewest.ok_or_else(|| "no instance of the stack is up".to_owned());
        };
        let found = up.iter().find(|(_, number)| *number == wanted).copied();
        found.ok_or_else(|| {
            let up: Vec<_> = up.iter().map(|(_, number)| number.to_string()).collect();
            format!("no instance {wanted} of the stack is up, of these: {}", up.join(", "))
        })
    }

    /// Returns the index of the instance that this program is attached to, if there is one.
    pub(super) fn instance_of(&self, at: usize) -> Result<Option<usize>, String> {
        let Role::Guest(engine) = self.session(at)?.role else { return Ok(None) };
        self.peer_of(engine).map(Some).ok_or_else(|| "its instance is gone".to_owned())
    }

    fn peer_of(&self, engine: Engine) -> Option<usize> {
        let is_it = |session: &Session| session.engine == engine;
        self.peers.iter().position(|peer| peer.session.as_ref().is_some_and(is_it))
    }

    pub(super) fn guests_of(&mut self, engine: Engine) -> impl Iterator<Item = &mut Session> {
        let sessions = self.peers.iter_mut().filter_map(|peer| peer.session.as_mut());
        sessions.filter(move |session| session.is_guest_of(engine))
    }

    /// Sends a message about a program to the instance that it is attached to, if there is one. An error if the instance does
    /// not take it at once.
    pub(super) fn tell(
        &mut self,
        at: usize,
        word: impl FnOnce(u32) -> Reply,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), String> {
        let program = self.session(at)?.engine.0.get();
        let Some(instance) = self.instance_of(at)? else { return Ok(()) };
        let peer = &self.peers[instance];
        let passed = descriptor.as_ref().map(AsFd::as_fd);
        if peer.is_behind() || peer.answer(UNASKED, word(program), passed).is_err() {
            return Err("the instance of the stack does not listen: it is stopped, or has no time"
                .to_owned());
        }
        Ok(())
    }

    /// Sends a message that the instance must receive, even if it takes it only later.
    pub(super) fn tell_later(&mut self, at: usize, word: impl FnOnce(u32) -> Reply) {
        let Ok(program) = self.session(at).map(|session| session.engine.0.get()) else { return };
        if let Ok(Some(instance)) = self.instance_of(at) {
            // If the instance is gone, its socket says so, too.
            let _ = self.peers[instance].say(UNASKED, word(program), None);
        }
    }

    /// Gives a connection that a program opens to its instance.
    pub(super) fn own_connection_by(
        &mut self,
        at: usize,
        instance: usize,
        ends: Ends,
    ) -> Result<(), String> {
        let (local, remote) = ends;
        let session = self.session(instance)?;
        // Another program's connection, which would end with this program's.
        if session.has_opened(&ends) && !self.session(at)?.has_opened(&ends) {
            return Err(format!("another process has a connection from {local} to {remote}"));
        }
        let is_new = !session.has_opened(&ends);
        self.steering.open(session.engine, session.user, ends)?;
        self.session_mut(instance)?.add(ends);
        self.session_mut(at)?.add(ends);
        let word = |program| Reply::GrantedConnection { program, local, remote };
        let told = self.tell(at, word, None);
        if told.is_err() && is_new {
            self.session_mut(instance)?.remove(&ends);
            self.session_mut(at)?.remove(&ends);
            let _ = self.steering.forget(ends);
        }
        told
    }

    /// Lets an instance give a connection of its own to one of its programs, which makes it the kernel's.
    pub(super) fn give_to(&mut self, at: usize, program: u32, ends: Ends) -> Result<(), String> {
        let session = self.session(at)?;
        let engine = session.engine;
        if !self.steering.is_its(session, &ends) {
            return Err(format!("no connection from {} to {} was owned", ends.0, ends.1));
        }
        let guest = self.guests_of(engine).find(|guest| guest.engine.0.get() == program);
        let guest = guest.ok_or("no program of that number is attached to this instance")?;
        guest.give(ends);
        Ok(())
    }

    /// Cleans up after a dead program. Its connections stay with the instance, which notices the death by their socket; except
    /// those that the program was about to give to the kernel.
    pub(super) fn bury_guest(&mut self, guest: &Session, instance: Engine) {
        let Some(at) = self.peer_of(instance) else { return };
        for ends in guest.given() {
            let _ = self.forget_opened(at, ends);
        }
        let program = guest.engine.0.get();
        for local in guest.asked() {
            let session = self.peers[at].session.as_mut();
            let places = session.and_then(|session| session.release(guest.engine, local));
            let Some(places) = places else { continue };
            // If this fails, as the kernel has no memory, say, the rest is done all the same.
            let _ = self.steering.leave(instance, &places, &sessions(&self.peers));
            let _ = self.peers[at].say(UNASKED, Reply::Revoked { program, local }, None);
        }
    }

    /// Detaches the programs of a dead instance: they have nothing there any more, and may attach to another.
    pub(super) fn detach_guests(&mut self, instance: Engine) {
        self.guests_of(instance).for_each(Session::detach);
    }
}
