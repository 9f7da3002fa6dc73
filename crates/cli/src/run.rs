//! `uncork run`.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::execve;
use uncork_guard::permitted;
use uncork_guardian::{Client, Error};
use uncork_posix::config::{Moderation, Settings, variable};

use crate::arguments::{Guarded, InProcess, Run, Wanted, queues};
use crate::environment::{Environment, c_string};
use crate::failure::Failure;
use crate::fstack::Placement;
use crate::inspect::{For, SHELL, inspect};
use crate::place_file::{self, Name, Service};
use crate::{command, fstack, guardian, library, output, placement, stats};

/// Runs the program. Returns only with `--stats`, or on failure.
pub(crate) fn run(arguments: Run) -> Result<i32, Failure> {
    let mut environment = Environment::inherited();
    let path = environment.get("PATH");
    let name = arguments.command.first().map(OsString::as_os_str).unwrap_or_default();
    let file = command::find(name, path)?;
    let what = if arguments.stack.is_some() { For::Stack } else { For::Writes };
    inspect(&file, path, what)?;
    let library = library::find()?;
    for sentence in environment.not_understood(library::is_autocork(&library)) {
        output::complain(sentence);
    }
    apply(&arguments, &mut environment);
    let notes = match arguments.stack {
        None => Vec::new(),
        Some(InProcess::Inline) => begin_inline(&arguments, &mut environment)?,
        Some(InProcess::Instance) => join_instance(&arguments, &mut environment)?,
    };
    for note in notes {
        output::complain(note);
    }
    environment.preload(&library);
    let program = Program { file, arguments: arguments.command, environment };
    match arguments.stats {
        None => program.exec(),
        Some(file) => stats::run(program, file.as_deref()),
    }
}

/// Binds each thread to a stack of its own, or to a place of its own on instances, and returns whether it does so.
fn bind_to_threads(arguments: &Run, environment: &mut Environment) -> bool {
    if arguments.thread_sockets || fstack::binds_to_threads(environment) {
        environment.set(uncork_guardian::THREADS_VARIABLE, "1");
    }
    environment.get(uncork_guardian::THREADS_VARIABLE).is_some_and(|value| value == "1")
}

/// Starts a guardian for a stack on the program's own threads. Returns remarks on it.
fn begin_inline(arguments: &Run, environment: &mut Environment) -> Result<Vec<String>, Failure> {
    if arguments.instance.is_some() {
        return Err(Failure::own(
            "--instance names what --stack=instance attaches to: give that instead of --stack, or leave it out",
        ));
    }
    let idle = note_of_moderation(arguments, environment)?;
    let placement = Placement::of(environment)?;
    let Found { place, devices } = find_guardian(arguments)?;
    environment.set(uncork_guardian::VARIABLE, place);
    bind_to_threads(arguments, environment);
    if arguments.stay {
        environment.set(uncork_guardian::STAY_VARIABLE, "1");
    }
    // The program and not the guardian, which runs wherever there is room.
    placement.map_or(Ok(()), Placement::settle)?;
    let slow = placement::warnings(&devices);
    Ok(fstack::note(environment).into_iter().chain(idle).chain(slow).collect())
}

/// The program's guardian.
struct Found {
    /// Value of the variable.
    place: String,
    devices: Vec<String>,
}

/// Finds the program's guardian: a service, if one was named or nothing else is possible, or one of its own.
fn find_guardian(arguments: &Run) -> Result<Found, Failure> {
    if let Some(name) = &arguments.guardian {
        return join_guardian(arguments, name);
    }
    let missing = permitted().err();
    let name = Name::default();
    match (missing, place_file::is_claimed(Service::Guardian, &name)) {
        (None, _) => begin_guardian(arguments),
        (Some(_), true) => join_guardian(arguments, &name),
        (Some(missing), false) => Err(Failure::own(format!(
            "{missing}; or have the service run that needs it instead: sudo uncork stack guard --group GROUP"
        ))),
    }
}

fn begin_guardian(arguments: &Run) -> Result<Found, Failure> {
    let place = guardian::begin(&Guarded {
        program: std::process::id(),
        dev: arguments.dev.clone(),
        port: arguments.port.clone(),
        queues: queues(arguments.driver, arguments.queues).map_err(Failure::own)?,
    })?;
    Ok(Found { place, devices: guardian::devices(&arguments.dev) })
}

