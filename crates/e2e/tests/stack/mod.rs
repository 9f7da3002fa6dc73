//! What a C programmer would see differ on the user-space stack: each test compares the output of a
//! program of `c/` on kernel sockets and on the stack. The other host uses kernel sockets.

mod rig;

use anyhow::Result;
use rig::{
    MAPPED, V4, V6, same_on_instances_of_threads, same_on_the_stack, same_on_the_stack_by,
    same_on_the_stacks_of_threads,
};
use uncork_e2e::instance;

/// Programs that take the addresses they are given, and run in every mode: a test for each, named
/// after the mode and the program's subject.
macro_rules! in_every_way {
    ($($way:ident: $same:ident;)+) => {$(
        mod $way {
            use super::*;

            in_every_way! { $same =>
                names: "stack_names";
                options: "stack_options";
                info: "stack_info";
                chosen: "stack_chosen";
                octets: "stack_octets";
                ends: "stack_ends";
                waits: "stack_waits";
                threads: "stack_threads";
                passing: "stack_passing";
                aliases: "stack_aliases";
                sets: "stack_sets";
                faults: "stack_faults";
            }
        }
    )+};
    ($same:ident => $($about:ident: $name:literal;)+) => {$(
        #[test]
        fn $about() -> Result<()> {
            $same($name)
        }
    )+};
}

in_every_way! {
    ipv6_is_otherwise: by_ipv6;
    ipv4_by_sockets_of_ipv6_is_otherwise: by_mapped_addresses;
    threads_with_stacks_of_their_own_are_in_each_others_way: same_on_the_stacks_of_threads;
}

fn by_ipv6(name: &str) -> Result<()> {
    same_on_the_stack_by(V6, name)
}

fn by_mapped_addresses(name: &str) -> Result<()> {
    same_on_the_stack_by(MAPPED, name)
}

#[test]
fn settings_of_the_host_are_not_followed() -> Result<()> {
    same_on_the_stack("stack_host")
}

#[test]
fn poll_select_or_epoll_tell_something_else() -> Result<()> {
    same_on_the_stack("stack_waits")
}

#[test]
fn octets_are_lost_or_a_flag_is_ignored() -> Result<()> {
    same_on_the_stack("stack_octets")
}

#[test]
fn a_connection_ends_in_another_way() -> Result<()> {
    same_on_the_stack("stack_ends")
}

#[test]
fn names_connect_or_listen_tell_something_else() -> Result<()> {
    same_on_the_stack("stack_names")
}

#[test]
fn options_or_flags_read_back_differently() -> Result<()> {
    same_on_the_stack("stack_options")
}

#[test]
fn signals_that_tell_of_a_socket_never_come() -> Result<()> {
    same_on_the_stack("stack_signals")?;
    same_on_the_stack_by(V6, "stack_signals")?;
    same_on_the_stacks_of_threads("stack_signals")
}

#[test]
fn what_tcp_info_tells_is_another_thing() -> Result<()> {
    same_on_the_stack("stack_info")
}

#[test]
fn what_an_event_loop_enters_by_an_io_uring_is_not_heard_of() -> Result<()> {
    same_on_the_stack("stack_ring")
}

#[test]
fn what_is_chosen_before_there_is_a_connection_is_lost() -> Result<()> {
    same_on_the_stack("stack_chosen")
}

#[test]
fn calls_by_their_numbers_find_nothing_behind_a_descriptor() -> Result<()> {
    let all = ["octets", "options", "waits", "ends"];
    all.iter().try_for_each(|name| same_on_the_stack_by(V4, &format!("stack_{name}_by_number")))
}

#[test]
fn threads_signals_or_copies_are_in_each_others_way() -> Result<()> {
    same_on_the_stack("stack_threads")
}

#[test]
fn stdio_or_programs_that_are_started_find_nothing_behind_a_number() -> Result<()> {
    same_on_the_stack("stack_passing")
}

#[test]
fn a_number_that_the_program_chooses_is_taken() -> Result<()> {
    same_on_the_stack("stack_numbers")?;
    same_on_the_stacks_of_threads("stack_numbers")
}

#[test]
fn an_allocator_with_a_thread_hangs() -> Result<()> {
    same_on_the_stack("stack_allocator")?;
    same_on_the_stacks_of_threads("stack_allocator")
}

#[test]
fn a_handler_that_has_interrupted_malloc_enters_it_again() -> Result<()> {
    same_on_the_stack("stack_heap")?;
    same_on_the_stacks_of_threads("stack_heap")
}

#[test]
fn what_another_thread_has_made_is_not_there() -> Result<()> {
    same_on_the_stack("stack_thread_sockets")?;
    same_on_the_stacks_of_threads("stack_thread_sockets")?;
    same_on_instances_of_threads("stack_thread_sockets")
}

#[test]
fn a_copy_made_before_connect_or_listen_is_another_socket() -> Result<()> {
    same_on_the_stack("stack_aliases")
}

#[test]
fn a_set_does_not_tell_of_what_was_entered_before_it_was_connected() -> Result<()> {
    same_on_the_stack("stack_sets")
}

#[test]
fn a_bad_address_ends_the_program() -> Result<()> {
    same_on_the_stack("stack_faults")
}

#[test]
fn a_deferred_connection_is_accepted_at_another_time() -> Result<()> {
    same_on_the_stack("stack_deferred")?;
    same_on_the_stack_by(V6, "stack_deferred")?;
    same_on_the_stack_by(MAPPED, "stack_deferred")?;
    same_on_the_stacks_of_threads("stack_deferred")
}

#[test]
fn data_of_a_syn_comes_late_or_twice_or_from_anybody() -> Result<()> {
    same_on_the_stack("stack_fast_server")?;
    same_on_the_stack_by(V6, "stack_fast_server")
}

#[test]
fn a_connection_is_not_opened_with_its_first_data() -> Result<()> {
    // Clients of an instance's stack do without cookies.
    if instance::are_wanted() {
        return Ok(());
    }
    same_on_the_stack("stack_fast_client")?;
    same_on_the_stack_by(V6, "stack_fast_client")?;
    same_on_the_stack_by(MAPPED, "stack_fast_client")
}
