//! The kill.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_e2e::{Daemon, Hosts};

use super::dice::Dice;
use super::remains::{Process, processes};

/// Between one kill and the next of the same program, at the most.
const GAP: Duration = Duration::from_millis(5);
/// Between the program's death and the guardian's: as often as not hardly anything.
const GAPS: [Duration; 2] = [Duration::from_micros(1), Duration::from_millis(20)];

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victim {
    /// Of a program with one process: that one.
    Worker,
    /// Its first process; nginx's workers go on without theirs.
    Master,
    /// All its processes, one by one.
    Program,
    Guardian,
    /// The guardian's: nobody is to notice.
    Heir,
    GuardianThenProgram,
    ProgramThenGuardian,
}

pub(super) const VICTIMS: [Victim; 7] = [
    Victim::Worker,
    Victim::Master,
    Victim::Program,
    Victim::Guardian,
    Victim::Heir,
    Victim::GuardianThenProgram,
    Victim::ProgramThenGuardian,
];

impl Victim {
    fn is_all_of_program(self) -> bool {
        matches!(self, Self::Program | Self::GuardianThenProgram | Self::ProgramThenGuardian)
    }
}

/// Who was killed, and when.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    processes: HashMap<u32, Instant>,
    pub(super) guardian: Option<Instant>,
}

impl Deaths {
    /// Since when there is nobody who could go on with a connection: its process is dead, or the guardian, without whom
    /// the kernel has all.
    pub(super) fn doom(&self, owner: Option<u32>) -> Option<Instant> {
        let owners = owner.and_then(|pid| self.processes.get(&pid).copied());
        owners.into_iter().chain(self.guardian).min()
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.processes.values().copied().min()
    }

    fn strike(&mut self, pid: u32) -> Result<()> {
        let now = Instant::now();
        // Who has ended by himself, as nginx's workers may, needs no kill.
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

/// Kills what is to be killed.
pub(super) fn strike(
    hosts: &Hosts,
    daemon: &Daemon,
    victim: Victim,
    dice: &mut Dice,
) -> Result<Deaths> {
    let mut deaths = Deaths::default();
    let all = processes(hosts)?;
    let find = |is: fn(&Process) -> bool| all.iter().find(|one| is(one)).map(|one| one.pid);
    let guardian = find(Process::is_guardian).context("no guardian")?;
    let heir = find(Process::is_heir).context("no heir")?;
    let mut program: Vec<_> = all.iter().filter(|one| one.is_programs()).cloned().collect();
    dice.shuffle(&mut program);
    let longest = dice.pick(&GAPS);
    let gap = dice.time(longest);
    match victim {
        Victim::Worker => {
            let worker = program.iter().find(|one| one.is_worker());
            deaths.strike(worker.map_or(daemon.pid(), |worker| worker.pid))?;
        }
        Victim::Master => deaths.strike(daemon.pid())?,
        Victim::Program => {}
        Victim::Guardian => deaths.strike_guardian(guardian)?,
        Victim::Heir => deaths.strike(heir)?,
        Victim::GuardianThenProgram => {
            deaths.strike_guardian(guardian)?;
            thread::sleep(gap);
            deaths.strike_all(&program)?;
        }
        Victim::ProgramThenGuardian => {
            deaths.strike_all(&program)?;
            thread::sleep(gap);
            deaths.strike_guardian(guardian)?;
        }
    }
    if victim.is_all_of_program() {
        strike_program(hosts, dice, &mut deaths)?;
    }
    Ok(deaths)
}

/// Kills each of the program's processes, in any order, and those that the others start meanwhile.
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
