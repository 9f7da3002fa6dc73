//! What a C programmer would see differ on the user-space stack: each test compares what a program of `c/`
//! prints on kernel sockets and on the stack. The other host's sockets are the kernel's.

mod rig;

use anyhow::Result;
use rig::same_on_the_stack;
use uncork_e2e::alone;

#[test]
fn poll_select_or_epoll_tell_something_else() -> Result<()> {
    let _alone = alone();
    same_on_the_stack("stack_waits")
}

#[test]
fn octets_are_lost_or_a_flag_is_ignored() -> Result<()> {
    let _alone = alone();
    same_on_the_stack("stack_octets")
}

#[test]
fn a_connection_ends_in_another_way() -> Result<()> {
    let _alone = alone();
    same_on_the_stack("stack_ends")
}
