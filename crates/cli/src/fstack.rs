//! Variables of F-Stack's adapter, for programs that are moved from it (docs/F-STACK.md).
//!
//! They say where instances run that serve programs from processes of their own, and which of them serves which. `uncork
//! stack start` and `uncork run --stack=instance` use them where their own options say nothing. With a stack on the
//! program's own threads only the program's processor is left to be set by them.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::environment::Environment;
use crate::failure::Failure;
use crate::stack::instance_count;

/// The number of instances.
const INSTANCES: &str = "FF_NB_FSTACK_INSTANCE";
/// The processor of the first process, as a mask in hexadecimal: 4 is the third.
const FIRST: &str = "FF_INITIAL_LCORE_ID";
/// The number of this process: its processor is that many further.
const PROCESS: &str = "FF_PROC_ID";

/// Whether sockets are bound to the thread that creates them. (F-Stack's adapter has this set when it is built.)
const THREADS: &str = "FF_THREAD_SOCKET";

/// The processors on which the program is to run: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    mask: u64,
}

/// Returns a remark on variables that have no effect with a stack on the program's own threads.
pub(crate) fn note(environment: &Environment) -> Option<String> {
    let number = environment.get(INSTANCES)?.to_string_lossy();
    Some(format!(
        "{INSTANCES}={number} sets nothing: each process has the stack on its own threads"
    ))
}

/// Returns remarks on variables that have no effect where the stack is an instance's, and each thread uses the instance
/// with the fewest threads, if that is so.
pub(crate) fn notes_of_instance(environment: &Environment, threads_choose: bool) -> Vec<String> {
    let first = environment.get(FIRST).map(|first| {
        format!(
            "{FIRST}={} sets nothing with --stack=instance: the instances are where uncork stack start has put them; \
             put the program somewhere with taskset(1)",
            first.to_string_lossy()
        )
    });
    let process = environment.get(PROCESS).filter(|_| threads_choose).map(|process| {
        format!(
            "{PROCESS}={} sets nothing where each thread has an instance of its own, which is the one with the fewest: \
             give --instance NAME:NUMBER for one that all are on",
            process.to_string_lossy()
        )
    });
    first.into_iter().chain(process).collect()
}

/// Returns whether each thread is to have a stack of its own.
pub(crate) fn binds_to_threads(environment: &Environment) -> bool {
    environment.get(THREADS).is_some_and(|value| value == "1")
}

/// Returns how many instances `uncork stack start` is to start.
pub(crate) fn instances(environment: &Environment) -> Result<Option<u32>, Failure> {
    let Some(count) = environment.get(INSTANCES) else { return Ok(None) };
    let count = instance_count(&count.to_string_lossy());
    count.map(Some).map_err(|why| Failure::unusable(format!("{INSTANCES}: {why}")))
}

/// Returns the processor of the first instance of `uncork stack start`.
pub(crate) fn first_cpu(environment: &Environment) -> Result<Option<usize>, Failure> {
    let first = environment.get(FIRST).map(|value| value.to_string_lossy());
    let mask = first.map(|first| mask(&first)).transpose().map_err(Failure::unusable)?;
    Ok(mask.map(|mask| mask.trailing_zeros() as usize))
}

/// Returns the number of the instance for `uncork run --stack=instance`.
pub(crate) fn wanted(environment: &Environment) -> Result<Option<u32>, Failure> {
    environment.number(PROCESS)
}

/// Parses a mask of processors, a bit for each.
fn mask(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let mask = u64::from_str_radix(digits, 16).ok().filter(|mask| *mask != 0);
    mask.ok_or_else(|| {
        format!(
            "{FIRST}={text} is no mask of processors: 1 is the first, 4 the third (hexadecimal)"
        )
    })
}

impl Placement {
    /// Returns the placement; `None` if the variables set none.
    pub(crate) fn of(environment: &Environment) -> Result<Option<Self>, Failure> {
        let value = |name: &str| environment.get(name).map(|value| value.to_string_lossy());
        Self::read(value(FIRST).as_deref(), value(PROCESS).as_deref())
    }

