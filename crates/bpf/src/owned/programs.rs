//! Loading the programs: all of them have to know something, and those of further engines stand over maps that are there
//! already.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use libbpf_rs::{MapHandle, ObjectBuilder, OpenObject};

use super::layout::constants;
use super::{DROP, Engine, Error, MAPS, OBJECT, Settings, TAKE, program};
use crate::tracer::is_section;

/// What loads programs for further engines. The kernel verifies each, which takes milliseconds, so whoever has a copy of this
/// may do it beside everything else.
#[derive(Clone)]
pub struct Programs {
    settings: Settings,
    /// By which connections are shared out.
    seed: u32,
    /// In the order of [`MAPS`].
    maps: Arc<[MapHandle; 8]>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Programs {
    pub(super) fn new(settings: Settings, seed: u32, maps: [MapHandle; 8]) -> Self {
        Self { settings, seed, maps: Arc::new(maps) }
    }

    pub(super) fn maps(&self) -> &[MapHandle; 8] {
        &self.maps
    }

    /// The program for a packet socket of one of several engines (SO_ATTACH_BPF). It lives as long as its descriptor, or
    /// a socket that it is attached to.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn filter_for(&self, engine: Engine) -> Result<OwnedFd, Error> {
        let mut object = self.open(OBJECT, engine, false)?;
        for mut program in object.progs_mut().filter(|program| program.name() == DROP) {
            program.set_autoload(false);
        }
        program(&object.load()?, TAKE)
    }

    /// Programs for another engine, over the same maps.
    pub(super) fn open(
        &self,
        programs: &[u8],
        engine: Engine,
        marks: bool,
    ) -> Result<OpenObject, Error> {
        let mut object = open(programs, self.settings, engine, self.seed, marks)?;
        for mut map in object.maps_mut() {
            if let Some(at) = MAPS.iter().position(|name| map.name() == *name) {
                map.reuse_fd(self.maps[at].as_fd())?;
            }
        }
        Ok(object)
    }
}

/// Programs with what they have to know.
pub(super) fn open(
    programs: &[u8],
    settings: Settings,
    engine: Engine,
    seed: u32,
    marks: bool,
) -> Result<OpenObject, Error> {
    let mut object = ObjectBuilder::default().name("uncork_owned")?.open_memory(programs)?;
    let values = constants(settings, engine, seed, marks);
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
