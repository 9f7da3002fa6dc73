//! `uncork stack start`: a guardian in the foreground, and the instances that it starts and supervises.

mod config;
mod cpus;
mod instances;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use uncork_guard::{Error, Guard, Plan, Share, devices, permitted};
use uncork_posix::config::{Moderation, SmallQueue};

pub(super) use cpus::Cpus;

use self::config::Config;
use self::instances::Instances;
use super::DONE;
use super::arguments::{self, Start};
use super::limits::raise_descriptors;
use super::manager::tell_ready;
use super::signals::Signals;
use crate::arguments::Driver;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::fstack;
use crate::guardian::{Orders, begin_heir};
use crate::output::{complain, print, shown};
use crate::place_file::{Claim, Name, Service, Told};
use crate::placement;

/// What is to be started, from all sources of configuration.
#[derive(Debug)]
struct Wanted {
    name: Name,
    service: arguments::Service,
    driver: Driver,
    instances: u32,
    cpus: Option<Cpus>,
    spin: Duration,
    moderation: Moderation,
    small_queue: SmallQueue,
}

impl Wanted {
    /// Combines the command line, then the file, then the settings of F-Stack's adapter.
    fn of(start: Start, environment: &Environment) -> Result<Self, Failure> {
        let start = match start.config.clone() {
            Some(file) => read(&file)?.complete(start),
            None => start,
        };
        let instances = match start.instances {
            Some(count) => count,
            None => fstack::instances(environment)?.unwrap_or(1),
        };
        let cpus = match start.cpus {
            Some(cpus) => Some(cpus),
            None => fstack::first_cpu(environment)?.map(|first| Cpus::from(first, instances)),
        };
        let (spin, moderation) =
            (start.spin.unwrap_or_default(), start.moderation.unwrap_or_default());
        if !spin.is_zero() && moderation != Moderation::OFF {
            return Err(Failure::unusable(
                "an instance that spins takes in each frame at once: leave out either spin or moderation",
            ));
        }
        cpus.as_ref().map_or(Ok(()), |cpus| cpus.check(instances)).map_err(Failure::unusable)?;
        Ok(Self {
            name: start.service.name.clone().unwrap_or_default(),
            service: start.service,
            driver: start.driver.unwrap_or_default(),
            instances,
            cpus,
            spin,
            moderation,
            small_queue: start.small_queue.unwrap_or_default(),
        })
    }

    fn cpu(&self, number: u32) -> Option<usize> {
        self.cpus.as_ref()?.0.get(number as usize).copied()
    }
}

fn read(file: &Path) -> Result<Config, Failure> {
    let shown_name = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::unusable(format!("{shown_name} cannot be read: {error}")))?;
    text.parse().map_err(|why| Failure::unusable(format!("{shown_name}, {why}")))
}

/// A guardian that runs on a thread of its own.
struct Running {
    /// Closing this ends the guardian, which then closes its own end.
    until: UnixStream,
    thread: JoinHandle<()>,
    /// Receives the numbers of instances that have started.
    comes: Receiver<u32>,
    devices: Vec<String>,
    place: String,
    /// The orders of each instance.
    orders: Vec<Orders>,
}

/// Starts instances, and supervises them until a signal ends it.
pub(super) fn start(start: Start) -> Result<i32, Failure> {
    let wanted = Wanted::of(start, &Environment::inherited())?;
    // Before the claim, whose refusal would not name what is missing.
    permitted().map_err(|error| refused(&error))?;
    let mut claim = Claim::take(Service::Instances, &wanted.name, wanted.service.group.as_deref())?;
    // Before there is a second thread, which must not receive them either.
    let signals = Signals::take()
        .map_err(|error| Failure::left(format!("signals cannot be received: {error}")))?;
    raise_descriptors();
    let guardian = begin(&wanted)?;
    let mut instances = Instances::start(&guardian.orders)?;
    if instances.wait_until_up(&guardian.comes, &signals)? {
        let told = told(&wanted, &guardian);
        claim.publish(&told)?;
        placement::of_instances(told.instances, &told.cpus, &guardian.devices)
            .into_iter()
            .for_each(complain);
        // Its standard output may be closed.
        let _ = print(&ready(&wanted, &guardian));
        tell_ready();
        instances.look_after(&signals, &guardian.until)?;
    }
    // No new program may connect.
    drop(claim);
    instances.end(&signals);
    drop(guardian.until);
    let _ = guardian.thread.join();
    Ok(DONE)
}

