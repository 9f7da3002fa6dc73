//! The object that clang made of `src/bpf/tune.bpf.c`, with some of its programs loaded.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use libbpf_rs::{Iter, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramMut};

use super::cure::{Cure, NAMES};
use super::error::Error;
use super::pinned::Pins;
use super::settings::{self, Outcome, Scope};
use crate::privilege::has_sys;
use crate::tracer::is_section;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tune.bpf.o"));

/// The map of former values of connections that were caught when they were established.
pub(super) const NEW_SOCKETS: &str = "born";
/// The maps of former values of sockets, which all entries share.
pub(super) const MEMORY: [&str; 2] = ["sockets", NEW_SOCKETS];

/// Loaded programs. They may be used in any thread: an iterator shows the network namespace of the
/// calling thread.
pub(super) struct Loaded {
    object: Object,
}

impl Loaded {
    /// Loads these programs, with the maps of former values that are pinned there, or with new ones
    /// of their own.
    pub(super) fn load(
        programs: &[&'static str],
        (entry, cures, scope): (u32, &[Cure], &Scope),
        pins: Option<&Pins>,
    ) -> Result<Self, Error> {
        // libbpf does not print; our own errors say what happened.
        libbpf_rs::set_print(None);
        let mut object = ObjectBuilder::default().name("uncork_tune")?.open_memory(OBJECT)?;
        for mut program in object.progs_mut() {
            program.set_autoload(programs.iter().any(|name| program.name() == *name));
        }
        let values = settings::bytes(entry, cures, scope, pid_namespace());
        for mut map in object.maps_mut() {
            if is_section(map.name(), ".rodata")
                && let Some(place) =
                    map.initial_value_mut().and_then(|all| all.get_mut(..values.len()))
            {
                place.copy_from_slice(&values);
            }
            let Some(name) = MEMORY.into_iter().find(|name| map.name() == *name) else { continue };
            let path = pins.map(|pins| pins.shared(name)).filter(|path| path.exists());
            if let Some(path) = path {
                let there = MapHandle::from_pinned_path(&path)?;
                if there.value_size() != map.value_size() {
                    return Err(Error::OtherVersion(path));
                }
                map.reuse_fd(there.as_fd())?;
            } else if name == NEW_SOCKETS && !programs.contains(&"established") {
                // Nothing is written to it, so it need not take megabytes.
                map.set_max_entries(1)?;
            }
        }
        let refused = |error| match has_sys() {
            true => Error::Refused { name: "tune", error },
            false => Error::NoSys,
        };
        let object = object.load().map_err(refused)?;
        Ok(Self { object })
    }

    pub(super) fn map(&self, name: &str) -> Result<MapHandle, Error> {
        let found = self.object.maps().find(|map| map.name() == name);
        let found = found.ok_or_else(|| absent(name))?;
        Ok(MapHandle::try_from(&found)?)
    }

    /// Calls a function with a program.
    pub(super) fn with<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&ProgramMut<'_>) -> libbpf_rs::Result<T>,
    ) -> Result<T, Error> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| absent(name))?;
        act(&program).map_err(|error| Error::Refused { name, error })
    }

    /// Runs an iterator over all that this thread may see, and returns its output.
    pub(super) fn iterate(&self, name: &'static str) -> Result<Vec<u8>, Error> {
        let link = self.with(name, |program| program.attach())?;
        read_all(name, &link)
    }

    /// Runs an iterator over a map of sockets, and returns its output.
    pub(super) fn iterate_map(&self, name: &'static str, map: &str) -> Result<Vec<u8>, Error> {
        let map = self.map(map)?;
        let link = self.with(name, |program| program.attach_iter(map.as_fd()))?;
        read_all(name, &link)
    }

    /// Returns CONFIG_HZ; 0 if the kernel does not reveal it.
    pub(super) fn ticks_per_second(&self) -> Result<u32, Error> {
        let found = self.object.maps().find(|map| is_section(map.name(), ".kconfig"));
        let Some(map) = found else { return Ok(0) };
        let value = MapHandle::try_from(&map)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let four = value.as_deref().and_then(|bytes| bytes.get(..4)?.try_into().ok());
        Ok(four.map_or(0, u32::from_ne_bytes))
    }

    pub(super) fn count(&self, map: &str) -> Result<usize, Error> {
        Ok(self.map(map)?.keys().count())
    }

    pub(super) fn outcomes(&self) -> Result<[Outcome; NAMES.len()], Error> {
        outcomes(&self.map("outcomes")?)
    }
}

/// Reads the results for each option.
pub(super) fn outcomes(map: &MapHandle) -> Result<[Outcome; NAMES.len()], Error> {
    let mut outcomes = [Outcome::default(); NAMES.len()];
    for (key, outcome) in (0_u32..).zip(&mut outcomes) {
        if let Some(bytes) = map.lookup(&key.to_ne_bytes(), MapFlags::ANY)? {
            *outcome = Outcome::read(&bytes);
        }
    }
    Ok(outcomes)
}

pub(super) fn read_all(name: &'static str, link: &libbpf_rs::Link) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let refused = |error: libbpf_rs::Error| Error::Refused { name, error };
    let mut iterator = Iter::new(link).map_err(refused)?;
    iterator.read_to_end(&mut bytes).map_err(|error| refused(error.into()))?;
    Ok(bytes)
}

fn absent(name: &str) -> Error {
    let text = format!("the object has no {name}");
    Error::Other(std::io::Error::new(std::io::ErrorKind::NotFound, text).into())
}

/// Returns the inode of this process's PID namespace.
fn pid_namespace() -> u32 {
    let number = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_as_the_compiler_laid_them_out() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let bytes = |name: &str| {
            let map = object.maps().find(|map| is_section(map.name(), name)).unwrap();
            map.initial_value().map_or(map.value_size() as usize, <[u8]>::len)
        };
        assert_eq!(bytes(".rodata"), settings::BYTES);
        assert_eq!(bytes("outcomes"), settings::OUTCOME_BYTES);
        // These live on in the kernel: a change needs a new name of the map.
        assert_eq!(bytes("sockets"), NAMES.len() * 40);
        assert_eq!(bytes("born"), 16 + NAMES.len() * 40);
    }
}
