//! The environment that the program is given.
//!
//! Kept as a value of its own: this process's environment is not changed for it, and the
//! library that is tried out in this process must not see the program's settings.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use uncork_posix::config::{Settings, variable};

use crate::failure::Failure;

/// Names and values, in the order in which they will be passed on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(OsString, OsString)>);

const PRELOAD: &str = "LD_PRELOAD";
/// The loader splits LD_PRELOAD at these (ld.so(8)).
pub(crate) const PRELOAD_SEPARATORS: [u8; 2] = *b": ";

impl Environment {
    /// What this process was given.
    pub(crate) fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Sets `name`, in its old place if it had one.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        let value = value.into();
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// Takes `name` out.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    /// Puts `library` before what is preloaded already, once.
    pub(crate) fn preload(&mut self, library: &Path) {
        let mut value = library.as_os_str().as_bytes().to_vec();
        let others = self.get(PRELOAD).map(OsStr::as_bytes).unwrap_or_default();
        for other in others.split(|byte| PRELOAD_SEPARATORS.contains(byte)) {
            if !other.is_empty() && other != library.as_os_str().as_bytes() {
                value.push(b':');
                value.extend_from_slice(other);
            }
        }
        self.set(PRELOAD, OsString::from_vec(value));
    }

    /// Sentences about `UNCORK_*` variables that the library would ignore.
    pub(crate) fn not_understood(&self, autocork: bool) -> Vec<String> {
        let lookup = |name: &str| self.get(name).map(|value| value.to_string_lossy().into_owned());
        Settings::from_lookup(autocork, lookup).ignored
    }

    /// In the form that exec takes.
    pub(crate) fn to_strings(&self) -> Result<Vec<CString>, Failure> {
        self.0
            .iter()
            .map(|(name, value)| {
                let mut entry = name.as_bytes().to_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                c_string(entry)
            })
            .collect()
    }
}

/// The variables that the library reads, by whichever name it is loaded.
pub(crate) const LIBRARY_VARIABLES: [&str; 15] = [
    variable::HOLD,
    variable::SCOPE,
    variable::BOUND,
    variable::SPIN,
    variable::MODERATION,
    variable::SMALL_QUEUE,
    variable::STATS,
    variable::DEBUG,
    variable::AUTOCORK_DEBUG,
    variable::AUTOCORK_MAX_QLEN,
    variable::AUTOCORK_DUMP_INTERVAL,
    uncork_guardian::VARIABLE,
    uncork_guardian::INSTANCE_VARIABLE,
    uncork_guardian::THREADS_VARIABLE,
    uncork_guardian::STAY_VARIABLE,
];

/// A string for exec. What came through exec holds no NUL; a UNCORK_LIBRARY may not either.
pub(crate) fn c_string(bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|error| {
        Failure::own(format!("a string with a NUL byte cannot be passed on: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment(pairs.iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    #[test]
    fn the_library_goes_before_what_is_preloaded_already_and_only_once() {
        let ours = Path::new("/opt/libuncork.so");
        for (before, after) in [
            (None, "/opt/libuncork.so"),
            (Some(""), "/opt/libuncork.so"),
            (Some("/a.so"), "/opt/libuncork.so:/a.so"),
            (Some("/a.so /b.so:/c.so"), "/opt/libuncork.so:/a.so:/b.so:/c.so"),
            (Some("/a.so:/opt/libuncork.so"), "/opt/libuncork.so:/a.so"),
        ] {
            let mut environment = environment(&[]);
            if let Some(before) = before {
                environment.set(PRELOAD, before);
            }
            environment.preload(ours);
            assert_eq!(environment.get(PRELOAD).unwrap(), after, "{before:?}");
        }
    }

    #[test]
    fn a_variable_keeps_its_place_when_it_is_set_again() {
        let mut environment = environment(&[("A", "1"), ("B", "2")]);
        environment.set("A", "3");
        environment.set("C", "4");
        environment.set("D", "5");
        environment.remove("D");
        let strings = environment.to_strings().unwrap();
        assert_eq!(strings, [c"A=3".into(), c"B=2".into(), CString::from(c"C=4")]);
    }

    #[test]
    fn variables_that_the_library_would_ignore_are_told() {
        let environment = environment(&[("UNCORK_BOUND", "5"), ("UNCORK_HOLD", "user")]);
        let told = environment.not_understood(false);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("UNCORK_BOUND is ignored"), "{told:?}");
    }
}
