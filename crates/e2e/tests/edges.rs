//! What a C programmer would see differ: each test compares the output of a program of `c/` without
//! the library and with it, in both ways of holding, with and without spinning.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit};
use uncork_e2e::artifact::{compiled_module, library};
use uncork_e2e::edge::{facts, same_facts, same_facts_in_time};
use uncork_e2e::skip::{note, root, skip};
use uncork_e2e::{Mode, alone, beside_others, soak};
use uncork_posix::config::{Hold, variable};

/// Adds a mode with a long bound, under which the timer does not hide a missing push.
fn also_long_held() -> Vec<Mode> {
    let mut modes = Mode::both_and_spinning();
    modes.extend(Mode::both().into_iter().map(|mode| mode.with("UNCORK_BOUND", "50ms")));
    modes
}

#[test]
fn options_and_queues_read_back_differently() -> Result<()> {
    let _shared = beside_others();
    same_facts("options", &[], &Mode::both_and_spinning())
}

#[test]
fn a_dead_peer_a_full_buffer_or_a_bad_call_gives_another_error() -> Result<()> {
    let _shared = beside_others();
    same_facts("errors", &[], &Mode::both_and_spinning())
}

#[test]
fn a_cancelled_thread_does_not_end_or_leaves_a_lock_behind() -> Result<()> {
    let _shared = beside_others();
    same_facts("cancel", &[], &Mode::both_and_spinning())
}

#[test]
fn behind_a_peer_that_does_not_read_a_call_waits_otherwise_or_bytes_overtake() -> Result<()> {
    let _shared = beside_others();
    same_facts("full", &[], &Mode::both_and_spinning())
}

#[test]
fn a_signal_does_not_interrupt_what_it_should() -> Result<()> {
    let _alone = alone();
    let mut modes = Mode::both_and_spinning();
    // Signals that come while a wait still spins, not only when it sleeps.
    modes.push(Mode::held(Hold::Kernel).with("UNCORK_SPIN", "50ms"));
    modes.push(Mode::held(Hold::User).with("UNCORK_SPIN", "50ms"));
    same_facts("signals", &[], &modes)
}

#[test]
fn what_a_signal_handler_writes_is_lost_or_never_ends() -> Result<()> {
    let _alone = alone();
    same_facts("handlers", &["60"], &Mode::both_and_spinning())
}

#[test]
fn a_timeout_comes_early_or_late() -> Result<()> {
    let _alone = alone();
    let mut modes = Mode::both_and_spinning();
    modes.push(Mode::held(Hold::User).with("UNCORK_SPIN", "100ms"));
    same_facts_in_time("timeouts", &[], &modes)
}

#[test]
fn bytes_written_in_different_ways_arrive_in_another_order() -> Result<()> {
    let _shared = beside_others();
    same_facts("order", &[], &also_long_held())
}

#[test]
fn bytes_are_lost_or_doubled_by_fork_exec_or_descriptor_passing() -> Result<()> {
    let _shared = beside_others();
    same_facts("family", &[], &also_long_held())
}

/// A child of vfork runs in its parent's memory, where the library's state is, with descriptors of its own.
#[test]
fn bytes_of_a_parent_are_late_or_lost_by_a_child_of_vfork() -> Result<()> {
    let _alone = alone();
    same_facts_in_time("vforked", &[], &Mode::both_and_spinning())
}

#[test]
fn a_copied_closed_or_high_descriptor_loses_bytes() -> Result<()> {
    const WANTED: u64 = 200_000;
    let _shared = beside_others();
    let highest = if may_raise_descriptors_to(WANTED) {
        WANTED
    } else {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let why = format!(
            "descriptors past {hard} need root with CAP_SYS_RESOURCE, or a higher limit (ulimit -Hn)"
        );
        // Root without that capability is a container in which nothing can be done about it.
        if root() {
            note(&why);
        } else {
            skip(&why)?;
        }
        hard.min(WANTED)
    };
    same_facts("descriptors", &[&highest.to_string()], &Mode::both_and_spinning())
}

fn may_raise_descriptors_to(limit: u64) -> bool {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -n {limit} 2>/dev/null"));
    shell.status().is_ok_and(|status| status.success())
}

#[test]
fn bytes_written_just_before_the_end_of_a_process_are_lost() -> Result<()> {
    let _shared = beside_others();
    same_facts("ends", &[], &also_long_held())
}

#[test]
fn a_program_in_a_sandbox_is_killed_for_calls_of_the_library() -> Result<()> {
    let _shared = beside_others();
    let reports = tempfile::NamedTempFile::new()?;
    let path = reports.path().to_str().context("a path in UTF-8")?;
    let mut modes = Mode::both_and_spinning();
    modes.extend(Mode::both().into_iter().map(|mode| mode.with(variable::STATS, path)));
    same_facts("sandbox", &[], &modes)
}

#[test]
fn a_killed_process_loses_bytes_that_the_kernel_held() -> Result<()> {
    let _shared = beside_others();
    same_facts("ends", &["killed"], &[Mode::held(Hold::Kernel)])
}

#[test]
fn lines_of_many_threads_are_torn_or_lost() -> Result<()> {
    let _shared = beside_others();
    same_facts("threads", &[], &Mode::both_and_spinning())
}

