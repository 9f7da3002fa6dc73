//! The guardian of `uncork run --stack`: a process that outlives this one, which becomes the program.
//!
//! It is started by one that ends at once, so that the program neither has a child that it does not know of nor hears
//! of one's end. What it says comes by a pipe: the place where it is to be found, or what is missing.

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

/// What a place begins with (`uncork_guardian::Place`), and no sentence does.
const PLACE: char = '@';

/// Starts a guardian for a process, and gives the place where it is to be found.
pub(crate) fn begin(guarded: &Guarded) -> Result<String, Failure> {
    let mut command = own_program("begin", guarded);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(not_started)?;
    let mut said = String::new();
    // Its end comes when the guardian lets go of its standard output.
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said).map_err(not_started)?;
    }
    // Where children are ignored (SIGCHLD), nobody is there to be waited for.
    let _ = child.wait();
    match said.trim_end() {
        "" => Err(Failure::own("the guardian of the stack has ended before it began")),
        place if place.starts_with(PLACE) => Ok(place.to_owned()),
        sentence => Err(Failure::own(sentence)),
    }
}

/// The devices that one was begun with.
pub(crate) fn devices(named: &[String]) -> Vec<String> {
    // It has said by then if there were none.
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
            // The child's end is nobody's concern: this process ends first.
            command.stdin(Stdio::null()).spawn().map(|_| 0).map_err(not_started)
        }
        GuardianPart::Serve(guarded) => Ok(serve(guarded)),
        GuardianPart::Inherit => Ok(inherit().map_or(Failure::OWN, |()| 0)),
        GuardianPart::Instance { number } => instance(*number),
    }
}

/// What an instance is told. It has secrets, so it comes by no argument and no environment.
#[derive(Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) place: String,
    pub(crate) token: String,
    pub(crate) spin: Duration,
    /// How long frames may wait for others.
    pub(crate) moderation: Duration,
    /// Most bytes of one connection in the device queue, if not the stack's own.
    pub(crate) small_queue_bytes: Option<u32>,
    /// Its own processor, if it has one.
    pub(crate) cpu: Option<usize>,
}

/// Starts an instance of this number.
pub(crate) fn begin_instance(number: u32, orders: &Orders) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", "instance", &number.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // Fewer octets than a pipe has room for. Should it be gone already, its end tells.
        let _ = input.write_all(&serde_json::to_vec(orders)?);
    }
    Ok(child)
}

/// So long an instance that ends waits for who reads what it has said.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The life of an instance.
fn instance(number: u32) -> Result<i32, Failure> {
    let failed = |error: &dyn Display| Failure::left(format!("instance {number}: {error}"));
    let Orders { place, token, spin, moderation, small_queue_bytes, cpu } =
        serde_json::from_reader(io::stdin()).map_err(|error| failed(&error))?;
    if let Some(cpu) = cpu {
        settle(cpu)
            .map_err(|error| failed(&format!("it cannot run on processor {cpu}: {error}")))?;
    }
    // A peer that is gone is an error, whoever has started this process.
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

/// Runs this process on one processor.
fn settle(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// The life of the guardian's heir.
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
        // As one word, whatever it begins with.
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
    // Whoever wanted to know may be gone; then there is nobody to serve, which shows.
    let _ = writeln!(io::stdout(), "{said}");
    let Some(guard) = guard else { return Failure::OWN };
    if let Err(error) = let_go_of_streams() {
        // Who waits would wait for ever.
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
    // Who has started it waits for the end of its output: then it has nothing of theirs.
    rustix::stdio::dup2_stderr(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}
