//! The files by which programs find a running service of uncork's: each has the service's name, and holds the place of the
//! guardian, which is a secret.
//!
//! Its first line is the place. Then, for instances, `instances N`, and `cpu I N` for each that has a processor of its
//! own. The process that runs the service keeps the file locked, so that a stale file is told from one in use.

mod claim;
mod name;
mod service;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use claim::Claim;
pub(crate) use name::Name;
pub(crate) use service::Service;

use crate::failure::Failure;

/// The contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Value of the variable.
    pub(crate) place: String,
    /// The number of instances; 0 where it is a guardian's.
    pub(crate) instances: u32,
    /// The processors of those that have one of their own.
    pub(crate) cpus: BTreeMap<u32, usize>,
}

impl Told {
    fn write(&self) -> String {
        let mut text = format!("{}\n", self.place);
        if self.instances > 0 {
            let _ = writeln!(text, "instances {}", self.instances);
        }
        for (instance, cpu) in &self.cpus {
            let _ = writeln!(text, "cpu {instance} {cpu}");
        }
        text
    }

    /// Parses the contents; `None` if they are empty. Lines of a later version are skipped.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let place = lines.next().filter(|line| !line.is_empty())?.to_owned();
        let mut told = Self { place, ..Self::default() };
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["instances", count] => told.instances = count.parse().ok()?,
                ["cpu", instance, cpu] => {
                    told.cpus.insert(instance.parse().ok()?, cpu.parse().ok()?);
                }
                _ => {}
            }
        }
        Some(told)
    }
}

/// How long a process that starts a service may take to publish its place: it has its filters to load.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// Reads what a service with this name has published; it may be starting.
pub(crate) fn find(service: Service, name: &Name) -> Result<Told, Failure> {
    find_in(service.directory(), service, name, BEGINS_WITHIN)
}

/// Returns whether there is, or was, a service of this name, whichever users may use it.
pub(crate) fn is_claimed(service: Service, name: &Name) -> bool {
    service.directory().join(name.as_str()).exists()
}

fn find_in(
    directory: &Path,
    service: Service,
    name: &Name,
    patience: Duration,
) -> Result<Told, Failure> {
    let path = directory.join(name.as_str());
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => service.is_absent(name),
            ErrorKind::PermissionDenied => service.is_others(name),
            _ => Failure::own(format!("{} cannot be read: {error}", path.display())),
        })?;
        if let Some(told) = Told::read(&text) {
            return Ok(told);
        }
        if !text.is_empty() {
            return Err(service.is_gone(name));
        }
        if begun.elapsed() >= patience {
            return Err(service.is_silent(name));
        }
        thread::sleep(LOOKS_EVERY);
    }
}

/// Returns what all instances have published that this user may read.
pub(crate) fn all_instances() -> Vec<Told> {
    let files = fs::read_dir(Service::Instances.directory()).into_iter().flatten().flatten();
    files.filter_map(|file| Told::read(&fs::read_to_string(file.path()).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_comes_later_is_passed_over() {
        let told =
            Told { place: "@name:token".to_owned(), instances: 2, cpus: [(0, 2), (1, 4)].into() };
        assert_eq!(Told::read(&told.write()), Some(told.clone()));
        assert_eq!(Told::read(&(told.write() + "colour blue\n")), Some(told));
        for nothing in ["", "\n", "@name:token\ninstances x\n", "@name:token\ncpu 1 x\n"] {
            assert_eq!(Told::read(nothing), None, "{nothing:?}");
        }
        let guardian = Told { place: "@name:token".to_owned(), ..Told::default() };
        assert_eq!(guardian.write(), "@name:token\n");
        assert_eq!(Told::read(&guardian.write()), Some(guardian));
    }
}
