//! Engines that share our end's device, as a guardian has them: a packet socket each, in one group.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;

use uncork_bpf::owned::{Engine, Owned, Programs, Seat};
use uncork_driver::af_packet::{Group, Handed, Prepared, Settings};
use uncork_netns::Namespace;

pub(crate) fn engine(number: u32) -> Engine {
    Engine(NonZeroU32::new(number).unwrap())
}

/// Engines of one device and one [`Owned`].
#[derive(Default)]
pub(crate) struct Engines {
    group: Option<Group>,
    seats: u32,
}

impl Engines {
    /// Opens `eth0` for an engine, with `guess` as its socket's place in the group. Returns the
    /// device's number, too.
    pub(crate) fn open(
        &mut self,
        host: &Namespace,
        owned: &Owned,
        engine: Engine,
        guess: u32,
    ) -> (i32, Handed) {
        self.seats += 1;
        let seat = Seat(NonZeroU32::new(self.seats).unwrap());
        let (programs, group) = (owned.programs(), self.group.take());
        let open = move || {
            let settings = Settings { receive_slots: 1024, ..Settings::new("eth0") };
            let made = Prepared::new(&settings)?;
            let device = made.index();
            let filter = programs.filter_for_seat(seat)?;
            let handed = made.finish(&settings, Some(filter.as_fd()))?;
            let group = group.map_or_else(|| begin(&programs, device), Ok)?;
            Ok((device, handed, group))
        };
        let (device, handed, group) = host.within(open).unwrap();
        owned.seat(device, engine, seat, guess).unwrap();
        group.join(handed.socket.as_fd()).unwrap();
        self.group = Some(group);
        (device, handed)
    }
}

/// From now on the kernel does not see what is the engines'.
pub(crate) fn attach(host: &Namespace, owned: Owned, device: i32) -> Owned {
    let attach = move || {
        let mut owned = owned;
        owned.attach(device)?;
        Ok(owned)
    };
    host.within(attach).unwrap()
}

fn begin(programs: &Programs, device: i32) -> anyhow::Result<Group> {
    let nobodys = programs.filter_for_seat(Seat(NonZeroU32::MAX))?;
    Ok(Group::begin(device, programs.choosing()?.as_fd(), nobodys.as_fd())?)
}