fn join_guardian(arguments: &Run, name: &Name) -> Result<Found, Failure> {
    if names_devices(arguments) {
        return Err(Failure::own(
            "--dev, --port, --driver and --queues are said to uncork stack guard, which has the devices: leave \
             them out, or run uncork as root, with a guardian of the program's own",
        ));
    }
    let told = place_file::find(Service::Guardian, name)?;
    let met = greet(&told.place, Service::Guardian, name)?;
    let devices = met.devices().iter().map(|device| device.name.clone()).collect();
    Ok(Found { place: told.place, devices })
}

/// Connects to check that the service answers.
fn greet(place: &str, service: Service, name: &Name) -> Result<Client, Failure> {
    Client::connect(place).map_err(|error| match error {
        Error::Gone | Error::Place => service.is_gone(name),
        error => Failure::own(error.to_string()),
    })
}

/// Returns whether there are options that are given to a service when it is started.
fn names_devices(arguments: &Run) -> bool {
    let is_plain = arguments.dev.is_empty() && arguments.port.is_empty();
    !is_plain || arguments.driver.is_some() || arguments.queues.is_some()
}

/// Refuses options that do not apply to a program that attaches to instances.
fn refuse_for_instances(arguments: &Run) -> Result<(), Failure> {
    let refused = [
        (
            arguments.guardian.is_some(),
            "--guardian is for a stack on the program's own threads: give --stack, or leave it out",
        ),
        (
            names_devices(arguments),
            "--dev, --port, --driver and --queues are said to uncork stack start, which has the devices: leave \
             them out with --stack=instance",
        ),
        (
            arguments.stay,
            "--stay is for a stack on the program's own threads: an instance leaves nothing to the kernel, so leave it \
             out, or give --stack",
        ),
        (
            arguments.small_queue.is_some(),
            "--small-queue is said to uncork stack start, whose instances have the queues: leave it out with \
             --stack=instance",
        ),
        (
            arguments.moderation.is_some(),
            "--moderation is said to uncork stack start, whose instances take the frames in: leave it out with \
             --stack=instance",
        ),
    ];
    let why = refused.into_iter().find_map(|(is_said, why)| is_said.then_some(why));
    why.map_or(Ok(()), |why| Err(Failure::own(why)))
}

/// Returns the instance that the program attaches to, if it is given: with --instance, by the equivalent variable, or,
/// where threads are not bound to instances, as for F-Stack's adapter.
fn number_of(
    wanted: Option<&Wanted>,
    environment: &Environment,
    apart: bool,
) -> Result<Option<u32>, Failure> {
    let inherited = match wanted {
        Some(Wanted { number: Some(number), .. }) => return Ok(Some(*number)),
        // The variable is about instances of another name.
        Some(_) => None,
        None => environment.number(uncork_guardian::INSTANCE_VARIABLE)?,
    };
    match inherited {
        None if !apart => fstack::wanted(environment),
        inherited => Ok(inherited),
    }
}

/// Tells the program where its instances are. Returns remarks on that.
fn join_instance(arguments: &Run, environment: &mut Environment) -> Result<Vec<String>, Failure> {
    refuse_for_instances(arguments)?;
    environment.remove(uncork_guardian::STAY_VARIABLE);
    let apart = bind_to_threads(arguments, environment);
    let wanted = arguments.instance.as_ref();
    let name = wanted.map(|wanted| wanted.name.clone()).unwrap_or_default();
    let number = number_of(wanted, environment, apart)?;
    let told = place_file::find(Service::Instances, &name)?;
    if let Some(number) = number.filter(|number| *number >= told.instances) {
        return Err(Failure::own(format!(
            "there is no instance {number} of {name}, which has {}, counted from 0",
            told.instances
        )));
    }
    greet(&told.place, Service::Instances, &name)?;
    let slow = placement::beside_instances(&told.cpus, number);
    let notes = fstack::notes_of_instance(environment, apart && number.is_none());
    let notes = environment.notes_of_instance().into_iter().chain(notes).chain(slow).collect();
    environment.set(uncork_guardian::VARIABLE, told.place);
    match number {
        Some(number) => {
            environment.set(uncork_guardian::INSTANCE_VARIABLE, number.to_string());
        }
        None => environment.remove(uncork_guardian::INSTANCE_VARIABLE),
    }
    Ok(notes)
}

