//! Whether anybody is left who could still want something.
//!
//! A program may begin, fork a daemon and end before that has said a word. So when the first process is gone and
//! nobody is connected, it is looked which processes have the place in their environment, as it was when they
//! were executed. One that has written over that (for its title in ps) is not found: it has until
//! [`LINGERS`] to connect.

use std::fs;
use std::time::{Duration, Instant};

/// How long the guardian waits for somebody whom it cannot see.
pub(crate) const LINGERS: Duration = Duration::from_secs(2);

/// When what others may want is let go of.
const ALONE: Duration = Duration::from_millis(200);

/// As often nobody must be found, one time after another: a process has no environment to be seen while it
/// executes another program.
const IN_VAIN: u32 = 2;

/// Since when nobody is there.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    alone_since: Option<Instant>,
    /// How often nobody was found since then.
    in_vain: u32,
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

    /// Nobody is connected, and the first process is gone: whether nobody will come any more.
    pub(crate) fn is_over(&mut self, token: &str) -> bool {
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LINGERS {
            return false;
        }
        self.in_vain = if is_known(token) { 0 } else { self.in_vain + 1 };
        self.in_vain >= IN_VAIN
    }
}

/// Whether another process has the token in its environment.
fn is_known(token: &str) -> bool {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|octet| octet.is_ascii_digit()) && name != own;
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .filter_map(|entry| fs::read(entry.path().join("environ")).ok())
        .any(|environ| environ.windows(token.len()).any(|part| part == token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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
}