#[test]
fn readiness_is_reported_twice_or_never() -> Result<()> {
    let _shared = beside_others();
    same_facts("edges", &[], &Mode::both_and_spinning())
}

/// With the longest bound, so that a missing push shows as a byte that comes late.
#[test]
fn a_wait_does_not_push_what_is_held() -> Result<()> {
    let _alone = alone();
    let modes: Vec<Mode> = Mode::both_and_spinning()
        .into_iter()
        .map(|mode| mode.with("UNCORK_BOUND", "200ms"))
        .collect();
    for mode in &modes {
        let (said, _) = facts("pushes", &["control"], mode)?;
        ensure!(said.contains("held while nothing pushes: yes"), "{mode}: nothing was held");
    }
    same_facts_in_time("pushes", &[], &modes)
}

/// Found by the property test: the timer had taken a socket off the list of those that hold bytes,
/// and had not yet sent what it held.
#[test]
fn bytes_sent_at_the_moment_of_the_timer_are_lost_or_reordered() -> Result<()> {
    let _alone = alone();
    let modes: Vec<Mode> =
        Mode::both().into_iter().map(|mode| mode.with("UNCORK_BOUND", "100us")).collect();
    for _ in 0..if soak() { 12 } else { 1 } {
        same_facts("race", &["800"], &modes)?;
    }
    Ok(())
}

#[test]
fn bytes_before_a_busy_loop_arrive_late() -> Result<()> {
    let _alone = alone();
    for (bound, bound_us) in [("1ms", "1000"), ("5ms", "5000")] {
        let modes: Vec<Mode> =
            Mode::both().into_iter().map(|mode| mode.with("UNCORK_BOUND", bound)).collect();
        same_facts_in_time("timer", &["15", "1000", bound_us], &modes)?;
    }
    Ok(())
}

/// The timer uses a signal that glibc hides from programs, and uses itself.
#[test]
fn the_program_notices_the_signal_that_wakes_the_timer() -> Result<()> {
    let _shared = beside_others();
    same_facts("alarm", &[], &Mode::both_and_spinning())
}

#[test]
fn bytes_are_late_when_the_main_thread_has_ended() -> Result<()> {
    let _alone = alone();
    same_facts_in_time("leader", &[], &Mode::both_and_spinning())
}

/// While two threads share the table, every use of a descriptor costs more.
#[test]
fn the_timer_shares_the_table_of_descriptors_without_need() -> Result<()> {
    let _alone = alone();
    let tables = |mode: &Mode| Ok::<_, anyhow::Error>(facts("leader", &["tables"], mode)?.0);
    let alone = "threads: 2, with a table of their own: 1";
    let said = tables(&Mode::held(Hold::Kernel))?;
    ensure!(said.contains(alone), "{said}");
    // Bytes held in the process may have to be sent after their descriptor was closed.
    let said = tables(&Mode::held(Hold::User))?;
    ensure!(said.contains("threads: 2, with a table of their own: 0"), "{said}");
    Ok(())
}

/// As `uncork run` opens the library, to see whether the loader can.
#[test]
fn a_library_that_no_call_comes_to_starts_all_the_same() -> Result<()> {
    let _shared = beside_others();
    let library = library()?;
    let path = library.to_str().context("a path in UTF-8")?;
    let (said, _) = facts("opened", &[path], &Mode::plain())?;
    ensure!(said == "idle\n", "opened with dlopen: {said}");
    // When preloaded, it is the same object, and active.
    let (said, _) = facts("opened", &[path], &Mode::held(Hold::Kernel))?;
    ensure!(said == "at work\n", "preloaded: {said}");
    Ok(())
}

#[test]
fn a_module_that_brings_its_own_io_uring_does_not_find_it() -> Result<()> {
    let _shared = beside_others();
    let module = compiled_module("modules_own")?;
    let path = module.to_str().context("a path in UTF-8")?;
    same_facts("modules", &[path], &Mode::both())
}

/// glibc's dlsym(3) waits for the lock that dlopen(3) holds while constructors run.
#[test]
fn a_constructor_that_waits_for_a_thread_waits_for_ever() -> Result<()> {
    let _shared = beside_others();
    let module = compiled_module("loading_own")?;
    let path = module.to_str().context("a path in UTF-8")?;
    same_facts("loading", &[path], &Mode::both())
}

#[test]
fn the_report_of_who_ends_in_a_handler_enters_malloc_again() -> Result<()> {
    let _shared = beside_others();
    let reports = tempfile::NamedTempFile::new()?;
    let path = reports.path().to_str().context("a path in UTF-8")?;
    let modes: Vec<_> =
        Mode::both().into_iter().map(|mode| mode.with(variable::STATS, path)).collect();
    for how in ["exit", "exit_group", "exec"] {
        same_facts("ending", &[how], &modes)?;
    }
    let told = std::fs::read_to_string(path)?;
    let whole = told.lines().filter(|line| line.contains(r#""corks itself (MSG_MORE)":"#)).count();
    ensure!(whole == 6, "{whole} reports of 6 are whole:\n{told}");
    Ok(())
}
