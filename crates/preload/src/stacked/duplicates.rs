//! Epoll sets that have several descriptors.
//!
//! A duplicate is the same set (tokio adds all its sockets by one descriptor, and waits by another). The stack knows a set by
//! a number: that of the descriptor which was duplicated, and when that is closed before the others, one of theirs.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32};

use libc::c_int;
use uncork_posix::kernel::state;

use super::{SOCKETS, calls, has_set, is_on, mark, outside, state_of};
use crate::table::{self, DESCRIPTORS};

/// For each descriptor, one more than the number by which the stack knows the set; zero if that is its own number, and
/// [`HAS_OTHERS`] if it is its own and it was duplicated.
static KNOWN_BY: [AtomicI32; DESCRIPTORS] = [const { AtomicI32::new(0) }; DESCRIPTORS];
const HAS_OTHERS: i32 = -1;
/// Whether any set was ever duplicated.
static ARE_SOME: AtomicBool = AtomicBool::new(false);

fn known_by(fd: c_int) -> Option<&'static AtomicI32> {
    KNOWN_BY.get(usize::try_from(fd).ok()?)
}

/// Returns the number by which the stack knows a set.
#[inline]
pub(crate) fn number_of(set: c_int) -> c_int {
    if !ARE_SOME.load(Relaxed) {
        return set;
    }
    known_by(set)
        .and_then(|known| known.load(Relaxed).checked_sub(1))
        .filter(|&it| it >= 0)
        .unwrap_or(set)
}

/// Notes that `new` has become a duplicate of `old`, which is not a socket on the stack.
pub(crate) fn is_like(new: c_int, old: c_int) {
    if !is_on() || state_of(old) == Some(state::TCP) {
        return;
    }
    let number = number_of(old);
    let is_one = number != old || has_set(old) || outside::is_set(old);
    let (Some(known), Some(first)) = (known_by(new), known_by(number)) else { return };
    if is_one && new != number {
        known.store(number + 1, SeqCst);
        first.store(HAS_OTHERS, SeqCst);
        ARE_SOME.store(true, SeqCst);
        are_known([new, number]);
    }
}

/// Gives sets a state byte, so that the shims see when they are closed.
pub(super) fn are_known(sets: impl IntoIterator<Item = c_int>) {
    for set in sets {
        if let Some(byte) = table::state(set).filter(|it| it.load(Relaxed) == state::UNKNOWN) {
            let _ = byte.compare_exchange(state::UNKNOWN, state::WAITS, SeqCst, Relaxed);
            table::HIGHEST.fetch_max(set, Relaxed);
        }
    }
}

/// Handles a descriptor that is about to be closed. A set that has others goes on under the number of one of them.
pub(super) fn closing(fd: c_int) {
    if !ARE_SOME.load(Relaxed) {
        return;
    }
    if known_by(fd).is_none_or(|known| known.swap(0, SeqCst) != HAS_OTHERS) {
        return;
    }
    let is_other = |other: &c_int| known_by(*other).is_some_and(|it| it.load(Relaxed) == fd + 1);
    let mut others = (0..=table::HIGHEST.load(Relaxed)).filter(is_other);
    let Some(heir) = others.next() else { return };
    let mut its = 0;
    for known in others.filter_map(known_by) {
        known.store(heir + 1, SeqCst);
        its = HAS_OTHERS;
    }
    if let Some(known) = known_by(heir) {
        known.store(its, SeqCst);
    }
    if state_of(fd) == Some(state::STACK_SET) {
        SOCKETS.rename_set(fd, heir);
        mark(heir, state::STACK_SET);
        calls::forget(fd);
    }
}
