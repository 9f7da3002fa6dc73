//! What programs were told about F-Stack's adapter, for those that move from it (docs/F-STACK.md).
//!
//! Its variables say where instances run that serve programs from processes of their own. Here a program's stack runs
//! on the program's own threads: what is left of them is on which processor that is.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::environment::Environment;
use crate::failure::Failure;

/// How many instances there are.
const INSTANCES: &str = "FF_NB_FSTACK_INSTANCE";
/// The processor of the first process, as a mask in hexadecimal: 4 is the third.
const FIRST: &str = "FF_INITIAL_LCORE_ID";
/// Which process this is: so many processors further.
const PROCESS: &str = "FF_PROC_ID";

/// Where the program is to run: a bit for each processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    mask: u64,
}

/// What there is to say of variables that set nothing.
pub(crate) fn note(environment: &Environment) -> Option<String> {
    let number = environment.get(INSTANCES)?.to_string_lossy();
    Some(format!(
        "{INSTANCES}={number} sets nothing: each process has the stack on its own threads"
    ))
}

impl Placement {
    /// None if nothing is said of it.
    pub(crate) fn of(environment: &Environment) -> Result<Option<Self>, Failure> {
        let value = |name: &str| environment.get(name).map(|value| value.to_string_lossy());
        Self::read(value(FIRST).as_deref(), value(PROCESS).as_deref())
    }

    /// FF_PROC_ID alone counts from a processor that is not known.
    fn read(first: Option<&str>, process: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(first) = first else { return Ok(None) };
        let digits = first.strip_prefix("0x").or(first.strip_prefix("0X")).unwrap_or(first);
        let mask = u64::from_str_radix(digits, 16).ok().filter(|mask| *mask != 0);
        let mask = mask.ok_or_else(|| {
            Failure::own(format!(
                "{FIRST}={first} is no mask of processors: 1 is the first, 4 the third (hexadecimal)"
            ))
        })?;
        let process = process.unwrap_or("0");
        let further =
            process.parse::<u32>().ok().filter(|further| *further < mask.leading_zeros() + 1);
        let further = further.ok_or_else(|| {
            Failure::own(format!("{PROCESS}={process} is no number of a process, or one too far"))
        })?;
        Ok(Some(Self { mask: mask << further }))
    }

    /// Puts this process, which becomes the program, there.
    pub(crate) fn settle(self) -> Result<(), Failure> {
        let mut set = CpuSet::new();
        for processor in (0..64).filter(|processor| self.mask & 1 << processor != 0) {
            // A machine has fewer than a set has room for.
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
}
