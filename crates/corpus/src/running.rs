//! Programs that run for a while, and are ended in any case.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use uncork_netns::Namespace;

/// Longest time for a server to listen, and for a client to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program of ours, which is ended on drop.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    /// Starts it; `line` is its name in messages.
    pub(crate) fn start(mut command: Command, line: &str) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if !line.starts_with("py:") && line != "link" {
            command.stderr(Stdio::null());
        }
        let child = command.spawn().with_context(|| format!("cannot start {line}"))?;
        let mut running = Self { child };
        // The output of a server must not fill its pipe and block it.
        if !line.contains("client")
            && !line.starts_with("curl")
            && line != "link"
            && let Some(mut stdout) = running.child.stdout.take()
        {
            thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        }
        Ok(running)
    }

    /// Waits for a client, and returns its output. An exit status other than 0 is an error, unless
    /// it is accepted.
    pub(crate) fn finish(mut self, line: &str, accepted: &[i32]) -> Result<String> {
        let began = Instant::now();
        let mut stdout = self.child.stdout.take();
        let reader = thread::spawn(move || {
            let mut printed = String::new();
            if let Some(stdout) = &mut stdout {
                let _ = stdout.read_to_string(&mut printed);
            }
            printed
        });
        loop {
            if let Some(status) = self.child.try_wait()? {
                // timeout(1), which ends programs that never end by themselves, returns 124.
                let accepted =
                    status.code().is_some_and(|code| code == 124 || accepted.contains(&code));
                if !status.success() && !accepted {
                    bail!("{line} ended with {status}");
                }
                return Ok(reader.join().unwrap_or_default());
            }
            if began.elapsed() > PATIENCE {
                bail!("{line} did not end within {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the server that was just started listens on its port.
pub(crate) fn wait_for(
    ns: &Namespace,
    port: u16,
    line: &str,
    server: Option<&mut Running>,
) -> Result<()> {
    let began = Instant::now();
    let server = server.context("no server")?;
    while !ns.listens(port) {
        if let Some(status) = server.child.try_wait()? {
            bail!("{line} ended with {status} before it listened");
        }
        if began.elapsed() > PATIENCE {
            bail!("{line} does not listen on port {port}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
