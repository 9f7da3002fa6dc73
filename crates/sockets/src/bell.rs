//! What wakes one thread: an eventfd of its own, made when it first sleeps.

use std::cell::RefCell;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A thread's bell.
pub(crate) type Bell = Arc<EventFd>;

/// Every bell of the process.
static ALL: Mutex<Vec<Weak<EventFd>>> = Mutex::new(Vec::new());

thread_local! {
    static BELL: RefCell<Option<(u32, Bell)>> = const { RefCell::new(None) };
}

/// The calling thread's, in the process of this number: a child of fork must not answer its parent's. A thread
/// at its end, which has nothing of its own any more, gets one that is closed when it is put away.
pub(crate) fn mine(process: u32) -> Result<Bell, Errno> {
    let kept = BELL.try_with(|bell| {
        let mut bell = bell.try_borrow_mut().ok()?;
        if let Some((_, bell)) = bell.as_ref().filter(|(of, _)| *of == process) {
            return Some(Ok(Arc::clone(bell)));
        }
        let made = make();
        if let Ok(made) = &made {
            *bell = Some((process, Arc::clone(made)));
        }
        Some(made)
    });
    kept.ok().flatten().unwrap_or_else(make)
}

fn make() -> Result<Bell, Errno> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell = Arc::new(EventFd::from_flags(flags)?);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|bell| bell.strong_count() > 0);
    all.push(Arc::downgrade(&bell));
    Ok(bell)
}

/// The descriptors of all bells.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(|bell| Some(bell.upgrade()?.as_raw_fd())).collect()
}

/// Wakes the thread whose bell it is.
pub(crate) fn ring(bell: &Bell) {
    // The counter is full only if nobody has listened for a very long time.
    let _ = bell.write(1);
}

/// It was heard.
pub(crate) fn silence(bell: &Bell) {
    let _ = bell.read();
}
