//! The environment of the program.
//!
//! It is a value of its own: this process's environment is not changed for it, and the library that
//! is tried out in this process must not see the program's settings.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use uncork_posix::config::{Settings, variable};

use crate::failure::Failure;

/// Names and values, in the order in which they will be passed on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(Vec<(OsString, OsString)>);

const PRELOAD: &str = "LD_PRELOAD";
/// The characters at which the loader splits LD_PRELOAD (ld.so(8)).
pub(crate) const PRELOAD_SEPARATORS: [u8; 2] = *b": ";

impl Environment {
    /// Returns the environment of this process.
    pub(crate) fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// Returns the value of `name`.
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

    /// Removes `name`.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(key, _)| key != name);
    }

    /// Puts `library` before what is already preloaded, once.
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

    /// Returns sentences about `UNCORK_*` variables that the library would ignore.
    pub(crate) fn not_understood(&self, autocork: bool) -> Vec<String> {
        let lookup = |name: &str| self.get(name).map(|value| value.to_string_lossy().into_owned());
        self.settings(autocork).ignored.into_iter().chain(switches_ignored(lookup)).collect()
    }

    /// Returns the settings that the library will derive from it.
    pub(crate) fn settings(&self, autocork: bool) -> Settings {
        let lookup = |name: &str| self.get(name).map(|value| value.to_string_lossy().into_owned());
        Settings::from_lookup(autocork, lookup)
    }

    /// Returns remarks on variables that have no effect where the stack is an instance's.
    pub(crate) fn notes_of_instance(&self) -> Vec<String> {
        let whose = [
            (variable::MODERATION, "take the frames in"),
            (variable::SMALL_QUEUE, "have the queues"),
        ];
        let note = |(name, have): (&str, &str)| {
            let value = self.get(name)?.to_string_lossy();
            Some(format!(
                "{name}={value} sets nothing with --stack=instance: it is said to uncork stack start, whose instances {have}"
            ))
        };
        whose.into_iter().filter_map(note).collect()
    }

    /// Returns the number in a variable, if that is set.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let value = value.to_string_lossy();
        let number =
            value.parse().map_err(|_| Failure::own(format!("{name}={value} is no number")))?;
        Ok(Some(number))
    }

    /// Returns the form that exec takes.
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

/// Returns sentences about switches of the stack that are neither on nor off.
pub(crate) fn switches_ignored(lookup: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let switches = [uncork_guardian::THREADS_VARIABLE, uncork_guardian::STAY_VARIABLE];
    let set = switches.into_iter().filter_map(|name| Some((name, lookup(name)?)));
    let unclear = set.filter(|(_, value)| !matches!(value.as_str(), "" | "0" | "1"));
    unclear.map(|(name, value)| format!("{name} is ignored: {value:?} is not 1 or 0")).collect()
}

/// The variables that the library reads, under whichever name it is loaded.
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

/// Returns a string for exec. What came through exec holds no NUL; a UNCORK_LIBRARY may not either.
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
    fn what_an_instance_is_told_elsewhere_sets_nothing_and_a_number_is_one() {
        let environment = environment(&[
            ("UNCORK_MODERATION", "50us"),
            ("UNCORK_SMALL_QUEUE", "6000"),
            ("N", "x"),
        ]);
        let notes = environment.notes_of_instance();
        assert_eq!(notes.len(), 2, "{notes:?}");
        let wanted = "UNCORK_MODERATION=50us sets nothing with --stack=instance: it is said to uncork stack start";
        assert!(notes[0].starts_with(wanted), "{notes:?}");
        assert!(notes[1].starts_with("UNCORK_SMALL_QUEUE=6000 sets nothing"), "{notes:?}");
        assert_eq!(environment.number("M").unwrap(), None);
        assert_eq!(environment.number("UNCORK_SMALL_QUEUE").unwrap(), Some(6000));
        assert_eq!(environment.number("N").unwrap_err().to_string(), "N=x is no number");
    }

    #[test]
    fn variables_that_the_library_would_ignore_are_told() {
        let environment = environment(&[("UNCORK_BOUND", "5"), ("UNCORK_HOLD", "user")]);
        let told = environment.not_understood(false);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("UNCORK_BOUND is ignored"), "{told:?}");
    }

    #[test]
    fn switches_of_the_stack_that_are_neither_on_nor_off_are_told() {
        let (threads, stay) = ("UNCORK_STACK_THREADS", "UNCORK_STACK_STAY");
        for clear in ["1", "0", ""] {
            assert!(
                environment(&[(threads, clear), (stay, clear)]).not_understood(false).is_empty()
            );
        }
        let told = environment(&[(threads, "yes"), (stay, "maybe")]).not_understood(false);
        let wanted = [
            "UNCORK_STACK_THREADS is ignored: \"yes\" is not 1 or 0",
            "UNCORK_STACK_STAY is ignored: \"maybe\" is not 1 or 0",
        ];
        assert_eq!(told, wanted);
    }
}
