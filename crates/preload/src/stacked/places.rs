//! Where each socket is, and why, for `--stats`, `uncork status` and `uncork stack why`.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use libc::{c_char, c_int};
use uncork_posix::kernel::{Kernel as _, state};
use uncork_posix::published::publish_stack;
use uncork_posix::report::{StackReport, StackSocket};
use uncork_posix::whereabouts::{self, OnStack, Whereabouts};

use super::{ON, state_of};
use crate::POSIX;
use crate::start::uncork_published;
use crate::table::{self, DESCRIPTORS};

/// A byte for each descriptor, with the values of [`Whereabouts`].
static PLACES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
static WHEREABOUTS: Whereabouts = Whereabouts::new();

/// Reason for a connection that came another way than over the stack.
const ANOTHER_WAY: &str =
    "it came to the kernel: not over one of the stack's devices, or before it listened there";

pub(super) fn publish(guardian: &str) {
    WHEREABOUTS.guarded_at(guardian);
    publish_stack(&uncork_published, PLACES.as_ptr() as u64, &WHEREABOUTS);
}

/// Returns whether what happens here is this process's to record: a child of vfork has its parent's memory.
fn is_told() -> bool {
    ON.load(Relaxed) && !POSIX.is_vfork_child()
}

fn place(fd: c_int) -> Option<&'static AtomicU8> {
    PLACES.get(usize::try_from(fd).ok()?)
}

/// Notes that a descriptor is new: nothing is known of it.
pub(crate) fn is_new(fd: c_int) {
    if is_told()
        && let Some(place) = place(fd)
    {
        place.store(0, Relaxed);
    }
}

/// Records that a socket is on the stack.
pub(super) fn on_stack(fd: c_int, how: OnStack) {
    if let Some(place) = place(fd) {
        WHEREABOUTS.on_stack(place, how);
    }
}

/// Records that a socket is the kernel's.
pub(super) fn kernels(fd: c_int, why: &str) {
    if let Some(place) = place(fd) {
        WHEREABOUTS.kernels(place, why);
    }
}

/// Records a connection of the kernel's listener, by the reason why the stack has none, if there is one.
pub(crate) fn came_to_kernel(fd: c_int, listener: c_int) {
    if !is_told() {
        return;
    }
    is_new(fd);
    if let (Some(own), Some(other)) = (place(fd), place(listener))
        && !WHEREABOUTS.kernels_likewise(own, other)
        && POSIX.kernel.is_tcp(fd)
    {
        WHEREABOUTS.kernels(own, ANOTHER_WAY);
    }
}

/// Records that a socket listens, and this process may wait for connections there.
pub(super) fn listens_later(fd: c_int) {
    if let Some(place) = place(fd) {
        WHEREABOUTS.listens_later(place);
    }
}

/// Starts the counts anew in a child of fork.
pub(crate) fn restart() {
    if ON.load(Relaxed) {
        let bytes = (0..=table::HIGHEST.load(Relaxed)).filter_map(place);
        WHEREABOUTS.restart(bytes);
    }
}

/// Records what has become of a listener.
pub(super) fn tell(fd: c_int, listens: Result<(), &str>) {
    match listens {
        Ok(()) => on_stack(fd, OnStack::Listens),
        Err(why) => kernels(fd, why),
    }
}

/// Copies the place of a descriptor to its duplicate.
pub(crate) fn is_like(new: c_int, old: c_int) {
    if is_told()
        && let (Some(new), Some(old)) = (place(new), place(old))
    {
        new.store(old.load(Relaxed), Relaxed);
    }
}

/// Makes the report, if sockets may be on the stack.
pub(crate) fn report() -> Option<StackReport> {
    if !ON.load(Relaxed) {
        return None;
    }
    let open = (0..=table::HIGHEST.load(Relaxed)).filter_map(|fd| {
        place(fd).filter(|_| is_socket(fd)).map(|place| (fd, place.load(Relaxed)))
    });
    Some(WHEREABOUTS.report(open))
}

/// `enum uncork_place` of include/uncork.h.
mod answer {
    use libc::c_int;

    pub(super) const NOWHERE: c_int = -1;
    pub(super) const UNDECIDED: c_int = 0;
    pub(super) const STACK: c_int = 1;
    pub(super) const KERNEL: c_int = 2;
}

/// Tells programs that ask where a socket is (include/uncork.h).
///
/// # Safety
/// `why` is null or has room for `bytes`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn uncork_place(
    fd: c_int,
    why: *mut c_char,
    bytes: usize,
) -> c_int {
    let one = report_of(fd);
    let (answer, text) = match &one {
        None => (answer::NOWHERE, "no TCP socket of a process that runs on the stack"),
        Some(one) if one.place == "stack" => (answer::STACK, one.why.as_str()),
        Some(one) if one.place == "kernel" => (answer::KERNEL, one.why.as_str()),
        Some(one) => (answer::UNDECIDED, one.why.as_str()),
    };
    if !why.is_null() && bytes > 0 {
        let text = whereabouts::cut(text, bytes - 1);
        // SAFETY: as promised; `text` and its zero are at most so many bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), why.cast(), text.len());
            why.add(text.len()).write(0);
        }
    }
    answer
}

fn report_of(fd: c_int) -> Option<StackSocket> {
    if !ON.load(Relaxed) || !is_socket(fd) {
        return None;
    }
    let place = place(fd)?.load(Relaxed);
    WHEREABOUTS.report([(fd, place)].into_iter()).sockets.pop()
}

fn is_socket(fd: c_int) -> bool {
    matches!(state_of(fd), Some(state::TCP | state::STACK))
}
