//! Devices that programs open: what takes the kernel long is done by threads, ahead where it can be, and the program
//! is answered when it is done. Nobody else waits for that.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use uncork_bpf::owned::{Engine, Presence};
use uncork_driver::OpenError;
use uncork_driver::af_packet::{Handed, Prepared, Settings};
use uncork_guardian::Reply;

use super::Guard;
use super::serve::UNKNOWN;
use crate::groups::Filter;
use crate::session::{Loading, Role, Session};
use crate::work::Work;

/// Slots of the rings that each process gets on each device, a half of what a stack has that is alone on a
/// machine: 25 MiB.
const RECEIVE_SLOTS: usize = 4096;
const TRANSMIT_SLOTS: usize = 128;
/// How often a process may open a device: their rings are memory of the kernel's.
const OPENS: usize = 4;
/// How many devices are opened before anybody has asked, at the most.
const EXPECTED: usize = 2;

/// A device that a program waits for.
#[derive(Debug)]
pub(super) struct Opening {
    engine: Engine,
    question: u32,
    device: i32,
    settings: Settings,
    asked: Instant,
}

fn packet_socket(device: &str) -> Settings {
    Settings {
        receive_slots: RECEIVE_SLOTS,
        transmit_slots: TRANSMIT_SLOTS,
        ..Settings::new(device)
    }
}

impl Guard {
    /// A program opens a device; it is answered by [`Guard::go_on_opening`].
    pub(super) fn open(&mut self, at: usize, question: u32, device: i32) -> Result<(), String> {
        let session = self.session(at)?;
        let (engine, opened) = (session.engine, session.has_opened_device(device));
        let is_same = |one: &&Opening| one.engine == engine && one.device == device;
        if opened + self.opening.iter().filter(is_same).count() >= OPENS {
            return Err(format!(
                "one process has opened that device {OPENS} times, which is all it may"
            ));
        }
        let there = self.plan.devices.iter().find(|other| other.index == device);
        let there = there.ok_or("the stack may not use a device of that number")?;
        let settings = packet_socket(&there.name);
        if let Err(why) = self.may_have_rings(at) {
            self.session_mut(at)?.note_refused(device);
            return Err(why);
        }
        if self.session(at)?.filter.is_none() {
            let filter = self.begin_filter();
            self.session_mut(at)?.filter = filter;
        }
        let asked = Instant::now();
        self.opening.push(Opening { engine, question, device, settings, asked });
        Ok(())
    }

    /// Whether there is memory for one more socket of this one's user.
    fn may_have_rings(&mut self, at: usize) -> Result<(), String> {
        let user = self.session(at)?.user;
        let user_of = |one: &Opening| {
            let mut sessions = self.peers.iter().filter_map(|peer| peer.session.as_ref());
            sessions.find(|session| session.engine == one.engine).and_then(|session| session.user)
        };
        let of_user = self.opening.iter().filter(|one| user_of(one) == user).count();
        self.given.admit(&self.limits, user, (of_user, self.opening.len()))
    }

    /// A program has closed its devices: the last copies of its sockets are let go of.
    pub(super) fn close_devices(&mut self, at: usize) -> Result<(), String> {
        if self.queues.is_some() {
            return Err("queues of the devices stay with who has them".to_owned());
        }
        let session = self.session_mut(at)?;
        let (engine, sockets) = (session.engine, session.take_sockets());
        self.unmake(engine, sockets);
        Ok(())
    }

    /// An engine has these no more, each of a device: of most these copies are the last.
    pub(super) fn unmake(
        &mut self,
        engine: Engine,
        sockets: impl IntoIterator<Item = (i32, OwnedFd)>,
    ) {
        for (device, socket) in sockets {
            self.groups.leave(self.steering.owned(), device, engine);
            self.rings.unmake(socket);
        }
    }

    /// Answers those whose device is there, and begins what the others wait for.
    pub(super) fn go_on_opening(&mut self) {
        self.bell.silence();
        self.await_rings();
        for one in std::mem::take(&mut self.opening) {
            // Who has ended, or given up, waits no more.
            let is_it = |session: &Session| session.engine == one.engine;
            let found = self.peers.iter().position(|peer| peer.session.as_ref().is_some_and(is_it));
            let Some(at) = found else { continue };
            let filter = self.peers[at].session.as_ref().and_then(|it| it.filter.as_ref());
            let waits = filter.is_some_and(|filter| !filter.is_over()) || self.groups.are_awaited();
            let made = if waits { None } else { self.rings.take(&one.settings, one.asked) };
            let Some(made) = made else {
                self.opening.push(one);
                continue;
            };
            let done = self.hand_over_device(at, &one, made);
            if let (Err(_), Ok(session)) = (&done, self.session_mut(at)) {
                session.note_refused(one.device);
            }
            // Who does not take it is about to be buried.
            let _ = self.conclude(at, one.question, done);
            self.hand_out_queues();
        }
        self.await_rings();
    }