/// Returns a remark on a moderation without effect, as a program that spins takes each frame in at once. An option is
/// refused then.
fn note_of_moderation(
    arguments: &Run,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    let Settings { spin, moderation, .. } = environment.settings(false);
    if spin.is_off() || moderation == Moderation::OFF {
        return Ok(None);
    }
    let spins = match arguments.spin {
        Some(_) => format!("--spin {spin}"),
        None => format!("{}={spin}", variable::SPIN),
    };
    if arguments.moderation.is_none() {
        let name = variable::MODERATION;
        return Ok(Some(format!(
            "{name}={moderation} sets nothing: with {spins} each frame is taken in at once"
        )));
    }
    let way_out = if arguments.spin.is_some() {
        "leave out one of the two"
    } else {
        "give --spin off, or unset that"
    };
    Err(Failure::own(format!(
        "--moderation {moderation} would do nothing, as with {spins} each frame is taken in at once: {way_out}"
    )))
}

/// Sets the variables of the given options; the others stay as they are.
fn apply(arguments: &Run, environment: &mut Environment) {
    let options = [
        (variable::HOLD, arguments.hold.map(|value| value.to_string())),
        (variable::SCOPE, arguments.scope.map(|value| value.to_string())),
        (variable::BOUND, arguments.bound.map(|value| value.to_string())),
        (variable::SPIN, arguments.spin.map(|value| value.to_string())),
        (variable::MODERATION, arguments.moderation.map(|value| value.to_string())),
        (variable::SMALL_QUEUE, arguments.small_queue.map(|value| value.to_string())),
        (variable::DEBUG, arguments.debug.map(|value| value.to_string())),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            environment.set(name, value);
        }
    }
}

/// A program that is ready to be started.
pub(crate) struct Program {
    /// The file for execve.
    file: PathBuf,
    /// The program's arguments, its name first.
    pub(crate) arguments: Vec<OsString>,
    /// The program's environment.
    pub(crate) environment: Environment,
}

/// The arguments of execve and posix_spawn.
pub(crate) struct Call {
    pub(crate) file: CString,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
}

impl Program {
    /// Replaces this process by the program; nothing of uncork remains.
    fn exec(&self) -> Result<i32, Failure> {
        self.attempt(|call| execve(&call.file, &call.arguments, &call.environment).map(|_| 0))
    }

    /// Starts the program by `start`; by the shell if the kernel does not recognise its format, as execvp does.
    pub(crate) fn attempt<T>(&self, start: impl Fn(&Call) -> nix::Result<T>) -> Result<T, Failure> {
        let mut call = self.call()?;
        match start(&call) {
            Err(Errno::ENOEXEC) => {
                let script = std::mem::replace(&mut call.file, c_string(SHELL.into())?);
                // The shell's own name replaces the program's.
                call.arguments.splice(..1, [call.file.clone(), script]);
                start(&call)
            }
            other => other,
        }
        .map_err(|error| self.not_started(error))
    }

    fn call(&self) -> Result<Call, Failure> {
        let text = |text: &OsStr| c_string(text.as_bytes().to_vec());
        Ok(Call {
            file: text(self.file.as_os_str())?,
            arguments: self.arguments.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            environment: self.environment.to_strings()?,
        })
    }

    fn not_started(&self, error: Errno) -> Failure {
        let name = self.name().display();
        match error {
            // It existed a moment ago.
            Errno::ENOENT => Failure::not_found(format!("{name}: no such file")),
            // These errors are uncork's own: no memory, no process left.
            Errno::EAGAIN | Errno::ENOMEM => {
                Failure::own(format!("no process could be started: {}", error.desc()))
            }
            _ => Failure::not_executable(format!("{name} cannot be executed: {}", error.desc())),
        }
    }

    /// Returns the file that is executed.
    pub(crate) fn name(&self) -> &Path {
        &self.file
    }
}
