//! SIGKILL of what serves on the stack: the program, one of its workers, the guardian, in any order
//! and at any instant, with connected peers that talk, download, rest, or have only connected.
//!
//! A peer that loses its connection hears of that at once, the others are served on, nothing is
//! left, and the next start works.

mod all_at_once;
mod at_once;
mod dice;
mod heard;
mod held_up;
mod lane;
mod peers;
pub(crate) mod remains;
mod strike;
mod unclean;
mod waited;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, end};
use uncork_e2e::skip::note;
use uncork_e2e::{Daemon, alone, soak};

use crate::on_stack::{lacks, wait_until};
use dice::Dice;
use heard::Heard;
use lane::{Lane, PORT, Server};
use peers::{Peer, Watch, come_and_go};
use remains::{Process, Remains, processes};
use strike::{ATTACHED, Deaths, OWN, Victims, Who, strike, strike_program};

const NEEDED: [(&str, &str); 3] =
    [("nginx", "nginx-light"), ("redis-server", "redis-server"), ("python3", "python3")];
/// Names the seed of all random choices; the default is a new one for a soak, else a fixed one.
const SEED: &str = "UNCORK_E2E_SEED";
/// Guardians stay for some seconds after their programs; meanwhile other hosts have their kills.
const LANES: usize = 7;
/// A peer that has heard nothing by then never will: no TCP timer is that long here.
const NEVER: Duration = Duration::from_secs(5);
/// The longest load before a kill.
const LOAD: Duration = Duration::from_millis(100);
/// How long the peers that have lost nothing are watched after the kill.
const AFTER: Duration = Duration::from_millis(50);

/// The seed of a run, and what it has found so far.
struct Run<'a> {
    seed: u64,
    victims: &'a [Victims],
    heard: Mutex<Heard>,
    /// Keeps other rounds away from what is measured.
    alone: Mutex<()>,
}

#[test]
fn a_kill_leaves_peers_waiting_or_something_behind() -> Result<()> {
    kill_all(&OWN, 0)
}

#[test]
fn a_kill_leaves_peers_of_an_instance_waiting_or_something_behind() -> Result<()> {
    kill_all(&ATTACHED, 2)
}

/// Kills each of these in turn, with the programs on this many instances.
fn kill_all(victims: &[Victims], instances: u32) -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let kills = if soak() { 500 } else { victims.len() as u64 };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let named = std::env::var(SEED).ok().map(|seed| seed.parse()).transpose()?;
    let seed = named.unwrap_or(if soak() { u64::from(now.subsec_nanos()) } else { 1 });
    let run = Run { seed, victims, heard: Mutex::default(), alone: Mutex::default() };
    let (next, failed) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let lane = |number: usize| {
        let lane = Lane::new(&alone, number, instances)?;
        loop {
            let round = next.fetch_add(1, Relaxed);
            if round >= kills || failed.load(Relaxed) {
                return Ok(());
            }
            run.round(&lane, round).inspect_err(|_| failed.store(true, Relaxed))?;
        }
    };
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let lane = &lane;
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, _>| {
            lane.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        };
        lanes.into_iter().map(join).collect()
    });
    let heard = run.heard.into_inner().unwrap_or_else(PoisonError::into_inner);
    note(&heard.to_string());
    outcomes.into_iter().collect::<Result<()>>()?;
    heard.check()
}

impl Run<'_> {
    fn round(&self, lane: &Lane, number: u64) -> Result<()> {
        let mut dice = Dice::new(self.seed, number);
        let server = dice.pick(&[Server::Nginx, Server::Nginx, Server::Redis, Server::Python]);
        let victims = self.victims[usize::try_from(number)? % self.victims.len()];
        let what = || format!("round {number} of {SEED}={}: {server:?}, {victims:?}", self.seed);
        let mut remains = Remains::default();
        {
            let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            let scene = Scene { lane, server, victims, heard: &self.heard };
            lane.begin().with_context(what)?;
            scene.play(&mut dice, &mut remains).with_context(what)?;
            lane.begin().with_context(what)?;
            scene.start_again(&mut remains).with_context(what)?;
        }
        remains.check(&lane.hosts, PORT).with_context(what)
    }
}

/// One kill.
struct Scene<'a> {
    lane: &'a Lane,
    server: Server,
    victims: Victims,
    heard: &'a Mutex<Heard>,
}

