//! The packet sockets of a device, in one group, so that each frame is looked at once and not by each of them.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use uncork_bpf::owned::{Engine, Error, GroupNumber, Owned, Programs, Seat};
use uncork_driver::af_packet::Group;

/// What a socket needs to come into a group.
#[derive(Debug)]
pub(crate) struct Filter {
    seat: Seat,
    /// It knows by the seat what is for the socket.
    program: OwnedFd,
    /// What chooses in a new group of that number, should this be its first.
    choosing: Option<Choosing>,
}

#[derive(Debug)]
struct Choosing {
    number: GroupNumber,
    program: OwnedFd,
}

/// What is loaded for one who will open a device: a thread may do that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    number: NonZeroU32,
    /// There is no group yet.
    is_first: bool,
}

impl Filter {
    pub(crate) fn load(programs: &Programs, wanted: Wanted) -> Result<Self, Error> {
        let seat = Seat(wanted.number);
        let program = programs.filter_for_seat(seat)?;
        let choosing = wanted.is_first.then(|| Choosing::load(programs, wanted.number));
        Ok(Self { seat, program, choosing: choosing.transpose()? })
    }

    pub(crate) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

impl Choosing {
    fn load(programs: &Programs, number: NonZeroU32) -> Result<Self, Error> {
        let number = GroupNumber(number);
        Ok(Self { number, program: programs.choosing(number)? })
    }
}

/// Of all devices.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Of seats, and of the groups that these are the first of: none comes again.
    next: NonZeroU32,
    by_device: HashMap<i32, Members>,
}

#[derive(Debug)]
struct Members {
    number: GroupNumber,
    group: Group,
    /// Those that are being closed are in it for a while yet.
    engines: HashSet<Engine>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { next: NonZeroU32::MIN, by_device: HashMap::new() }
    }

    /// For who opens a device next.
    pub(crate) fn want(&mut self) -> Wanted {
        let number = self.next;
        self.next = self.next.checked_add(1).unwrap_or(NonZeroU32::MIN);
        Wanted { number, is_first: self.by_device.is_empty() }
    }

    /// An engine has opened a device by this socket, which has this filter. What is the engine's comes to it from now on.
    pub(crate) fn join(
        &mut self,
        owned: &Owned,
        (device, engine): (i32, Engine),
        socket: BorrowedFd<'_>,
        filter: Filter,
    ) -> Result<(), String> {
        let Filter { seat, choosing, .. } = filter;
        let no_room = |error| format!("its packet socket cannot join those of others: {error}");
        // It has its seat before anything is chosen for it.
        if let Some(members) = self.by_device.get_mut(&device) {
            let place = u32::try_from(members.engines.len()).unwrap_or(u32::MAX);
            let seated = owned.seat(device, engine, (seat, members.number), place);
            seated.map_err(|error| error.to_string())?;
            members.group.join(socket).map_err(no_room)?;
            members.engines.insert(engine);
            return Ok(());
        }
        let choosing = match choosing {
            Some(choosing) => Ok(choosing),
            None => Choosing::load(&owned.programs(), seat.0),
        };
        let Choosing { number, program } = choosing.map_err(|error| error.to_string())?;
        let seated = owned.seat(device, engine, (seat, number), 0);
        seated.map_err(|error| error.to_string())?;
        let group = Group::begin(socket, program.as_fd()).map_err(no_room)?;
        let engines = HashSet::from([engine]);
        self.by_device.insert(device, Members { number, group, engines });
        Ok(())
    }

    /// This engine has closed its socket there, or is dead, or could not join.
    pub(crate) fn leave(&mut self, owned: &Owned, device: i32, engine: Engine) {
        // What is left there does no harm: its number does not come again.
        let _ = owned.unseat(device, engine);
        if let Some(members) = self.by_device.get_mut(&device) {
            members.engines.remove(&engine);
            if members.engines.is_empty() {
                self.by_device.remove(&device);
            }
        }
    }
}
