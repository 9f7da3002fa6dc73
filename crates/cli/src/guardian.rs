//! The guardian of `uncork run --stack`: a process that outlives this one, which becomes the program.
//!
//! It is started by an intermediate process that ends at once, so that the program neither has an unknown child nor
//! is notified of one's end. Its message comes through a pipe: the place where it can be reached, or what is missing.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use uncork_guard::{Guard, Plan, Share, devices, heir, seclude, seclude_instance};

use crate::arguments::{Guarded, Guardian, GuardianPart};
use crate::failure::Failure;
use crate::stack::limits::raise_descriptors;

/// The prefix of a place (`uncork_guardian::Place`), with which no sentence begins.
const PLACE: char = '@';

/// Starts a guardian for a process, and returns the place where it can be reached.
pub(crate) fn begin(guarded: &Guarded) -> Result<String, Failure> {
    let mut command = own_program("begin", guarded);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(not_started)?;
    let mut said = String::new();
    // The end of file comes when the guardian closes its standard output.
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said).map_err(not_started)?;
    }
    // Where children are ignored (SIGCHLD), there is no child to wait for.
    let _ = child.wait();
    match said.trim_end() {
        "" => Err(Failure::own("the guardian of the stack has ended before it began")),
        place if place.starts_with(PLACE) => Ok(place.to_owned()),
        sentence => Err(Failure::own(sentence)),
    }
}

/// Returns the devices with which a guardian was started.
pub(crate) fn devices(named: &[String]) -> Vec<String> {
    // If there were none, the guardian has said so by then.
    let found = devices::find(named).unwrap_or_default();
    found.into_iter().map(|device| device.name).collect()
}

fn not_started(error: io::Error) -> Failure {
    Failure::own(format!("the guardian of the stack cannot be started: {error}"))
}

/// `uncork guardian`.
pub(crate) fn guardian(arguments: &Guardian) -> Result<i32, Failure> {
    match &arguments.part {
        GuardianPart::Begin(guarded) => {
            let mut command = own_program("serve", guarded);
            // The child's end does not matter: this process ends first.
            command.stdin(Stdio::null()).spawn().map(|_| 0).map_err(not_started)
        }
        GuardianPart::Serve(guarded) => Ok(serve(guarded)),
        GuardianPart::Inherit => Ok(inherit().map_or(Failure::OWN, |()| 0)),
        GuardianPart::Instance { number } => instance(*number),
    }
}

/// The orders for an instance. They contain secrets, so they are passed neither as arguments nor in the environment.
#[derive(Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) place: String,
    pub(crate) token: String,
    pub(crate) spin: Duration,
    /// How long frames may wait for later frames.
    pub(crate) moderation: Duration,
    /// Most bytes of one connection in the device queue, if not the stack's default.
    pub(crate) small_queue_bytes: Option<u32>,
    /// The processor reserved for it, if there is one.
    pub(crate) cpu: Option<usize>,
}

/// Starts the instance with this number.
pub(crate) fn begin_instance(number: u32, orders: &Orders) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", "instance", &number.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Fewer octets than a pipe holds. Should the instance be gone already, its exit tells.
        let _ = input.write_all(&serde_json::to_vec(orders)?);
    }
    Ok(child)
}

/// How long an instance that ends waits for its messages to be read.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Runs an instance.
fn instance(number: u32) -> Result<i32, Failure> {
    let failed = |error: &dyn Display| Failure::left(format!("instance {number}: {error}"));
    let Orders { place, token, spin, moderation, small_queue_bytes, cpu } =
        serde_json::from_reader(io::stdin()).map_err(|error| failed(&error))?;
    if let Some(cpu) = cpu {
        settle(cpu)
            .map_err(|error| failed(&format!("it cannot run on processor {cpu}: {error}")))?;
    }
    // A closed connection is an error, whichever process has started this one.
    crate::output::survive_broken_pipes();
    seclude_instance().map_err(|error| failed(&error))?;
    let settings = uncork_instance::Settings {
        place,
        token,
        spin,
        moderation,
        small_queue_bytes,
        say: crate::output::complain_apart,
    };
    let ended = uncork_instance::run(settings).map(|()| 0).map_err(|error| failed(&error));
    crate::output::finish_apart(LAST_WORDS);
    ended
}

/// Pins this process to one processor.
fn settle(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Runs the guardian's heir.
fn inherit() -> io::Result<()> {
    seclude()?;
    heir::inherit(rustix::stdio::stdin().try_clone_to_owned()?)
}

pub(crate) fn begin_heir(socket: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", "inherit"]).stdin(socket);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn own_program(part: &str, guarded: &Guarded) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", part, &guarded.program.to_string()]);
    for device in &guarded.dev {
        // As a single argument, whatever the name begins with.
        command.arg(format!("--dev={device}"));
    }
    for port in &guarded.port {
        command.arg(format!("--port={port}"));
    }
    if let Some(queues) = guarded.queues {
        command.arg(format!("--queues={queues}"));
    }
    command
}

fn serve(guarded: &Guarded) -> i32 {
    let begun = begin_to_serve(guarded);
    let (said, guard) = match begun {
        Ok(guard) => (guard.place().to_variable(), Some(guard)),
        Err(sentence) => (sentence, None),
    };
    // The reader may be gone; then there is no program to serve, which is noticed.
    let _ = writeln!(io::stdout(), "{said}");
    let Some(guard) = guard else { return Failure::OWN };
    if let Err(error) = let_go_of_streams() {
        // A process that waits for the end of file would wait for ever.
        crate::output::complain(format!("the guardian cannot let go of its output: {error}"));
        return Failure::OWN;
    }
    guard.with_heir(Box::new(begin_heir)).run().map_or(Failure::OWN, |()| 0)
}

fn begin_to_serve(guarded: &Guarded) -> Result<Guard, String> {
    seclude().map_err(|error| format!("the guardian cannot go into the background: {error}"))?;
    raise_descriptors();
    let devices = devices::find(&guarded.dev).map_err(|error| error.to_string())?;
    let Guarded { program, queues, .. } = *guarded;
    let queues = queues.map(Share::Each);
    let plan = Plan { devices, ports: guarded.port.clone(), queues, program };
    Guard::new(plan).map_err(|error| error.to_string())
}

fn let_go_of_streams() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    // The starter waits for end of file on its output: after this the guardian holds none of its descriptors.
    rustix::stdio::dup2_stderr(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}