impl Scene<'_> {
    fn play(&self, dice: &mut Dice, remains: &mut Remains) -> Result<()> {
        let daemon = self.lane.start(self.server)?;
        let mut peers = self.lane.peers(self.server, &daemon)?;
        remains.note(&self.lane.hosts)?;
        let (watch, over) = (Watch::of(&peers)?, AtomicBool::new(false));
        thread::scope(|scope| {
            let watching = scope.spawn(|| watch.look(&over));
            let done = self.play_before(&watch, &daemon, &mut peers, dice);
            over.store(true, Relaxed);
            watching.join().map_err(|_| anyhow!("a thread panicked"))??;
            done
        })
    }

    /// The kill, what is left of the program, and its end.
    fn play_before(
        &self,
        watch: &Watch,
        daemon: &Daemon,
        peers: &mut [Peer],
        dice: &mut Dice,
    ) -> Result<()> {
        let mut deaths = self.strike_under_load(watch, daemon, peers, dice)?;
        if self.goes_on() {
            for (at, peer) in peers.iter_mut().enumerate() {
                let what = || format!("a peer who {:?}, of {:?}", peer.does, peer.owner);
                if watch.ends()[at].is_some() {
                    continue;
                }
                if deaths.has_lost(peer.owner) {
                    peer.hears_of_the_end().with_context(what)?;
                } else {
                    let what = what();
                    peer.is_served(&self.lane.wanted).context(what)?;
                }
            }
            let new = self.lane.talk(self.server)?.get("small", &self.lane.wanted);
            new.context("one who comes after the kill")?;
        }
        let (before, hosts) = (watch.ends(), &self.lane.hosts);
        if self.victims == [Who::Heir] {
            // Another heir takes its place.
            let is_there = || Ok(processes(hosts)?.iter().any(Process::is_heir));
            wait_until("the guardian has another heir", is_there)?;
            deaths = strike(hosts, daemon, &[Who::Program, Who::Guardian], dice)?;
        }
        strike_program(hosts, dice, &mut deaths)?;
        let left = (0..peers.len()).filter(|at| before[*at].is_none());
        let hears = |at: &usize| {
            let Peer { does, owner, .. } = peers[*at];
            owner.is_none() || deaths.doom(does, owner).is_some()
        };
        let (hear, read): (Vec<_>, Vec<_>) = left.partition(hears);
        watch.wait(&hear, NEVER);
        self.judge(watch, peers, hear, &deaths)?;
        read.into_iter().try_for_each(|at| peers[at].hears_of_the_end())
    }

    /// Kills while all peers are active, and waits until those have heard that are to.
    fn strike_under_load(
        &self,
        watch: &Watch,
        daemon: &Daemon,
        peers: &mut [Peer],
        dice: &mut Dice,
    ) -> Result<Deaths> {
        let all: Vec<_> = peers.iter().map(|peer| (peer.does, peer.owner)).collect();
        let (stop, hosts, wanted) = (AtomicBool::new(false), &self.lane.hosts, &self.lane.wanted);
        let to = end(OURS, PORT)?;
        let (deaths, talked, came) = thread::scope(|scope| {
            let talk = |peer| scope.spawn(|| Peer::go_on(peer, wanted, &stop));
            let talks: Vec<_> = peers.iter_mut().map(talk).collect();
            let comes = scope.spawn(|| come_and_go(hosts, to, &stop));
            thread::sleep(dice.time(LOAD));
            let deaths = strike(hosts, daemon, self.victims, dice);
            if let Ok(deaths) = &deaths {
                let all = all.iter().enumerate();
                let doomed = all.filter(|(_, (does, owner))| deaths.doom(*does, *owner).is_some());
                watch.wait(&doomed.map(|(at, _)| at).collect::<Vec<_>>(), NEVER);
                thread::sleep(AFTER);
            }
            stop.store(true, Relaxed);
            let talked: Vec<_> = talks.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (deaths, talked, comes.join())
        });
        let deaths = deaths?;
        came.map_err(|_| anyhow!("a thread panicked"))??;
        let ends = watch.ends();
        let mut over = Vec::new();
        for ((at, peer), talked) in peers.iter().enumerate().zip(talked) {
            let talked = talked.map_err(|_| anyhow!("a thread panicked"))?;
            // Before a peer has said anything, only its end tells which process has its connection.
            let is_doomed = deaths.doom(peer.does, peer.owner).is_some();
            if is_doomed || (peer.owner.is_none() && ends[at].is_some()) {
                over.push(at);
            } else {
                let Peer { does, owner, .. } = peer;
                let what = || format!("nobody has killed a peer's who {does:?}, of {owner:?}");
                talked.with_context(what)?;
                let is_right = ends[at].is_none_or(|end| deaths.may_end(*owner, end));
                ensure!(is_right, "{}: {:?}, {deaths:?}", what(), ends[at]);
            }
        }
        self.judge(watch, peers, over, &deaths)?;
        Ok(deaths)
    }

    /// Returns whether the kill leaves a process that serves.
    fn goes_on(&self) -> bool {
        let processes = [Who::Worker, Who::Master];
        let is_alone = processes.iter().any(|who| self.victims.contains(who));
        let has_others = !is_alone || self.server == Server::Nginx;
        has_others && !self.victims.contains(&Who::Program)
    }

    /// Fails if one of these peers has not heard, or has heard before there was anything to hear.
    fn judge(
        &self,
        watch: &Watch,
        peers: &[Peer],
        which: impl IntoIterator<Item = usize>,
        deaths: &Deaths,
    ) -> Result<()> {
        let ends = watch.ends();
        let mut wrong = Vec::new();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        for at in which {
            let Peer { does, owner, talk } = &peers[at];
            // With several possible deaths it is known that the peer has heard, not how soon.
            let is_known = owner.is_some() || self.victims == [Who::Guardian];
            let doom = if is_known { deaths.doom(*does, *owner) } else { deaths.first() };
            let doom = doom.context("nobody was killed")?;
            let took = ends[at].map(|end| (end.at.checked_duration_since(doom), end.is_reset));
            match took {
                Some((Some(_), _)) if !is_known => {}
                Some((None, _)) if ends[at].is_some_and(|end| deaths.may_end(*owner, end)) => {}
                Some((Some(took), is_reset)) => heard.note(self.victims, *does, took, is_reset),
                Some((None, _)) => wrong.push(format!("{does:?}, of {owner:?}: too early")),
                None => wrong.push(format!("{does:?}, of {owner:?}: never, {:?}", talk.stream())),
            }
        }
        ensure!(wrong.is_empty(), "peers have heard of the kill:\n{}", wrong.join("\n"));
        Ok(())
    }

    fn start_again(&self, remains: &mut Remains) -> Result<()> {
        let daemon = self.lane.start(self.server).context("the next start")?;
        let mut talk = self.lane.talk(self.server)?;
        talk.get("small", &self.lane.wanted)?;
        self.lane.hosts.check_on_stack(talk.stream())?;
        remains.note(&self.lane.hosts)?;
        // The server would wait for this connection's FIN.
        drop(talk);
        daemon.stop(Signal::SIGTERM)?;
        Ok(())
    }
}
