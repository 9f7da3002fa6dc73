//! Watches for processes that may still need the guardian.
//!
//! A program may start, fork a daemon and end before the daemon has said a word. So when the first process is gone and
//! no process is connected, processes are looked for that have the place in their environment, as it was when they
//! were executed. One that has overwritten that (for its title in ps) is not found: it has [`LINGERS`] to connect.
//!
//! Reading a process's environment may block for as long as the process maps a file from a disk that does not answer, say
//! (proc_pid_environ(5) is read under the lock of its memory map). So a thread does it, only for processes that could
//! connect at all, and one that takes longer than [`PATIENCE`] is not waited for.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::work::{Bell, Work};

/// How long the guardian waits for processes that it cannot see.
pub(crate) const LINGERS: Duration = Duration::from_secs(2);

/// After how long alone the guardian releases what others may want.
const ALONE: Duration = Duration::from_millis(200);

/// How many searches in a row must find nobody: a process has no environment to be seen while it executes another program.
const IN_VAIN: u32 = 2;

/// How long a search may look at one process.
const PATIENCE: Duration = Duration::from_secs(3);

/// Since when no process is there, and what searches have found.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    alone_since: Option<Instant>,
    /// How many searches have found nobody since then.
    in_vain: u32,
    search: Option<Search>,
    /// Processes that could not be looked at.
    passed_over: BTreeSet<u32>,
}

/// A search that is under way.
#[derive(Debug)]
struct Search {
    work: Work<bool>,
    /// The process that it is looking at.
    looks_at: Arc<AtomicU32>,
    /// The process last seen here, and since when.
    seen: (u32, Instant),
}

impl Search {
    /// Returns the process that it has been looking at for too long, if there is one.
    fn is_held_up_by(&mut self) -> Option<u32> {
        let at = self.looks_at.load(Relaxed);
        if at != self.seen.0 {
            self.seen = (at, Instant::now());
        }
        (self.seen.1.elapsed() >= PATIENCE).then_some(at)
    }
}

impl Watch {
    /// Starts over, as a process is there.
    pub(crate) fn see(&mut self) {
        *self = Self::default();
    }

    /// Tells whether no process has been there for longer than a program usually takes to leave a daemon behind.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone_since.is_some_and(|since| since.elapsed() >= ALONE)
    }

    /// Tells whether no process will come any more, given that none is connected and the first one is gone. The bell is rung when
    /// this is to be asked again.
    pub(crate) fn is_over(&mut self, token: &str, bell: &Bell) -> bool {
        let (token, passed_over) = (token.to_owned(), self.passed_over.clone());
        self.is_over_unless(bell, move |looks_at| is_known(&token, &passed_over, looks_at))
    }

    fn is_over_unless(
        &mut self,
        bell: &Bell,
        is_known: impl FnOnce(&AtomicU32) -> bool + Send + 'static,
    ) -> bool {
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LINGERS {
            return false;
        }
        let Some(mut search) = self.search.take() else {
            let looks_at = Arc::new(AtomicU32::new(0));
            let theirs = Arc::clone(&looks_at);
            let seen = (0, Instant::now());
            match Work::begin("survivors", bell, move || is_known(&theirs)) {
                Ok(work) => self.search = Some(Search { work, looks_at, seen }),
                // Without a thread, nobody can be found.
                Err(_) => self.in_vain += 1,
            }
            return self.in_vain >= IN_VAIN;
        };
        let held_up_by = search.is_held_up_by();
        if !search.work.is_over() && held_up_by.is_none() {
            self.search = Some(search);
            return false;
        }
        if !search.work.is_over() {
            // The processes after it were not looked at.
            self.passed_over.extend(held_up_by);
            return false;
        }
        self.in_vain = if search.work.done() == Some(true) { 0 } else { self.in_vain + 1 };
        self.in_vain >= IN_VAIN
    }
}

