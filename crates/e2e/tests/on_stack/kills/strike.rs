//! The kills.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_e2e::{Daemon, Hosts};

use super::dice::Dice;
use super::peers::{Does, End};
use super::remains::{Process, processes};

/// The longest time between two kills in the same program.
const GAP: Duration = Duration::from_millis(5);
/// Between the program's death and the guardian's: half of the time almost nothing.
const GAPS: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(20)];

/// The roles of which one process or several are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// A worker, or the only process.
    Worker,
    /// The first process; nginx's workers go on without it.
    Master,
    /// All processes of the program, one by one.
    Program,
    /// An instance that programs are on.
    Instance,
    Guardian,
    /// The guardian's heir: its death must not be noticed.
    Heir,
}

/// The roles that are killed, in this order.
pub(super) type Victims = &'static [Who];

/// Victims where programs have stacks of their own.
pub(super) const OWN: [Victims; 7] = [
    &[Who::Worker],
    &[Who::Master],
    &[Who::Program],
    &[Who::Guardian],
    &[Who::Heir],
    &[Who::Guardian, Who::Program],
    &[Who::Program, Who::Guardian],
];

/// Victims where programs are on instances.
pub(super) const ATTACHED: [Victims; 12] = [
    &[Who::Worker],
    &[Who::Master],
    &[Who::Program],
    &[Who::Instance],
    &[Who::Guardian],
    &[Who::Heir],
    &[Who::Guardian, Who::Program],
    &[Who::Program, Who::Guardian],
    &[Who::Instance, Who::Program],
    &[Who::Program, Who::Instance],
    &[Who::Guardian, Who::Instance],
    &[Who::Instance, Who::Guardian],
];

/// Which processes were killed, and when.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    processes: HashMap<u32, Instant>,
    guardian: Option<Instant>,
    /// The instance that each of the program's processes is on.
    instances: HashMap<u32, u32>,
}

impl Deaths {
    /// Returns since when no process could go on with a connection: its process is dead, or its
    /// instance, or the guardian, without which the kernel has everything.
    pub(super) fn doom(&self, does: Does, owner: Option<u32>) -> Option<Instant> {
        let death = |pid: u32| self.processes.get(&pid).copied();
        let instance = owner.and_then(|pid| self.instances.get(&pid).copied());
        // An instance goes on sending a dead program's data to a peer that does not read yet.
        let sends_on = instance.is_some() && does == Does::Downloads;
        let owner = owner.filter(|_| !sends_on);
        [owner.and_then(death), instance.and_then(death), self.guardian].into_iter().flatten().min()
    }

    /// Returns whether the process that had a connection is dead.
    pub(super) fn has_lost(&self, owner: Option<u32>) -> bool {
        owner.is_some_and(|pid| self.processes.contains_key(&pid))
    }

    /// Returns whether a connection may have ended although a process could go on with it: all that
    /// a dead program had sent an instance fits into the peer's window, and its FIN comes after it.
    pub(super) fn may_end(&self, owner: Option<u32>, end: End) -> bool {
        let death = owner.and_then(|pid| self.processes.get(&pid));
        !end.is_reset && death.is_some_and(|death| *death <= end.at)
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.processes.values().copied().min()
    }

    fn strike(&mut self, pid: u32) -> Result<()> {
        let now = Instant::now();
        // A process that has ended by itself, as nginx's workers may, needs no kill.
        if kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL).is_ok() {
            self.processes.entry(pid).or_insert(now);
        }
        Ok(())
    }

    fn strike_guardian(&mut self, pid: u32) -> Result<()> {
        self.strike(pid)?;
        self.guardian = self.processes.get(&pid).copied();
        Ok(())
    }

    fn strike_all(&mut self, all: &[Process]) -> Result<()> {
        all.iter().try_for_each(|one| self.strike(one.pid))
    }
}

/// Kills the victims.
pub(super) fn strike(
    hosts: &Hosts,
    daemon: &Daemon,
    victims: Victims,
    dice: &mut Dice,
) -> Result<Deaths> {
    let all = processes(hosts)?;
    let find = |is: fn(&Process) -> bool| all.iter().find(|one| is(one)).map(|one| one.pid);
    let guardian = find(Process::is_guardian).context("no guardian")?;
    let heir = find(Process::is_heir).context("no heir")?;
    let mut program: Vec<_> = all.iter().filter(|one| one.is_programs()).cloned().collect();
    dice.shuffle(&mut program);
    let worker = program.iter().find(|one| one.is_worker()).map(|worker| worker.pid);
    let longest = dice.pick(&GAPS);
    let gap = dice.time(longest);
    let mut deaths = Deaths { instances: instances_of(&all), ..Deaths::default() };
    for (at, who) in victims.iter().enumerate() {
        if at > 0 {
            thread::sleep(gap);
        }
        match who {
            Who::Worker => deaths.strike(worker.unwrap_or(daemon.pid()))?,
            Who::Master => deaths.strike(daemon.pid())?,
            // If it is the only victim, it is killed below.
            Who::Program if victims.len() == 1 => {}
            Who::Program => deaths.strike_all(&program)?,
            Who::Instance => {
                let instances: Vec<_> = deaths.instances.values().copied().collect();
                ensure!(!instances.is_empty(), "no process is on an instance");
                deaths.strike(dice.pick(&instances))?;
            }
            Who::Guardian => deaths.strike_guardian(guardian)?,
            Who::Heir => deaths.strike(heir)?,
        }
    }
    if victims.contains(&Who::Program) {
        strike_program(hosts, dice, &mut deaths)?;
    }
    Ok(deaths)
}

/// Returns the instance that each process is on: both have mapped the same memory.
fn instances_of(all: &[Process]) -> HashMap<u32, u32> {
    let attachments = |one: &Process| {
        let pid = one.pid;
        one.attachments().into_iter().map(move |inode| (inode, pid))
    };
    let instances: HashMap<_, _> =
        all.iter().filter(|one| one.is_instance()).flat_map(attachments).collect();
    let programs = all.iter().filter(|one| one.is_programs()).flat_map(attachments);
    programs.filter_map(|(inode, pid)| Some((pid, *instances.get(&inode)?))).collect()
}

/// Kills all processes of the program in any order, and those that they start meanwhile.
pub(super) fn strike_program(hosts: &Hosts, dice: &mut Dice, deaths: &mut Deaths) -> Result<()> {
    loop {
        let mut left = processes(hosts)?;
        left.retain(Process::is_programs);
        if left.is_empty() {
            return Ok(());
        }
        dice.shuffle(&mut left);
        for one in left {
            deaths.strike(one.pid)?;
            thread::sleep(dice.time(GAP));
        }
    }
}
