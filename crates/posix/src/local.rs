//! Each thread's own state, in one place: an access to thread-local storage is a call in a shared
//! library, and the path of a small write makes as few of them as it can.

use core::cell::Cell;

use uncork_bias::Thread;

/// The state of one thread.
pub(crate) struct Local {
    /// The socket that this thread wrote to last, until it turns away. -1: none.
    pub(crate) current: Cell<i32>,
    /// The thread is inside the lock of a socket's gathered bytes: a signal handler that comes now
    /// must not wait for it.
    pub(crate) inside: Cell<bool>,
    /// The thread has called vfork, and may be the child that runs in its parent's memory.
    pub(crate) vforked: Cell<bool>,
    /// The thread has asked for an exec.
    pub(crate) executes: Cell<bool>,
    /// The number by which the thread owns such locks.
    pub(crate) thread: Cell<Thread>,
    /// Whether the thread has asked for such a number.
    pub(crate) asked: Cell<bool>,
    /// What a signal handler wrote while its thread was inside.
    pub(crate) aside: Aside,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            current: Cell::new(-1),
            inside: Cell::new(false),
            vforked: Cell::new(false),
            executes: Cell::new(false),
            thread: Cell::new(Thread::NONE),
            asked: Cell::new(false),
            aside: Aside::new(),
        }
    };
}

/// Runs `run` on the calling thread's state.
#[inline]
pub(crate) fn local<T>(run: impl FnOnce(&Local) -> T) -> T {
    LOCAL.with(run)
}

/// The socket that this thread wrote to last.
pub(crate) mod current {
    use super::LOCAL;

    #[inline]
    pub(crate) fn get() -> i32 {
        LOCAL.with(|local| local.current.get())
    }

    #[inline]
    pub(crate) fn set(fd: i32) {
        LOCAL.with(|local| local.current.set(fd));
    }

    #[inline]
    pub(crate) fn replace(fd: i32) -> i32 {
        LOCAL.with(|local| local.current.replace(fd))
    }
}

/// Room for what handlers write before their thread gets back to it.
pub(crate) const ASIDE_BYTES: usize = 512;

/// Bytes put aside for one socket.
pub(crate) struct Aside {
    fd: Cell<i32>,
    len: Cell<usize>,
    bytes: [Cell<u8>; ASIDE_BYTES],
}

impl Aside {
    const fn new() -> Self {
        Self { fd: Cell::new(-1), len: Cell::new(0), bytes: [const { Cell::new(0) }; ASIDE_BYTES] }
    }

    /// Returns whether nothing was put aside.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Puts `total` bytes aside for `fd`; returns false if there is no room.
    pub(crate) fn put<'a>(
        &self,
        fd: i32,
        data: impl Iterator<Item = &'a u8>,
        total: usize,
    ) -> bool {
        let at = self.len.get();
        if (at != 0 && self.fd.get() != fd) || total > ASIDE_BYTES - at {
            return false;
        }
        for (cell, byte) in self.bytes[at..].iter().zip(data) {
            cell.set(*byte);
        }
        self.fd.set(fd);
        self.len.set(at + total);
        true
    }

    /// Takes what was put aside, and returns it with its socket.
    pub(crate) fn take<'a>(&self, into: &'a mut [u8; ASIDE_BYTES]) -> Option<(i32, &'a [u8])> {
        let len = self.len.replace(0);
        for (byte, cell) in into.iter_mut().zip(&self.bytes[..len]) {
            *byte = cell.get();
        }
        (len != 0).then(|| (self.fd.get(), &into[..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_aside_comes_back_in_order_and_once() {
        let aside = Aside::new();
        assert!(aside.put(5, b"ab".iter(), 2));
        assert!(aside.put(5, b"cd".iter(), 2));
        assert!(!aside.put(6, b"x".iter(), 1), "another socket's bytes must not be mixed in");
        let mut room = [0; ASIDE_BYTES];
        assert_eq!(aside.take(&mut room), Some((5, &b"abcd"[..])));
        assert_eq!(aside.take(&mut room), None);
    }

    #[test]
    fn too_much_is_refused_whole() {
        let aside = Aside::new();
        let data = [7; ASIDE_BYTES + 1];
        assert!(!aside.put(1, data.iter(), data.len()));
        assert!(aside.is_empty());
        assert!(aside.put(1, data[1..].iter(), ASIDE_BYTES));
        assert!(!aside.put(1, data.iter(), 1));
    }
}
