//! Processes that can be asked about their stacks.

use std::fs;

use serde::Serialize;
use uncork_posix::report::{ProcessReport, StackReport};
use uncork_serve::stat;

use super::ask::is_instance;
use super::show::is_anothers;
use crate::status;

/// A process that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Runs {
    /// Its number.
    pub(super) pid: u32,
    /// `comm` of the process.
    pub(super) program: String,
    /// Its relation to stacks, in words.
    pub(super) what: String,
}

/// Returns the processes of this user, or for root of all users: programs under `uncork run --stack`, instances,
/// and those that have published where they can be asked (`uncork stack serve`, `connect`).
pub(super) fn all() -> Vec<Runs> {
    let served = stat::running();
    let mut numbers: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let found = numbers.into_iter().filter_map(|pid| {
        if served.contains(&pid) {
            return Some((ours(pid, "uncork stack serve or connect"), true));
        }
        if is_instance(pid) {
            let its = || (ours(pid, "an instance of uncork stack start"), true);
            return (!is_anothers(pid)).then(its);
        }
        let ProcessReport { program, stack: Some(stack), .. } =
            status::record(i32::try_from(pid).ok()?)?
        else {
            return None;
        };
        let has_sockets = stack.is_anything() || !stack.sockets.is_empty();
        Some((Runs { pid, program, what: in_short(&stack) }, has_sockets))
    });
    with_sockets(found.collect())
}

/// Returns a process of our own, which the kernel may know by the link that started it (`/proc/self/exe`).
fn ours(pid: u32, what: &str) -> Runs {
    Runs { pid, program: "uncork".to_owned(), what: what.to_owned() }
}

/// Leaves out processes without sockets, like shells that have started a program, where others have some.
fn with_sockets(mut found: Vec<(Runs, bool)>) -> Vec<Runs> {
    if found.iter().any(|(_, has_sockets)| *has_sockets) {
        found.retain(|(_, has_sockets)| *has_sockets);
    }
    found.into_iter().map(|(runs, _)| runs).collect()
}

fn in_short(stack: &StackReport) -> String {
    let kernel: u64 = stack.kernel.values().sum();
    match kernel {
        0 => stack.sentence(),
        kernel => format!("{}; {kernel} with the kernel", stack.sentence()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_sockets_is_named_only_if_nobody_has_any() {
        let runs =
            |pid| Runs { pid, program: "sh".to_owned(), what: in_short(&StackReport::default()) };
        let pids = |found| with_sockets(found).into_iter().map(|runs| runs.pid).collect::<Vec<_>>();
        assert_eq!(pids(vec![(runs(7), false), (runs(8), true), (runs(9), true)]), [8, 9]);
        assert_eq!(pids(vec![(runs(7), false), (runs(8), false)]), [7, 8]);
        assert_eq!(pids(Vec::new()), [0; 0]);
    }

    #[test]
    fn what_stayed_with_the_kernel_is_counted() {
        let kernel = [("one reason".to_owned(), 2), ("another".to_owned(), 3)].into();
        let stack = StackReport { listening: 1, kernel, ..StackReport::default() };
        let said = in_short(&stack);
        assert_eq!(
            said,
            "on the stack: 1 listener, 0 connections accepted, 0 made; 5 with the kernel"
        );
        assert!(!in_short(&StackReport::default()).contains("kernel"));
    }
}
