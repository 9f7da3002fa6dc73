//! Two linked hosts: a guardian and the program under test on one, `c/far.c` on the other.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};
use uncork_e2e::artifact::compiled;
use uncork_e2e::edge::{difference, no_failure};
use uncork_e2e::run::{run, wait};
use uncork_e2e::{Instances, Mode, beside_others, instance};
use uncork_guard::{Guard, Plan, devices};
use uncork_guardian::{THREADS_VARIABLE, VARIABLE};
use uncork_netns::Namespace;
use uncork_netns::testing::is_skipped;
use uncork_posix::config::{Hold, variable};

/// The addresses given to a program: its own host's and the other one's.
pub(crate) type Ends = [&'static str; 2];
pub(crate) const V4: Ends = ["10.95.0.1", "10.95.0.2"];
pub(crate) const V6: Ends = ["fd95::1", "fd95::2"];
/// IPv4 through IPv6 sockets, at both hosts.
pub(crate) const MAPPED: Ends = ["::ffff:10.95.0.1", "::ffff:10.95.0.2"];
/// The longest time that any of the programs takes, with a wide margin.
const LIMIT: Duration = Duration::from_secs(60);

struct Hosts {
    near: Namespace,
    far: Namespace,
}

impl Hosts {
    fn new(label: &str) -> Result<Self> {
        // Several tests may run the same program, with other addresses.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let label = format!("{label}{}", COUNT.fetch_add(1, Relaxed));
        let near = Namespace::new(&format!("{label}-n"))?;
        let far = Namespace::new(&format!("{label}-f"))?;
        near.ip(&format!("link add eth0 type veth peer name eth0 netns {}", far.name()))?;
        for (host, v4, v6) in [(&near, V4[0], V6[0]), (&far, V4[1], V6[1])] {
            host.set("ipv6/conf/eth0/disable_ipv6", 0)?;
            host.ip(&format!("address add {v4}/24 dev eth0"))?;
            host.ip(&format!("address add {v6}/64 dev eth0 nodad"))?;
            host.ip("link set eth0 up")?;
        }
        Ok(Self { near, far })
    }

    /// Starts a guardian on the near host, for as long as process `program` lives or a client is
    /// connected; returns what to tell clients.
    fn guardian(&self, program: u32) -> Result<String> {
        let (tells, told) = mpsc::channel();
        let near = format!("/run/netns/{}", self.near.name());
        thread::spawn(move || {
            let begin = || {
                setns(File::open(near)?, CloneFlags::CLONE_NEWNET)?;
                let devices = devices::find(&[])?;
                Ok(Guard::new(Plan { devices, ports: Vec::new(), queues: None, program })?)
            };
            match begin() {
                Ok(guard) => {
                    let _ = tells.send(Ok(guard.place().to_variable()));
                    let _ = guard.run();
                }
                Err(error) => {
                    let _ = tells.send(Err(error));
                }
            }
        });
        told.recv_timeout(LIMIT).context("there is no guardian")?
    }
}

/// A program's output, its exit status, and what it said of where its connections were.
#[derive(Clone)]
struct Told {
    facts: (String, std::process::ExitStatus),
    places: String,
}

/// Runs `c/NAME.c` on the near host: on a stack, its own or an instance's, or without the library.
fn told(
    hosts: &Hosts,
    (name, ends): (&str, Ends),
    mode: &Mode,
    on_instances: bool,
) -> Result<Told> {
    // The kernel searches for a neighbour for three seconds. A run that joins a search begun by an
    // earlier one hears of its end too early.
    hosts.near.ip("neigh flush dev eth0")?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("far").to_string_lossy().into_owned();
    let mut far = hosts.far.command(&compiled("far")?.to_string_lossy());
    let mut far = Guest(far.arg(&path).stdin(Stdio::null()).spawn()?);
    let mut command = hosts.near.command(&compiled(name)?.to_string_lossy());
    command.arg(&path).args(ends);
    mode.apply(&mut command)?;
    let wanted = !mode.is_plain() && on_instances;
    let count = if mode.sets(THREADS_VARIABLE) { 3 } else { 1 };
    let instances = wanted.then(|| Instances::start(&hosts.near, &["eth0"], count)).transpose()?;
    if let Some(instances) = &instances {
        command.env(VARIABLE, instances.variable()?);
    } else if !mode.is_plain() {
        command.env(VARIABLE, hosts.guardian(far.0.id())?);
    }
    let finished = run(&mut command, LIMIT)?;
    // The other host's program ends with the connection to it.
    ensure!(wait(&mut far.0, LIMIT)?.is_some(), "the other host has not ended");
    no_failure(&finished.stdout)?;
    let places = finished.stderr.lines().find(|line| line.starts_with("connections: "));
    let places = places.unwrap_or("connections: unknown").to_owned();
    Ok(Told { facts: (finished.stdout, finished.status), places })
}

/// Returns the result on kernel sockets: from one run, with which all tests of that program
/// compare, unless another run is wanted.
fn plain(hosts: &Hosts, (name, ends): (&str, Ends), again: bool) -> Result<Told> {
    type Known = BTreeMap<(String, Ends), Arc<Mutex<Option<Told>>>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let this = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((name.to_owned(), ends)).or_default())
    };
    // Only tests that want the same result wait here.
    let mut this = this.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(told) = this.as_ref().filter(|_| !again) {
        return Ok(told.clone());
    }
    let plain = told(hosts, (name, ends), &Mode::plain(), false).context("plain")?;
    Ok(this.insert(plain).clone())
}

