//! Chooses the programs that this kernel can run, loads and attaches them.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, Object, ObjectBuilder, OpenObject};

use crate::hooks::{self, Absent, HOOKS, Hook, Lack, Target};
use crate::tracer::{Error, Settings, is_section};

/// The object that clang made of `src/bpf`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/doctor.bpf.o"));

/// The programs that run, and those that do not.
pub(crate) struct Chosen {
    programs: Vec<Hook>,
    pub(crate) absent: Vec<Absent>,
}

impl Chosen {
    /// Chooses from what the kernel has, preferring a tracepoint to the function.
    pub(crate) fn of(kernel: &Btf<'_>) -> Self {
        let mut chosen = Self { programs: Vec::new(), absent: Vec::new() };
        let there = |hook: &Hook| hooks::exists(kernel, hook.target);
        for hook in HOOKS.into_iter().filter(|hook| !is_substitute(hook)) {
            let substitute = substitute_of(&hook);
            match [Some(hook), substitute].into_iter().flatten().find(there) {
                Some(hook) => chosen.programs.push(hook),
                None => chosen.leave_out(hook, "this kernel does not have it".to_owned()),
            }
        }
        chosen
    }

    fn leave_out(&mut self, hook: Hook, why: String) {
        self.programs.retain(|other| *other != hook);
        // A substitute's absence costs what the program that it replaces would report.
        let first = HOOKS.into_iter().find(|first| first.otherwise == Some(hook.program));
        let without = first.map_or(hook.without, |first| first.without);
        self.absent.push(Absent { hook: Hook { without, ..hook }, why });
    }

    /// Returns the first missing program without which tracing is impossible.
    pub(crate) fn essential_absent(&self) -> Option<&Absent> {
        self.absent.iter().find(|absent| absent.hook.without == Lack::Everything)
    }

    /// Whether this program runs.
    pub(crate) fn runs(&self, program: &str) -> bool {
        self.programs.iter().any(|hook| hook.program == program)
    }

    /// Loads what the kernel accepts. If it refuses the whole, each program is tried alone; one that fails is replaced by its
    /// substitute, or left out.
    pub(crate) fn load(&mut self, settings: &Settings) -> Result<Object, Error> {
        let all = match self.open(settings, &self.programs)?.load() {
            Ok(object) => return Ok(object),
            Err(error) => error,
        };
        let tried = self.programs.clone();
        for hook in &tried {
            let Err(error) = self.open(settings, &[*hook])?.load() else { continue };
            match substitute_of(hook) {
                Some(other) if self.open(settings, &[other])?.load().is_ok() => {
                    self.programs.retain(|one| one != hook);
                    self.programs.push(other);
                }
                _ => self.leave_out(*hook, format!("the kernel refused it: {error}")),
            }
        }
        // Only something that they share can be the cause: the maps, or the permission to load.
        if self.programs.is_empty() {
            return Err(Error::Refused(all));
        }
        self.open(settings, &self.programs)?.load().map_err(Error::Refused)
    }

    fn open(&self, settings: &Settings, wanted: &[Hook]) -> Result<OpenObject, Error> {
        let mut object = ObjectBuilder::default().name("uncork")?.open_memory(OBJECT)?;
        for mut program in object.progs_mut() {
            program.set_autoload(wanted.iter().any(|hook| program.name() == hook.program));
        }
        let runs = |name: &str| self.programs.iter().any(|hook| hook.program.starts_with(name));
        let seen = (runs("write_begins"), runs("data_came"));
        for mut map in object.maps_mut() {
            if is_section(map.name(), ".rodata")
                && let Some(values) = map.initial_value_mut()
            {
                set_constants(values, settings, seen);
            }
        }
        Ok(object)
    }

    /// Attaches every program but the iterators.
    pub(crate) fn attach(&mut self, object: &Object) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let chosen = self.programs.iter().find(|hook| program.name() == hook.program);
            let Some(hook) = chosen.copied() else { continue };
            let link = match hook.target {
                Target::Iterator(_) => continue,
                Target::SetSockOpt => cgroup().and_then(|root| {
                    program.attach_cgroup(root.as_raw_fd()).map_err(|error| error.to_string())
                }),
                _ => program.attach().map_err(|error| error.to_string()),
            };
            match link {
                Ok(link) => links.push(link),
                Err(why) => self.leave_out(hook, why),
            }
        }
        Ok(links)
    }
}

fn substitute_of(hook: &Hook) -> Option<Hook> {
    HOOKS.into_iter().find(|other| Some(other.program) == hook.otherwise)
}

fn is_substitute(hook: &Hook) -> bool {
    HOOKS.iter().any(|first| first.otherwise == Some(hook.program))
}

/// Opens the root of the cgroup v2 hierarchy, wherever it is mounted.
fn cgroup() -> Result<File, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    let directory = cgroup2(&mounts).ok_or("no cgroup v2 hierarchy is mounted")?;
    File::open(&directory).map_err(|error| format!("{}: {error}", directory.display()))
}

/// Finds the mount point. Spaces in mount points are written as \040 (proc_mounts(5)); this one has none.
pub(crate) fn cgroup2(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, directory, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(directory))
    })
}

/// Sets the constants of `state.h`, in the order in which they are defined there, each aligned to its
/// size.
fn set_constants(values: &mut [u8], settings: &Settings, (begin, data): (bool, bool)) {
    let least_ns = u64::try_from(settings.least_hold.as_nanos()).unwrap_or(u64::MAX);
    let mut set = |at: usize, bytes: &[u8]| {
        if let Some(place) = values.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    set(0, &least_ns.to_ne_bytes());
    set(8, &[u8::from(settings.stacks)]);
    set(24, &[u8::from(begin), u8::from(data)]);
    set(28, &settings.pid_namespace.unwrap_or(0).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v2_hierarchy_is_found_beside_the_old_ones() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(cgroup2("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn the_constants_are_where_the_compiler_put_them() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let map = object.maps().find(|map| is_section(map.name(), ".rodata")).unwrap();
        let values = map.initial_value().unwrap();
        // As in state.h: 1 ms, no stacks, 5 ms, writes seen before they are sent, data when
        // it comes, in the initial PID namespace.
        assert_eq!(values[..8], 1_000_000_u64.to_ne_bytes());
        assert_eq!(values[8], 0);
        assert_eq!(values[16..24], 5_000_000_u64.to_ne_bytes());
        assert_eq!(values[24..32], [1, 1, 0, 0, 0, 0, 0, 0]);
    }
}
