//! Groups of packet sockets (PACKET_FANOUT), one for each device, so that a frame is looked at once and not by each socket.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use uncork_bpf::owned::{Engine, Error, Owned, Programs, Seat};
use uncork_driver::af_packet::Group;

use crate::work::{Bell, Work};

/// What a socket needs to join a group.
#[derive(Debug)]
pub(crate) struct Filter {
    seat: Seat,
    /// The program, which knows by the seat which frames are for the socket.
    program: OwnedFd,
}

impl Filter {
    pub(crate) fn load(programs: &Programs, seat: Seat) -> Result<Self, Error> {
        Ok(Self { seat, program: programs.filter_for_seat(seat)? })
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// The programs that a group begins with.
#[derive(Debug)]
struct Beginning {
    choosing: OwnedFd,
    /// The filter of a seat that no engine has.
    nothing: OwnedFd,
}

impl Beginning {
    fn load(programs: &Programs, nobodys: Seat) -> Result<Self, Error> {
        let choosing = programs.choosing()?;
        Ok(Self { choosing, nothing: programs.filter_for_seat(nobodys)? })
    }
}

/// The groups of all devices. A group that has begun stays.
#[derive(Debug)]
pub(crate) struct Groups {
    seats: NonZeroU32,
    /// What the first group begins with, being loaded.
    beginning: Option<Work<Result<Beginning, Error>>>,
    by_device: HashMap<i32, Members>,
}

#[derive(Debug)]
struct Members {
    group: Group,
    /// The engines with a socket in it. A socket that is being closed stays in the group a little longer.
    engines: HashSet<Engine>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { seats: NonZeroU32::MIN, beginning: None, by_device: HashMap::new() }
    }

    /// Begins to load what the first group needs, as a program will open a device.
    pub(crate) fn expect_first(&mut self, programs: Programs, bell: &Bell) {
        let nobodys = self.next_seat();
        let load = move || Beginning::load(&programs, nobodys);
        // Without a thread it is loaded when it is wanted.
        self.beginning = Work::begin("group", bell, load).ok();
    }

    /// Tells whether what the first group begins with is being loaded.
    pub(crate) fn are_awaited(&self) -> bool {
        self.beginning.as_ref().is_some_and(|beginning| !beginning.is_over())
    }

    /// Returns a seat that no engine has had.
    pub(crate) fn next_seat(&mut self) -> Seat {
        let seat = Seat(self.seats);
        self.seats = self.seats.checked_add(1).unwrap_or(NonZeroU32::MIN);
        seat
    }

    /// Adds the socket by which an engine has opened a device, with its filter. The engine's frames go to it from now on.
    pub(crate) fn join(
        &mut self,
        owned: &Owned,
        (device, engine): (i32, Engine),
        socket: BorrowedFd<'_>,
        filter: &Filter,
    ) -> Result<(), String> {
        if !self.by_device.contains_key(&device) {
            let group = self.begin(owned, device)?;
            self.by_device.insert(device, Members { group, engines: HashSet::new() });
        }
        let members = self.by_device.get_mut(&device).ok_or("there is no group")?;
        // After the first member, which belongs to no engine. The seat comes first: no frame may be assigned before it exists.
        let place = u32::try_from(members.engines.len() + 1).unwrap_or(u32::MAX);
        let seated = owned.seat(device, engine, filter.seat, place);
        seated.map_err(|error| error.to_string())?;
        let joined = members.group.join(socket);
        joined
            .map_err(|error| format!("its packet socket cannot join those of others: {error}"))?;
        members.engines.insert(engine);
        Ok(())
    }

    fn begin(&mut self, owned: &Owned, device: i32) -> Result<Group, String> {
        let loaded = match self.beginning.take().and_then(Work::done) {
            Some(Ok(loaded)) => Ok(loaded),
            // This is for another device, or the failure was temporary.
            Some(Err(_)) | None => Beginning::load(&owned.programs(), self.next_seat()),
        };
        let Beginning { choosing, nothing } = loaded.map_err(|error| error.to_string())?;
        let begun = Group::begin(device, choosing.as_fd(), nothing.as_fd());
        begun.map_err(|error| error.to_string())
    }

    /// Forgets the group of a device that is in another network namespace. If the device comes back, it gets a new group.
    pub(crate) fn forget(&mut self, device: i32) {
        self.by_device.remove(&device);
    }

    /// Removes an engine that has closed its socket there, is dead, or could not join.
    pub(crate) fn leave(&mut self, owned: &Owned, device: i32, engine: Engine) {
        // An entry that is left behind does no harm: engine numbers are never reused.
        let _ = owned.unseat(device, engine);
        if let Some(members) = self.by_device.get_mut(&device) {
            members.engines.remove(&engine);
        }
    }
}
