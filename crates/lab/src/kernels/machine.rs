//! A virtual machine that boots a kernel, and the output of its serial console.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::initramfs::{Initramfs, PROGRAM};
use super::protocol::Message;

/// The program that runs the machine.
pub const QEMU: &str = "qemu-system-x86_64";
/// Interval at which the clock, and the flag that Ctrl-C sets, are checked.
const TURN: Duration = Duration::from_millis(50);
/// Lines of the console that are kept, and how many of them an error shows.
const KEPT: usize = 100;
/// See [`KEPT`].
const SHOWN: usize = 12;
/// How many of these precede the line with the reason: after it come registers and addresses.
const BEFORE: usize = 8;
/// The text that marks that line.
const PANIC: &str = "Kernel panic";
/// A longer line is cut: a broken kernel may write anything.
const LINE_BYTES: u64 = 1 << 20;
/// Memory of a guest, besides what its file system takes.
const MEMORY_MIB: u64 = 384;

/// The executor of the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU, in the guest's own time: many times slower to boot, and undisturbed.
    Emulation,
}

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until the kernel's first line. A machine that does not work may well hang.
    pub(super) silence: Duration,
    /// Until our program runs.
    pub(super) boot: Duration,
    /// From then to the result.
    pub(super) result: Duration,
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Ctrl-C was pressed.
    Interrupted,
    /// There was no machine, or it ended without output: with another accelerator there may be one.
    Silent(String),
    /// The kernel failed, or the program on it.
    Guest {
        /// What did not happen.
        sentence: String,
        /// The last lines of the console.
        console: Vec<String>,
    },
}

/// The output of a guest that has finished.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) boot: Duration,
    pub(super) document: serde_json::Value,
}

/// The components of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Initramfs,
    pub(super) accelerator: Accelerator,
    /// How long each run in it takes.
    pub(super) time: Duration,
    pub(super) patience: Patience,
}

/// A process that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of a machine so far.
struct Console {
    lines: Receiver<String>,
    last: VecDeque<String>,
}

/// A line, or why there is none.
enum Next {
    Line(String),
    Nothing,
    End,
}

