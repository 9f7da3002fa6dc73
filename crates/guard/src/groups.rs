//! The packet sockets of a device: one by itself, or several in a group, so that each frame is looked at once and not by
//! each of them.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use uncork_bpf::owned::{Engine, Error, Owned, Programs, Seat};
use uncork_driver::af_packet::{Group, Member};

/// The filters of an engine's socket.
#[derive(Debug)]
pub(crate) struct Filters {
    /// As long as it is by itself.
    alone: OwnedFd,
    /// In a group, which knows it by its seat.
    in_group: OwnedFd,
    seat: Seat,
    /// What chooses for a group, if it was to be loaded, too.
    choosing: Option<OwnedFd>,
}

impl Filters {
    pub(crate) fn load(
        programs: &Programs,
        engine: Engine,
        seat: Seat,
        with_choosing: bool,
    ) -> Result<Self, Error> {
        let [alone, in_group] = programs.filters_for(engine, seat)?;
        let choosing = with_choosing.then(|| programs.choosing()).transpose()?;
        Ok(Self { alone, in_group, seat, choosing })
    }

    pub(crate) fn alone(&self) -> BorrowedFd<'_> {
        self.alone.as_fd()
    }
}

/// A packet socket that an engine has opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) device: i32,
    pub(crate) engine: Engine,
    pub(crate) socket: OwnedFd,
    pub(crate) filters: Filters,
}

/// Of all devices.
#[derive(Debug)]
pub(crate) struct Groups {
    seats: NonZeroU32,
    /// What chooses, once there is a group.
    choosing: Option<OwnedFd>,
    by_device: HashMap<i32, Sockets>,
}

#[derive(Debug)]
enum Sockets {
    One(Opened),
    /// Those that are being closed are in it for a while yet, and are not counted.
    Several {
        group: Group,
        count: u32,
    },
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { seats: NonZeroU32::MIN, choosing: None, by_device: HashMap::new() }
    }

    /// A seat that nobody has had.
    pub(crate) fn next_seat(&mut self) -> Seat {
        let seat = Seat(self.seats);
        self.seats = self.seats.checked_add(1).unwrap_or(NonZeroU32::MIN);
        seat
    }

    /// Whether what chooses is not loaded yet, and will be wanted when somebody opens a device who has not yet.
    pub(crate) fn lacks_choosing(&self) -> bool {
        self.choosing.is_none() && !self.by_device.is_empty()
    }

    /// There is one more. What is its engine's comes to it, and goes on coming to the others.
    pub(crate) fn join(&mut self, owned: &Owned, mut opened: Opened) -> Result<(), String> {
        let device = opened.device;
        if let Some(choosing) = opened.filters.choosing.take() {
            self.choosing = Some(choosing);
        }
        let (group, count) = match self.by_device.remove(&device) {
            None => {
                self.by_device.insert(device, Sockets::One(opened));
                return Ok(());
            }
            Some(Sockets::One(first)) => (self.enter(owned, &first, None, 0)?, 1),
            Some(Sockets::Several { group, count }) => (group, count),
        };
        let joined = self.enter(owned, &opened, Some(group), count);
        let count = count + u32::from(joined.is_ok());
        self.by_device.insert(device, Sockets::Several { group, count });
        joined.map(drop)
    }

    /// It becomes the last member of this group, at that place if nobody has left, or the first of a new one.
    fn enter(
        &mut self,
        owned: &Owned,
        opened: &Opened,
        group: Option<Group>,
        place: u32,
    ) -> Result<Group, String> {
        let Opened { device, engine, socket, filters } = opened;
        let choosing = self.choosing(owned).map_err(|error| error.to_string())?;
        // Before it is chosen for the first time.
        let seated = owned.seat(*device, *engine, filters.seat, place);
        seated.map_err(|error| error.to_string())?;
        let (socket, filter) = (socket.as_fd(), filters.in_group.as_fd());
        let member = Member { socket, filter };
        let entered = match group {
            Some(group) => group.join(member).map(|()| group),
            None => Group::begin(member, choosing),
        };
        entered.map_err(|error| {
            let _ = owned.unseat(*device, *engine);
            format!("its packet socket cannot join those of others: {error}")
        })
    }

    fn choosing(&mut self, owned: &Owned) -> Result<BorrowedFd<'_>, Error> {
        let choosing = match self.choosing.take() {
            Some(choosing) => choosing,
            None => owned.programs().choosing()?,
        };
        let choosing: &OwnedFd = self.choosing.insert(choosing);
        Ok(choosing.as_fd())
    }

    /// This engine has closed its socket there, or is dead.
    pub(crate) fn leave(&mut self, owned: &Owned, device: i32, engine: Engine) {
        // What is left there does no harm: its number does not come again.
        let _ = owned.unseat(device, engine);
        let is_over = match self.by_device.get_mut(&device) {
            Some(Sockets::One(only)) => only.engine == engine,
            Some(Sockets::Several { count, .. }) => {
                *count = count.saturating_sub(1);
                *count == 0
            }
            None => false,
        };
        if is_over {
            self.by_device.remove(&device);
        }
    }
}
