//! Devices that programs open. What takes the kernel long is done by threads, ahead of time where possible, and the program
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

/// Slots of the rings that each process gets on each device, half as many as a stack that has the machine to itself: 25 MiB.
const RECEIVE_SLOTS: usize = 4096;
const TRANSMIT_SLOTS: usize = 128;
/// How often a process may open a device: the rings are kernel memory.
const OPENS: usize = 4;
/// How many devices, at most, are opened before a program has asked.
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
    /// Records that a program opens a device; [`Guard::go_on_opening`] answers it.
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

    /// Checks that there is memory for one more packet socket of this program's user.
    fn may_have_rings(&mut self, at: usize) -> Result<(), String> {
        let user = self.session(at)?.user;
        let user_of = |one: &Opening| {
            let mut sessions = self.peers.iter().filter_map(|peer| peer.session.as_ref());
            sessions.find(|session| session.engine == one.engine).and_then(|session| session.user)
        };
        let of_user = self.opening.iter().filter(|one| user_of(one) == user).count();
        self.given.admit(&self.limits, user, (of_user, self.opening.len()))
    }

    /// Closes the last copies of a program's packet sockets, as the program has closed its devices.
    pub(super) fn close_devices(&mut self, at: usize) -> Result<(), String> {
        if self.queues.is_some() {
            return Err("queues of the devices stay with who has them".to_owned());
        }
        let session = self.session_mut(at)?;
        let (engine, sockets) = (session.engine, session.take_sockets());
        self.unmake(engine, sockets);
        Ok(())
    }

    /// Takes these sockets away from an engine, each with its device's number; most of these copies are the last.
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

    /// Answers programs whose device is ready, and starts what the others wait for.
    pub(super) fn go_on_opening(&mut self) {
        self.bell.silence();
        self.await_rings();
        for one in std::mem::take(&mut self.opening) {
            // A program that has ended, or given up, no longer waits.
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
            // A program that does not take it is about to be buried.
            let _ = self.conclude(at, one.question, done);
            self.hand_out_queues();
        }
        self.await_rings();
    }

    /// Has as many sockets made as are waited for.
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
            // The cause of the failure may have been temporary.
            Some(Err(_)) | None => {
                let (programs, seat) = (self.steering.programs(), self.groups.next_seat());
                Filter::load(&programs, seat).map_err(|error| error.to_string())?
            }
        };
        let handed = made.finish(&one.settings, Some(filter.program()));
        let Handed { socket, description } = handed.map_err(|error| error.to_string())?;
        // An earlier socket of its on this device is dropped.
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
                // It is noted by its inode number, which the kernel tells of any descriptor.
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
            // It is one of several processes, or of many that come one after the other.
            self.rings.expect(one.settings.clone());
            self.expect_engine();
        }
        Ok((Reply::Opened { socket: description }, Some(socket)))
    }

    /// Prepares for the first process, which is about to begin. Where there are many devices it is likely to use only some.
    pub(super) fn expect_first(&mut self) {
        self.groups.expect_first(self.steering.programs(), &self.bell);
        self.expect_engine();
        if self.plan.devices.len() <= EXPECTED {
            for device in &self.plan.devices {
                self.rings.expect(packet_socket(&device.name));
            }
        }
    }

    /// Prepares for the successor of a process that had a stack and has ended. If other programs live on, or the first process
    /// does, another one is likely to take its place.
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

    /// Starts loading the filter of the next program that opens a device.
    fn expect_engine(&mut self) {
        if self.next_filter.is_none() {
            self.next_filter = self.begin_filter();
        }
    }

    /// Starts loading a filter, which the kernel verifies for a millisecond or so. `None` without a thread: loaded on demand.
    fn begin_filter(&mut self) -> Option<Loading> {
        let (programs, seat) = (self.steering.programs(), self.groups.next_seat());
        Work::begin("filter", &self.bell, move || Filter::load(&programs, seat)).ok()
    }
}
