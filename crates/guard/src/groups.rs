//! The packet sockets of a device, in one group, so that each frame is looked at once and not by each of them.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use uncork_bpf::owned::{Engine, Error, Owned, Programs, Seat};
use uncork_driver::af_packet::Group;

/// What a socket needs to come into a group.
#[derive(Debug)]
pub(crate) struct Filter {
    seat: Seat,
    /// It knows by the seat what is for the socket.
    program: OwnedFd,
    /// What a group begins with, if there was none.
    beginning: Option<Beginning>,
}

#[derive(Debug)]
struct Beginning {
    choosing: OwnedFd,
    /// The filter of a seat that nobody has.
    nothing: OwnedFd,
}

/// What is loaded for one who will open a device: a thread may do that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    seat: Seat,
    /// There is no group yet, and this is the seat that nobody has.
    nobodys: Option<Seat>,
}

impl Filter {
    pub(crate) fn load(programs: &Programs, wanted: Wanted) -> Result<Self, Error> {
        let program = programs.filter_for_seat(wanted.seat)?;
        let beginning = wanted.nobodys.map(|seat| Beginning::load(programs, seat)).transpose()?;
        Ok(Self { seat: wanted.seat, program, beginning })
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl Beginning {
    fn load(programs: &Programs, nobodys: Seat) -> Result<Self, Error> {
        let choosing = programs.choosing()?;
        Ok(Self { choosing, nothing: programs.filter_for_seat(nobodys)? })
    }
}

/// Of all devices. Once there is one it stays.
#[derive(Debug)]
pub(crate) struct Groups {
    seats: NonZeroU32,
    by_device: HashMap<i32, Members>,
}

#[derive(Debug)]
struct Members {
    group: Group,
    /// Those that are being closed are in it for a while yet.
    engines: HashSet<Engine>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { seats: NonZeroU32::MIN, by_device: HashMap::new() }
    }

    /// For who opens a device next.
    pub(crate) fn want(&mut self) -> Wanted {
        let seat = self.next_seat();
        let nobodys = self.by_device.is_empty().then(|| self.next_seat());
        Wanted { seat, nobodys }
    }

    /// One that nobody has had.
    fn next_seat(&mut self) -> Seat {
        let seat = Seat(self.seats);
        self.seats = self.seats.checked_add(1).unwrap_or(NonZeroU32::MIN);
        seat
    }

    /// An engine has opened a device by this socket, which has this filter. What is the engine's comes to it from now on.
    pub(crate) fn join(
        &mut self,
        owned: &Owned,
        (device, engine): (i32, Engine),
        socket: BorrowedFd<'_>,
        filter: Filter,
    ) -> Result<(), String> {
        let Filter { seat, beginning, .. } = filter;
        if !self.by_device.contains_key(&device) {
            let beginning =
                beginning.map_or_else(|| Beginning::load(&owned.programs(), self.next_seat()), Ok);
            let Beginning { choosing, nothing } = beginning.map_err(|error| error.to_string())?;
            let group = Group::begin(device, choosing.as_fd(), nothing.as_fd());
            let group = group.map_err(|error| error.to_string())?;
            self.by_device.insert(device, Members { group, engines: HashSet::new() });
        }
        let members = self.by_device.get_mut(&device).ok_or("there is no group")?;
        // Behind the one that is nobody's. It has its seat before anything is chosen for it.
        let place = u32::try_from(members.engines.len() + 1).unwrap_or(u32::MAX);
        let seated = owned.seat(device, engine, seat, place);
        seated.map_err(|error| error.to_string())?;
        let joined = members.group.join(socket);
        joined
            .map_err(|error| format!("its packet socket cannot join those of others: {error}"))?;
        members.engines.insert(engine);
        Ok(())
    }

    /// This engine has closed its socket there, or is dead, or could not join.
    pub(crate) fn leave(&mut self, owned: &Owned, device: i32, engine: Engine) {
        // What is left there does no harm: its number does not come again.
        let _ = owned.unseat(device, engine);
        if let Some(members) = self.by_device.get_mut(&device) {
            members.engines.remove(&engine);
        }
    }
}
