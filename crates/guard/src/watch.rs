//! Whether anybody is left who could still want something.
//!
//! A program may begin, fork a daemon and end before that has said a word. So when the first process is gone and
//! nobody is connected, it is looked which processes have the place in their environment, as it was when they
//! were executed. One that has written over that (for its title in ps) is not found: it has until
//! [`LINGERS`] to connect.
//!
//! Who reads a process's environment waits while that process maps a file from a disk that does not answer, say
//! (proc_pid_environ(5) is read under the lock of its memory map). So a thread looks, only at those who could
//! connect at all, and it is not waited for longer than [`PATIENCE`].

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::work::{Bell, Work};

/// How long the guardian waits for somebody whom it cannot see.
pub(crate) const LINGERS: Duration = Duration::from_secs(2);

/// When what others may want is let go of.
const ALONE: Duration = Duration::from_millis(200);

/// As often nobody must be found, one time after another: a process has no environment to be seen while it
/// executes another program.
const IN_VAIN: u32 = 2;

/// How long a search may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Since when nobody is there.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    alone_since: Option<Instant>,
    /// How often nobody was found since then.
    in_vain: u32,
    /// That is under way, and since when.
    search: Option<(Instant, Work<bool>)>,
}

impl Watch {
    /// Somebody is there.
    pub(crate) fn see(&mut self) {
        *self = Self::default();
    }

    /// Whether nobody has been there for longer than a program takes to leave a daemon behind, mostly.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone_since.is_some_and(|since| since.elapsed() >= ALONE)
    }

    /// Nobody is connected, and the first process is gone: whether nobody will come any more. The bell is rung when it
    /// is to be asked again.
    pub(crate) fn is_over(&mut self, token: &str, bell: &Bell) -> bool {
        let token = token.to_owned();
        self.is_over_unless(bell, move || is_known(&token))
    }

    fn is_over_unless(
        &mut self,
        bell: &Bell,
        is_known: impl FnOnce() -> bool + Send + 'static,
    ) -> bool {
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LINGERS {
            return false;
        }
        let Some((begun, search)) = self.search.take() else {
            // Without a thread there is nobody to be found.
            match Work::begin("survivors", bell, is_known) {
                Ok(search) => self.search = Some((Instant::now(), search)),
                Err(_) => self.in_vain += 1,
            }
            return self.in_vain >= IN_VAIN;
        };
        if !search.is_over() && begun.elapsed() < PATIENCE {
            self.search = Some((begun, search));
            return false;
        }
        self.in_vain = if search.done() == Some(true) { 0 } else { self.in_vain + 1 };
        self.in_vain >= IN_VAIN
    }
}

/// Whether another process of this network namespace has the token in its environment. From another one nobody can
/// connect, as the guardian's name is an abstract one (unix(7)).
fn is_known(token: &str) -> bool {
    let number = |file: &Path| fs::metadata(file).ok().map(|found| (found.dev(), found.ino()));
    let here = number(Path::new("/proc/thread-self/ns/net"));
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|octet| octet.is_ascii_digit()) && name != own;
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .filter(|entry| number(&entry.path().join("ns/net")) == here)
        .filter_map(|entry| fs::read(entry.path().join("environ")).ok())
        .any(|environ| environ.windows(token.len()).any(|part| part == token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    #[test]
    fn a_process_with_the_token_in_its_environment_is_seen() {
        let token = format!("{:032x}", 0x1234_5678_u64 << 32 | u64::from(std::process::id()));
        assert!(!is_known(&token));
        let mut child = Command::new("cat")
            .env("UNCORK_STACK", format!("@name:{token}"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // While a program is being executed, it has no environment yet.
        let patience = Instant::now() + LINGERS;
        let mut seen = false;
        while !seen && Instant::now() < patience {
            seen = is_known(&token);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(seen);
    }

    /// One that has been alone for long enough, and asks as a guardian's loop does until it knows more.
    fn asked(watch: &mut Watch, bell: &Bell, is_known: fn() -> bool) -> bool {
        loop {
            let is_over = watch.is_over_unless(bell, is_known);
            match &watch.search {
                Some((_, search)) if !search.is_over() => thread::yield_now(),
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
        assert!(!asked(&mut watch, &bell, || false));
        assert!(!asked(&mut watch, &bell, || true));
        assert!(!asked(&mut watch, &bell, || false));
        assert!(asked(&mut watch, &bell, || false));
    }

    #[test]
    fn a_search_that_does_not_end_is_one_in_vain() {
        let (mut watch, bell) = alone();
        let ends: fn() -> bool = || {
            thread::sleep(LINGERS);
            true
        };
        for is_over in [false, true] {
            assert!(!watch.is_over_unless(&bell, ends));
            assert!(!watch.is_over_unless(&bell, ends), "it is given time");
            let (begun, _) = watch.search.as_mut().unwrap();
            *begun = begun.checked_sub(PATIENCE).unwrap();
            assert_eq!(watch.is_over_unless(&bell, ends), is_over);
        }
    }
}