/// Starts the guardian: filters on the devices, and a thread that serves instances and programs.
fn begin(wanted: &Wanted) -> Result<Running, Failure> {
    let found = devices::find(&wanted.service.dev).map_err(|error| refused(&error))?;
    let names = found.iter().map(|device| device.name.clone()).collect();
    let queues = (wanted.driver == Driver::Xdp).then_some(Share::Instances);
    let (ports, program) = (wanted.service.port.clone(), std::process::id());
    let plan = Plan { devices: found, ports, queues, program };
    let no_pair = |error| Failure::left(format!("no sockets can be made: {error}"));
    let (until, its) = UnixStream::pair().map_err(no_pair)?;
    let (came, comes) = mpsc::channel();
    let guard = Guard::new(plan).map_err(|error| refused(&error))?;
    let guard = guard.with_instances(wanted.instances, came).map_err(|error| refused(&error))?;
    let guard = guard.with_heir(Box::new(begin_heir)).until(its.into());
    let place = guard.place().to_variable();
    let orders = (0_u32..).zip(guard.tokens()).map(|(number, token)| Orders {
        place: place.clone(),
        token: token.as_str().to_owned(),
        spin: wanted.spin,
        moderation: wanted.moderation.longest(),
        small_queue_bytes: wanted.small_queue.bytes(),
        cpu: wanted.cpu(number),
    });
    let orders = orders.collect();
    let run = move || {
        if let Err(error) = guard.run() {
            complain(format!("the guardian of the stack has ended: {error}"));
        }
    };
    let thread = thread::Builder::new().name("guardian".to_owned()).spawn(run);
    let thread =
        thread.map_err(|error| Failure::left(format!("no thread can be started: {error}")))?;
    Ok(Running { until, thread, comes, devices: names, place, orders })
}

fn refused(error: &Error) -> Failure {
    match error {
        Error::Privilege(what) => Failure::no_permission(format!(
            "instances of a stack in user space need {what}: run uncork as root (sudo uncork stack start)"
        )),
        error => super::refused(error),
    }
}

fn told(wanted: &Wanted, guardian: &Running) -> Told {
    let cpus = (0..wanted.instances).filter_map(|number| Some((number, wanted.cpu(number)?)));
    let cpus: BTreeMap<_, _> = cpus.collect();
    Told { place: guardian.place.clone(), instances: wanted.instances, cpus }
}

fn ready(wanted: &Wanted, guardian: &Running) -> String {
    let instances = match wanted.instances {
        1 => "1 instance".to_owned(),
        many => format!("{many} instances"),
    };
    let devices = guardian.devices.join(", ");
    format!(
        "{instances} of the stack on {}: uncork run --stack=instance{} -- COMMAND\n",
        shown(&devices),
        wanted.name.option("--instance")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: Start, variables: &[(&str, &str)]) -> Result<Wanted, Failure> {
        let mut environment = Environment::default();
        variables.iter().for_each(|(name, value)| environment.set(name, value));
        Wanted::of(start, &environment)
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_that_over_the_environment() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("uncork.ini");
        fs::write(&file, "[stack]\nname = web\ninstances = 2\n").unwrap();
        let config = || Start { config: Some(file.clone()), ..Start::default() };
        let f_stack = [("FF_NB_FSTACK_INSTANCE", "3"), ("FF_INITIAL_LCORE_ID", "1")];
        let plain = of(Start::default(), &[]).unwrap();
        assert_eq!((plain.name.to_string().as_str(), plain.instances), ("default", 1));
        assert_eq!((plain.cpus, plain.spin), (None, Duration::ZERO));
        let wanted = of(config(), &f_stack[..1]).unwrap();
        assert_eq!((wanted.name.to_string().as_str(), wanted.instances), ("web", 2));
        let wanted = of(Start { instances: Some(1), ..config() }, &f_stack).unwrap();
        assert_eq!((wanted.instances, wanted.cpu(0), wanted.cpu(1)), (1, Some(0), None));
        assert_eq!(of(Start::default(), &f_stack[..1]).unwrap().instances, 3);
    }

    #[test]
    fn what_cannot_be_started_is_told_before_anything_is() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("uncork.ini");
        fs::write(&file, "[stack]\nlcores = 2\n").unwrap();
        let why = |start: Start, variables: &[(&str, &str)]| {
            of(start, variables).unwrap_err().to_string()
        };
        let config = |file: &Path| Start { config: Some(file.to_owned()), ..Start::default() };
        let said = why(config(&file), &[]);
        assert!(said.contains("uncork.ini, line 2: there is no key lcores"), "{said}");
        let said = why(config(&root.path().join("none")), &[]);
        assert!(said.contains("cannot be read"), "{said}");
        let cpus = "0".parse().ok();
        let said = why(Start { instances: Some(2), cpus, ..Start::default() }, &[]);
        assert!(said.starts_with("2 instances need a processor each"), "{said}");
        let (spin, moderation) = (Some(Duration::from_micros(50)), "64us".parse().ok());
        let said = why(Start { spin, moderation, ..Start::default() }, &[]);
        assert!(said.contains("leave out either spin or moderation"), "{said}");
        let said = why(Start::default(), &[("FF_INITIAL_LCORE_ID", "x")]);
        assert!(said.contains("is no mask of processors"), "{said}");
    }
}