/// A process that is ended in any case.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `c/NAME.c` on kernel sockets and on the stack, there without and with spinning, which takes
/// other paths through each wait, and compares output and exit status.
pub(crate) fn same_on_the_stack(name: &str) -> Result<()> {
    if is_skipped(name) {
        return Ok(());
    }
    let sleeping = Mode::held(Hold::Kernel);
    same_in((name, V4), &[sleeping.clone(), sleeping.with(variable::SPIN, "2ms")])
}

/// Does the same with other addresses, without spinning: the waits are the same.
pub(crate) fn same_on_the_stack_by(ends: Ends, name: &str) -> Result<()> {
    if is_skipped(name) { Ok(()) } else { same_in((name, ends), &[Mode::held(Hold::Kernel)]) }
}

/// Does the same where each thread has a stack of its own, or an instance of its own.
pub(crate) fn same_on_the_stacks_of_threads(name: &str) -> Result<()> {
    if is_skipped(name) {
        return Ok(());
    }
    let sleeping = Mode::held(Hold::Kernel).with(THREADS_VARIABLE, "1");
    same_in((name, V4), &[sleeping.clone(), sleeping.with(variable::SPIN, "2ms")])
}

fn same_in(what: (&str, Ends), modes: &[Mode]) -> Result<()> {
    same_as_on_kernel(what, modes, instance::are_wanted())
}

/// Does the same where each thread has an instance of its own, whatever the environment wants.
pub(crate) fn same_on_instances_of_threads(name: &str) -> Result<()> {
    if is_skipped(name) {
        return Ok(());
    }
    let sleeping = Mode::held(Hold::Kernel).with(THREADS_VARIABLE, "1");
    same_as_on_kernel((name, V4), &[sleeping], true)
}

fn same_as_on_kernel((name, ends): (&str, Ends), modes: &[Mode], on_instances: bool) -> Result<()> {
    let _shared = beside_others();
    let hosts = Hosts::new(name.trim_start_matches("stack_"))?;
    let mut on_kernel = plain(&hosts, (name, ends), false)?;
    for mode in modes {
        let with = told(&hosts, (name, ends), mode, on_instances)
            .with_context(|| format!("on the stack, {mode}"))?;
        let mut differences = difference(&on_kernel.facts, &with.facts);
        if !differences.is_empty() {
            // A busy machine delays kernel sockets, too: only a difference from a new run counts.
            on_kernel = plain(&hosts, (name, ends), true)?;
            differences = difference(&on_kernel.facts, &with.facts);
        }
        ensure!(differences.is_empty(), "c/{name}.c at {}, {mode}\n{differences}", ends[0]);
        ensure!(with.places.ends_with(" of the kernel: 0"), "not on the stack: {}", with.places);
    }
    let places = on_kernel.places;
    ensure!(!places.ends_with(" of the kernel: 0"), "not on the kernel: {places}");
    Ok(())
}
