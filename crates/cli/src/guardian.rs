//! The guardian of `uncork run --stack`: a process that outlives this one, which becomes the program.
//!
//! It is started by one that ends at once, so that the program neither has a child that it does not know of nor hears
//! of one's end. What it says comes by a pipe: the place where it is to be found, or what is missing.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use uncork_guard::{Guard, Plan, devices, heir, seclude};

use crate::arguments::{Guarded, Guardian, GuardianPart};
use crate::failure::Failure;

/// What a place begins with (`uncork_guardian::Place`), and no sentence does.
const PLACE: char = '@';

/// Starts a guardian for this process, and gives the place where it is to be found.
pub(crate) fn begin(devices: &[String], ports: &[u16]) -> Result<String, Failure> {
    let mut command = own_program("begin", std::process::id(), devices, ports);
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
            let mut command = own_program("serve", guarded.program, &guarded.dev, &guarded.port);
            // The child's end is nobody's concern: this process ends first.
            command.stdin(Stdio::null()).spawn().map(|_| 0).map_err(not_started)
        }
        GuardianPart::Serve(guarded) => Ok(serve(guarded)),
        GuardianPart::Inherit => Ok(inherit().map_or(Failure::OWN, |()| 0)),
    }
}

/// The life of the guardian's heir.
fn inherit() -> io::Result<()> {
    seclude()?;
    heir::inherit(rustix::stdio::stdin().try_clone_to_owned()?)
}

fn begin_heir() -> io::Result<(OwnedFd, Child)> {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (own, other) = socketpair(kind.0, kind.1, kind.2, None)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", "inherit"]).stdin(other);
    Ok((own, command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn own_program(part: &str, program: u32, devices: &[String], ports: &[u16]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uncork").args(["guardian", part, &program.to_string()]);
    for device in devices {
        // As one word, whatever it begins with.
        command.arg(format!("--dev={device}"));
    }
    for port in ports {
        command.arg(format!("--port={port}"));
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
    let devices = devices::find(&guarded.dev).map_err(|error| error.to_string())?;
    let plan = Plan { devices, ports: guarded.port.clone(), program: guarded.program };
    Guard::new(plan).map_err(|error| error.to_string())
}

fn let_go_of_streams() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}