    /// As many sockets are made as are waited for.
    fn await_rings(&mut self) {
        for device in &self.plan.devices {
            let waits = self.opening.iter().filter(|one| one.settings.device == device.name);
            let waits = waits.count();
            if waits > 0 || self.rings.are_awaited(&device.name) {
                self.rings.await_some(packet_socket(&device.name), waits);
            }
        }
    }

    fn hand_over_device(
        &mut self,
        at: usize,
        one: &Opening,
        made: Result<Prepared, OpenError>,
    ) -> Result<(Reply, Option<OwnedFd>), String> {
        let made = made.map_err(|error| error.to_string())?;
        if made.index() != one.device || self.steering.presence(one.device) != Presence::Here {
            self.rings.unmake(made.into());
            return Err(format!(
                "the device {} was deleted, and another one has its name: start the guardian again",
                one.settings.device
            ));
        }
        let filter = self.session_mut(at)?.filter.take().and_then(Work::done);
        let filter = match filter {
            Some(Ok(filter)) => filter,
            // What has failed may have been the moment's.
            Some(Err(_)) | None => {
                let (programs, seat) = (self.steering.programs(), self.groups.next_seat());
                Filter::load(&programs, seat).map_err(|error| error.to_string())?
            }
        };
        let handed = made.finish(&one.settings, Some(filter.program()));
        let Handed { socket, description } = handed.map_err(|error| error.to_string())?;
        // It has no more the one that it may have had.
        let before = self.session_mut(at)?.forget_socket(one.device);
        self.unmake(one.engine, before);
        let (owned, whose) = (self.steering.owned(), (one.device, one.engine));
        let copy = socket.try_clone().map_err(|error| format!("no descriptor is left: {error}"));
        let joined = copy.and_then(|copy| {
            self.groups.join(owned, whose, socket.as_fd(), &filter).map(|()| copy)
        });
        match joined {
            Ok(copy) => {
                let session = self.peers[at].session.as_mut().ok_or(UNKNOWN)?;
                // Its number is the kernel's, which tells it of any descriptor.
                let _ = self.given.note(&copy, session.user);
                session.note_open(one.device, copy);
            }
            Err(why) => {
                self.unmake(one.engine, [(one.device, socket)]);
                return Err(why);
            }
        }
        let is_first = self.peers[at].pid == Some(self.plan.program);
        if !is_first && self.session(at)?.role == Role::Program {
            // One of several, or of many that come one after the other.
            self.rings.expect(one.settings.clone());
            self.expect_engine();
        }
        Ok((Reply::Opened { socket: description }, Some(socket)))
    }

    /// The first process is about to begin. Where there are many devices it is likely to use only some.
    pub(super) fn expect_first(&mut self) {
        self.groups.expect_first(self.steering.programs(), &self.bell);
        self.expect_engine();
        if self.plan.devices.len() <= EXPECTED {
            for device in &self.plan.devices {
                self.rings.expect(packet_socket(&device.name));
            }
        }
    }

    /// A process with a stack has ended. Where others live on, or the one that starts them, another is likely to come in its
    /// place.
    pub(super) fn expect_more(&mut self, ended: &Session) {
        let lives = |session: &Session| session.role == Role::Program;
        let goes_on = self.program.is_some()
            || self.peers.iter().any(|peer| peer.session.as_ref().is_some_and(lives));
        // Where there are instances no program opens a device, or needs a filter.
        if self.parting.is_some() || !goes_on || self.has_instances() {
            return;
        }
        for device in self.plan.devices.iter().filter(|one| ended.opens(one.index) > 0) {
            self.rings.expect_more(packet_socket(&device.name));
        }
        self.expect_engine();
    }

    /// The filter of who opens a device next is loaded from now on.
    fn expect_engine(&mut self) {
        if self.next_filter.is_none() {
            self.next_filter = self.begin_filter();
        }
    }

    /// The kernel verifies it for a millisecond or so. None without a thread: it can be loaded when it is wanted.
    fn begin_filter(&mut self) -> Option<Loading> {
        let (programs, seat) = (self.steering.programs(), self.groups.next_seat());
        Work::begin("filter", &self.bell, move || Filter::load(&programs, seat)).ok()
    }
}