    /// Parses both variables: FF_PROC_ID alone counts from a processor that is not known.
    fn read(first: Option<&str>, process: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(first) = first else { return Ok(None) };
        let mask = mask(first).map_err(Failure::own)?;
        let process = process.unwrap_or("0");
        let further =
            process.parse::<u32>().ok().filter(|further| *further < mask.leading_zeros() + 1);
        let further = further.ok_or_else(|| {
            Failure::own(format!("{PROCESS}={process} is no number of a process, or one too far"))
        })?;
        Ok(Some(Self { mask: mask << further }))
    }

    /// Moves this process, which becomes the program, to these processors.
    pub(crate) fn settle(self) -> Result<(), Failure> {
        let mut set = CpuSet::new();
        for processor in (0..64).filter(|processor| self.mask & 1 << processor != 0) {
            // A machine has fewer processors than a set has room for.
            let _ = set.set(processor);
        }
        sched_setaffinity(Pid::from_raw(0), &set).map_err(|error| {
            Failure::own(format!(
                "the program cannot be put where {FIRST} and {PROCESS} say (mask {:#x}): {}",
                self.mask,
                error.desc()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_hexadecimal_and_moves_on_with_the_process() {
        let read = |first, process| Placement::read(first, process).map(|it| it.map(|it| it.mask));
        assert_eq!(read(None, Some("3")).unwrap(), None);
        assert_eq!(read(Some("4"), None).unwrap(), Some(4));
        assert_eq!(read(Some("0x10"), Some("2")).unwrap(), Some(0x40));
        assert_eq!(read(Some("1"), Some("63")).unwrap(), Some(1 << 63));
        for (first, process) in [
            (Some("0"), None),
            (Some("x"), None),
            (Some(""), None),
            (Some("1"), Some("64")),
            (Some("8000000000000000"), Some("1")),
            (Some("1"), Some("-1")),
        ] {
            assert!(read(first, process).is_err(), "{first:?} {process:?}");
        }
    }

    #[test]
    fn for_instances_they_say_how_many_where_and_which() {
        let mut environment = Environment::default();
        assert_eq!(instances(&environment).unwrap(), None);
        assert_eq!(first_cpu(&environment).unwrap(), None);
        assert_eq!(wanted(&environment).unwrap(), None);
        for (name, value) in [(INSTANCES, "2"), (FIRST, "0x14"), (PROCESS, "1")] {
            environment.set(name, value);
        }
        assert_eq!(instances(&environment).unwrap(), Some(2));
        assert_eq!(first_cpu(&environment).unwrap(), Some(2));
        assert_eq!(wanted(&environment).unwrap(), Some(1));
        assert!(!binds_to_threads(&environment));
        assert_eq!(notes_of_instance(&environment, false).len(), 1);
        environment.set(THREADS, "1");
        assert!(binds_to_threads(&environment));
        let notes = notes_of_instance(&environment, true);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("FF_INITIAL_LCORE_ID=0x14 sets nothing with"), "{notes:?}");
        assert!(notes[1].starts_with("FF_PROC_ID=1 sets nothing where"), "{notes:?}");
        assert_eq!(notes_of_instance(&Environment::default(), true), [""; 0]);
        for (name, wrong) in [(INSTANCES, "x"), (INSTANCES, "0"), (FIRST, "x")] {
            let mut environment = Environment::default();
            environment.set(name, wrong);
            let failure = instances(&environment).and(first_cpu(&environment)).unwrap_err();
            assert_eq!(failure.code(), Failure::USAGE, "{failure}");
            assert!(failure.to_string().starts_with(name), "{failure}");
        }
        environment.set(PROCESS, "first");
        let why = wanted(&environment).unwrap_err().to_string();
        assert_eq!(why, "FF_PROC_ID=first is no number");
    }
}
