//! Small locks over fork(2): a child without the thread that holds one would wait for it for ever.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Other threads hold such a lock for moments, or for as long as a turn of another thread takes. Only the thread that forks
/// may hold it for longer, in a signal handler that has come in such a moment: it goes on in the child, and releases it there.
const MOMENTS: Duration = Duration::from_secs(1);

/// Takes the lock, unless the calling thread holds it.
pub(crate) fn hold<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let until = Instant::now() + MOMENTS;
    loop {
        match lock.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(PoisonError::into_inner(held)),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::yield_now(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_another_thread_has_is_waited_for_and_what_this_one_has_is_not_for_long() {
        static LOCK: Mutex<()> = Mutex::new(());
        let (tell, hear) = mpsc::channel();
        let other = thread::spawn(move || {
            let held = LOCK.lock().unwrap();
            tell.send(()).unwrap();
            thread::sleep(MOMENTS / 20);
            drop(held);
        });
        hear.recv().unwrap();
        assert!(hold(&LOCK).is_some());
        other.join().unwrap();
        let held = LOCK.lock().unwrap();
        assert!(hold(&LOCK).is_none());
        drop(held);
    }
}