/// Tells whether another process of this network namespace, except for some, has the token in its environment. None can connect
/// from another namespace, as the guardian's name is an abstract one (unix(7)). The newest come first, as they are
/// the likeliest.
fn is_known(token: &str, passed_over: &BTreeSet<u32>, looks_at: &AtomicU32) -> bool {
    let network = |file: &str| fs::metadata(file).ok().map(|found| (found.dev(), found.ino()));
    let here = network("/proc/thread-self/ns/net");
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<_> = entries.filter_map(number).collect();
    pids.retain(|pid| *pid != own && !passed_over.contains(pid));
    pids.sort_unstable();
    pids.into_iter()
        .rev()
        .filter(|pid| network(&format!("/proc/{pid}/ns/net")) == here)
        .filter_map(|pid| {
            looks_at.store(pid, Relaxed);
            fs::read(format!("/proc/{pid}/environ")).ok()
        })
        .any(|environ| environ.windows(token.len()).any(|part| part == token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_process_with_the_token_in_its_environment_is_seen() {
        let token = format!("{:032x}", 0x1234_5678_u64 << 32 | u64::from(std::process::id()));
        let is_known = |passed_over: &[u32]| {
            is_known(&token, &passed_over.iter().copied().collect(), &AtomicU32::new(0))
        };
        assert!(!is_known(&[]));
        let mut child = Command::new("cat")
            .env("UNCORK_STACK", format!("@name:{token}"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // While a program is being executed, it has no environment yet.
        let patience = Instant::now() + LINGERS;
        let mut seen = false;
        while !seen && Instant::now() < patience {
            seen = is_known(&[]);
        }
        let is_passed_over = !is_known(&[child.id()]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(seen && is_passed_over);
    }

    /// Asks as a guardian's loop does, until a search is over.
    fn asked(watch: &mut Watch, bell: &Bell, is_known: fn(&AtomicU32) -> bool) -> bool {
        loop {
            let is_over = watch.is_over_unless(bell, is_known);
            match &watch.search {
                Some(search) if !search.work.is_over() => thread::yield_now(),
                Some(_) => {}
                None => return is_over,
            }
        }
    }

    fn alone() -> (Watch, Bell) {
        let alone_since = Instant::now().checked_sub(LINGERS);
        (Watch { alone_since, ..Watch::default() }, Bell::new().unwrap())
    }

    #[test]
    fn nobody_is_left_when_nobody_was_found_twice_running() {
        let (mut watch, bell) = alone();
        assert!(!asked(&mut watch, &bell, |_| false));
        assert!(!asked(&mut watch, &bell, |_| true));
        assert!(!asked(&mut watch, &bell, |_| false));
        assert!(asked(&mut watch, &bell, |_| false));
    }

    #[test]
    fn who_cannot_be_looked_at_is_passed_over_and_others_may_take_longer() {
        let (mut watch, bell) = alone();
        let (goes_on, held_up) = mpsc::channel::<()>();
        let look = move |looks_at: &AtomicU32| {
            looks_at.store(7, Relaxed);
            held_up.recv().unwrap_or_default();
            looks_at.store(8, Relaxed);
            held_up.recv().unwrap_or_default();
            true
        };
        assert!(!watch.is_over_unless(&bell, look));
        let until = |watch: &mut Watch, pid| {
            while watch.search.as_mut().unwrap().looks_at.load(Relaxed) != pid {
                thread::yield_now();
            }
            assert!(!watch.is_over_unless(&bell, |_| false), "it has just begun to look at {pid}");
            let seen = &mut watch.search.as_mut().unwrap().seen;
            assert_eq!(seen.0, pid);
            seen.1 = seen.1.checked_sub(PATIENCE).unwrap();
        };
        until(&mut watch, 7);
        goes_on.send(()).unwrap();
        until(&mut watch, 8);
        assert!(!watch.is_over_unless(&bell, |_| false), "that was none");
        assert_eq!((watch.in_vain, &watch.passed_over), (0, &[8].into()));
        assert!(!asked(&mut watch, &bell, |_| false));
        assert!(asked(&mut watch, &bell, |_| false));
    }
}