impl Console {
    fn of(out: impl Read + Send + 'static) -> Self {
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = Vec::new();
            while matches!((&mut out).take(LINE_BYTES).read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Self { lines, last: VecDeque::new() }
    }

    fn next(&mut self) -> Next {
        match self.lines.recv_timeout(TURN) {
            Ok(line) => {
                if !line.is_empty() {
                    self.last.push_back(line.clone());
                }
                if self.last.len() > KEPT {
                    self.last.pop_front();
                }
                Next::Line(line)
            }
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    fn trouble(&self, sentence: String) -> Trouble {
        Trouble::Guest { sentence, console: telling(&self.last) }
    }
}

/// Returns the last lines, or those around a panic.
fn telling(lines: &VecDeque<String>) -> Vec<String> {
    let end = match lines.iter().position(|line| line.contains(PANIC)) {
        Some(panic) => (panic + SHOWN - BEFORE).min(lines.len()),
        None => lines.len(),
    };
    lines.range(end.saturating_sub(SHOWN)..end).cloned().collect()
}

impl Machine<'_> {
    /// Boots the machine, and waits for the guest's result. The machine is gone afterwards.
    pub(super) fn run(&self, stop: &AtomicBool) -> Result<Finished, Trouble> {
        let silent = |error: &dyn std::fmt::Display| Trouble::Silent(error.to_string());
        let child = self.command().spawn().map_err(|error| silent(&error))?;
        let mut running = Running(child);
        let out = running.0.stdout.take().ok_or_else(|| silent(&"it has no output"))?;
        let mut console = Console::of(out);
        let mut begun = None;
        let start = Instant::now();
        let mut until = start + self.patience.silence;
        loop {
            if stop.load(Relaxed) {
                return Err(Trouble::Interrupted);
            }
            let was_silent = console.last.is_empty();
            let next = console.next();
            if was_silent && !console.last.is_empty() {
                until = start + self.patience.boot;
            }
            match next {
                Next::Line(line) => match Message::find(&line) {
                    Some(Message::Begun) => {
                        begun = Some(start.elapsed());
                        until = Instant::now() + self.patience.result;
                    }
                    Some(Message::Done(document)) => {
                        let boot = begun.unwrap_or_else(|| start.elapsed());
                        return Ok(Finished { boot, document });
                    }
                    Some(Message::Failed(sentence)) => return Err(console.trouble(sentence)),
                    None => {}
                },
                Next::Nothing => {}
                Next::End => return Err(ended(running, &console, begun.is_some())),
            }
            if Instant::now() > until {
                return Err(self.late(&console, begun.is_some()));
            }
        }
    }

    fn late(&self, console: &Console, has_begun: bool) -> Trouble {
        let seconds = |time: Duration| time.as_secs_f64();
        if has_begun {
            let waited = seconds(self.patience.result);
            return console.trouble(format!("it came up, and had no result after {waited:.0} s"));
        }
        if console.last.is_empty() {
            let waited = seconds(self.patience.silence);
            return Trouble::Silent(format!(
                "nothing came from its serial console in {waited:.0} s (a kernel needs \
                 CONFIG_SERIAL_8250_CONSOLE and CONFIG_BLK_DEV_INITRD, built in)"
            ));
        }
        let waited = seconds(self.patience.boot);
        console.trouble(format!("it did not come up in {waited:.0} s"))
    }

    /// Returns the command for QEMU, which this program starts by way of [`super::launch`].
    fn command(&self) -> Command {
        let initramfs_mib = self.initramfs.bytes >> 20;
        // The archive, its unpacked contents, and as much again for what the kernel does meanwhile.
        let memory = MEMORY_MIB + 3 * initramfs_mib;
        let accelerator: &[&str] = match self.accelerator {
            Accelerator::Kvm => &["-accel", "kvm", "-cpu", "host"],
            // The guest's clock counts its instructions, at 2^2 ns each, and skips the time in which
            // it sleeps: the delays are the same however slow and busy this machine is.
            Accelerator::Emulation => &[
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-icount",
                "shift=2,sleep=off",
                "-rtc",
                "clock=vm",
            ],
        };
        // panic=-1: a kernel that panics restarts at once, which -no-reboot turns into an exit.
        let append = format!(
            "console=ttyS0 panic=-1 rdinit={PROGRAM} LD_LIBRARY_PATH={} -- guest init {}",
            self.initramfs.loader_path,
            self.time.as_millis()
        );
        let mut command = Command::new("/proc/self/exe");
        command.args(["guest", "machine", &std::process::id().to_string(), QEMU]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-serial", "stdio", "-smp", "1", "-m", &memory.to_string()]);
        command.args(accelerator);
        command.arg("-kernel").arg(self.kernel);
        command.arg("-initrd").arg(&self.initramfs.file);
        command.args(["-append", &append]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Returns the trouble of a machine that has ended by itself.
fn ended(mut running: Running, console: &Console, has_begun: bool) -> Trouble {
    let mut said = String::new();
    if let Some(mut errors) = running.0.stderr.take() {
        // What it says about itself is short.
        let _ = (&mut errors).take(LINE_BYTES).read_to_string(&mut said);
    }
    // The first line gives the reason; the others are consequences.
    let prefix = format!("{QEMU}: ");
    let said = said.lines().map(|line| line.trim().trim_start_matches(&prefix));
    let said = said.into_iter().find(|line| !line.is_empty()).unwrap_or_default();
    if console.last.is_empty() {
        let said = if said.is_empty() { "it ended without a word" } else { said };
        return Trouble::Silent(said.to_owned());
    }
    let when = if has_begun { "after it had come up" } else { "before it had come up" };
    let why = if said.is_empty() { String::new() } else { format!(" ({said})") };
    console.trouble(format!("the kernel gave up {when}{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_console_what_tells_is_shown() {
        let lines = |count: usize| (0..count).map(|number| number.to_string());
        let few: VecDeque<_> = lines(3).collect();
        assert_eq!(telling(&few), ["0", "1", "2"]);
        let many: VecDeque<_> = lines(90).collect();
        assert_eq!(telling(&many).len(), SHOWN);
        assert_eq!(telling(&many).last().unwrap(), "89");
        let reason = "[    1.5] Kernel panic - not syncing: VFS".to_owned();
        let panic: VecDeque<_> = lines(40).chain([reason.clone()]).chain(lines(40)).collect();
        let shown = telling(&panic);
        assert_eq!((shown.len(), &shown[BEFORE]), (SHOWN, &reason));
        assert_eq!(telling(&VecDeque::new()), [""; 0]);
    }
}
