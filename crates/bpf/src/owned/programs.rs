//! Loads the programs: all of them have constants to set, and those of further engines use maps that exist
//! already.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{MapHandle, ObjectBuilder, OpenObject};

use super::layout::Constants;
use super::{CHOOSE, Engine, Error, MAPS, OBJECT, Seat, Settings, TAKE_CHOSEN, program};
use crate::tracer::is_section;

/// The loader of programs for further engines. The kernel verifies each, which takes milliseconds, so a thread with a copy of
/// this can do it concurrently.
#[derive(Clone)]
pub struct Programs {
    settings: Settings,
    /// Seed of the hash that distributes connections.
    seed: u32,
    /// In the order of [`MAPS`].
    maps: Arc<[MapHandle]>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Programs {
    pub(super) fn new(settings: Settings, seed: u32, maps: Vec<MapHandle>) -> Self {
        Self { settings, seed, maps: maps.into() }
    }

    pub(super) fn maps(&self) -> &[MapHandle] {
        &self.maps
    }

    /// Returns the program for the packet socket of one of several engines (SO_ATTACH_BPF), which has this seat in a group.
    /// It lives as long as its descriptor, or a socket that it is attached to.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn filter_for_seat(&self, seat: Seat) -> Result<OwnedFd, Error> {
        self.only(TAKE_CHOSEN, Constants { seat: Some(seat), ..self.constants(Engine::ONLY) })
    }

    /// Returns the program that chooses among the packet sockets of a device's group (PACKET_FANOUT_DATA), each of which has
    /// a seat there ([`Owned::seat`](super::Owned::seat)). It looks at each frame once, however many they are.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn choosing(&self) -> Result<OwnedFd, Error> {
        self.only(CHOOSE, self.constants(Engine::ONLY))
    }

    pub(super) fn constants(&self, engine: Engine) -> Constants {
        Constants { engine, ..Constants::new(self.settings, self.seed) }
    }

    fn only(&self, name: &str, constants: Constants) -> Result<OwnedFd, Error> {
        let mut object = self.open(OBJECT, constants)?;
        load_only(&mut object, &[name]);
        program(&object.load()?, name)
    }

    /// Opens programs for another engine, over the same maps.
    pub(super) fn open(&self, programs: &[u8], constants: Constants) -> Result<OpenObject, Error> {
        let mut object = open(programs, constants)?;
        for mut map in object.maps_mut() {
            if let Some(at) = MAPS.iter().position(|name| map.name() == *name) {
                map.reuse_fd(self.maps[at].as_fd())?;
            }
        }
        Ok(object)
    }
}

/// Selects the programs to load; the others are not verified.
pub(super) fn load_only(object: &mut OpenObject, names: &[&str]) {
    let of_others = |name: &OsStr| names.iter().all(|wanted| name != *wanted);
    for mut program in object.progs_mut().filter(|program| of_others(program.name())) {
        program.set_autoload(false);
    }
}

/// Opens programs and sets their constants.
pub(super) fn open(programs: &[u8], constants: Constants) -> Result<OpenObject, Error> {
    let mut object = ObjectBuilder::default().name("uncork_owned")?.open_memory(programs)?;
    let values = constants.bytes();
    for mut map in object.maps_mut() {
        if is_section(map.name(), ".rodata")
            && let Some(values_there) = map.initial_value_mut()
            && let Some(place) = values_there.get_mut(..values.len())
        {
            place.copy_from_slice(&values);
        }
    }
    Ok(object)
}
