//! Capturing with tcpdump.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use uncork_netns::Namespace;

/// Options of tcpdump.
#[derive(Debug, Clone)]
pub struct Options {
    /// The device, or `any`.
    pub device: String,
    /// The link layer by its libpcap name, where the device offers several.
    pub link_type: Option<&'static str>,
    /// Octets kept of each frame.
    pub snaplen: u32,
    /// Whether times are in nanoseconds.
    pub nanoseconds: bool,
    /// The capture filter, in libpcap's language.
    pub filter: String,
}

/// A running tcpdump.
#[derive(Debug)]
pub struct Capture {
    child: Child,
}

impl Capture {
    /// Starts it, and returns when it captures.
    ///
    /// # Errors
    /// If it cannot be started, with its error message.
    pub fn start(namespace: &Namespace, options: &Options, file: &Path) -> Result<Self> {
        let mut command = namespace.command("tcpdump");
        // Immediate mode: a frame that waits in a block of the ring would be lost at the end.
        command.args(["-n", "-U", "--immediate-mode", "-Z", "root", "-i", &options.device]);
        command.args(["-s", &options.snaplen.to_string(), "-w"]).arg(file);
        if options.nanoseconds {
            command.arg("--time-stamp-precision=nano");
        }
        if let Some(link_type) = options.link_type {
            command.args(["-y", link_type]);
        }
        command.arg(&options.filter);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start tcpdump")?;
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr);
            loop {
                let begin = said.len();
                if lines.read_line(&mut said)? == 0 {
                    let _ = child.wait();
                    bail!("tcpdump did not start: {}", said.trim());
                }
                if said[begin..].contains("listening on") {
                    break;
                }
            }
            // Its last messages must be read.
            thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        }
        Ok(Self { child })
    }

    /// Waits for the last frames, and ends it.
    ///
    /// # Errors
    /// If it has failed.
    pub fn stop(mut self) -> Result<()> {
        thread::sleep(Duration::from_millis(150));
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, Signal::SIGINT).context("cannot end tcpdump")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("tcpdump ended with {status}");
        }
        Ok(())
    }
}
