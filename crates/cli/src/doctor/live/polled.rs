//! Watching without privilege: the kernel's counters of each socket are polled. A stall is seen if
//! it is longer than the interval, and is as exact as that.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use uncork_doctor::Sampling;
use uncork_doctor::live::{Event, Live};
use uncork_sockdiag::{Answer, SockDiag};

mod seen;
mod told;

use super::commands::Commands;
use super::monotonic;
use super::opened::opened;
use super::pace::Pace;
use super::processes::{self, Owners};
use super::records::Records;
use super::target::Target;
use crate::doctor::words;
use crate::failure::Failure;
use seen::Seen;
use told::{limits, missed};

/// Between two searches for new processes and descriptors, unless a new socket appears.
const BETWEEN_SEARCHES: Duration = Duration::from_millis(200);
/// Searching takes one part in so many of the time.
const SEARCH_SHARE: u32 = 10;
/// Sockets whose options are read in one search.
const ASKED: usize = 256;

/// Polls until the target is over. Returns remarks on what was seen, in sentences.
pub(super) fn watch(
    target: &mut Target,
    live: &mut Live,
    records: &mut Records,
) -> Result<Vec<String>, Failure> {
    let cannot = |error: io::Error| {
        Failure::no_permission(format!("nothing is left to look at: sock_diag: {error}"))
    };
    let mut kernel = SockDiag::open().map_err(cannot)?;
    let mut watched = Watched::default();
    // The owners of sockets are looked up when they are needed.
    let first = kernel.connections().map_err(cannot)?;
    watched.strangers = first.iter().map(|answer| answer.inode).collect();
    watched.known = first.iter().map(|answer| answer.cookie).collect();
    let mut notes = unseen(&target.pids)?;
    target.announce("looking at");
    live.sampled(Sampling::default());
    watched.search(&target.pids);
    let before = opened();
    target.start(records.variable())?;
    let (mut pace, mut paces_of_all) = (Pace::default(), Pace::default());
    let mut due = Instant::now();
    let mut commands = Commands::default();
    while !target.is_over() {
        let begin = Instant::now();
        let mut rest = Pace::rest(Duration::ZERO);
        if begin >= due {
            pace.begin(monotonic());
            paces_of_all.begin(monotonic());
            let answers = kernel.connections().map_err(cannot)?;
            due = Instant::now() + Pace::rest(begin.elapsed());
            if watched.find_owners(&answers, &target.pids) {
                let ports = kernel.listening().map_err(cannot)?;
                ports.into_iter().for_each(|port| live.listening(port));
            }
            watched.look(answers, live);
        } else if !watched.sockets.is_empty() {
            // With many connections, a query for all of them takes long.
            pace.begin(monotonic());
            watched.look_at_ours(&mut kernel, live).map_err(cannot)?;
            rest = Pace::rest(begin.elapsed());
        }
        records.look(&watched.tree);
        for pid in &watched.tree {
            if let Some(started) = commands.met(*pid) {
                started.tell(*pid, live);
            }
        }
        live.forget(monotonic().saturating_sub(super::BOTH_TOLD));
        // Searching and reading records have intervals of their own.
        std::thread::sleep(rest);
    }
    pace.begin(monotonic());
    paces_of_all.begin(monotonic());
    watched.look(kernel.connections().map_err(cannot)?, live);
    let opened = opened().zip(before).map(|(after, before)| after.saturating_sub(before));
    let sampling = pace.sampling();
    live.sampled(sampling);
    let all = paces_of_all.sampling();
    notes.splice(..0, limits(&sampling, &all));
    notes.extend(missed(&all, opened, &watched));
    notes.extend(watched.refused());
    watched.finish(live);
    Ok(notes)
}

/// Returns what cannot be seen of the named processes; a failure if that is all of them.
fn unseen(pids: &[u32]) -> Result<Vec<String>, Failure> {
    let why = |pid: &u32| {
        if !processes::may_see(*pid) {
            return Some(format!(
                "the descriptors of process {pid} may not be seen; run it as that process's user, \
                 or as root"
            ));
        }
        processes::is_elsewhere(*pid).then(|| {
            format!(
                "process {pid} is in another network namespace, whose sockets do not show here; \
                 run `nsenter --net --target {pid} uncork doctor --pid {pid}` as root"
            )
        })
    };
    let unseen: Vec<String> = pids.iter().filter_map(why).collect();
    match unseen.first() {
        Some(why) if unseen.len() == pids.len() => {
            Err(Failure::no_permission(format!("nothing is left to look at: {why}")))
        }
        _ => Ok(unseen.iter().map(|why| format!("Not looked at: {why}.")).collect()),
    }
}

#[derive(Default)]
struct Watched {
    /// The watched processes, as of the last search.
    tree: Vec<u32>,
    /// Those of them whose descriptors may not be read.
    closed: HashSet<u32>,
    /// Inodes of their sockets, and of all others that were seen.
    owners: HashSet<u64>,
    strangers: HashSet<u64>,
    processes: Owners,
    sockets: HashMap<u64, Seen>,
    /// Sockets of any process that were there at the last poll, and how many have appeared since the first.
    known: HashSet<u64>,
    new: u64,
    /// Sockets that were new at the last poll and belong to no watched process; and how many such
    /// were gone at the next poll.
    fresh: HashSet<u64>,
    brief: u64,
    search: Option<Instant>,
    /// The earliest time of the next search, which takes a while where there are many processes.
    earliest: Option<Instant>,
}

impl Watched {
    /// Searches if there is a new socket whose owner is not known, and now and then: a process may
    /// be passed a socket. Returns whether it searched.
    fn find_owners(&mut self, answers: &[Answer], pids: &[u32]) -> bool {
        let unknown: Vec<u64> = answers
            .iter()
            .map(|answer| answer.inode)
            .filter(|inode| *inode != 0)
            .filter(|inode| !self.owners.contains(inode) && !self.strangers.contains(inode))
            .collect();
        let now = Instant::now();
        let due = self.search.is_none_or(|last| now - last >= BETWEEN_SEARCHES);
        let allowed = self.earliest.is_none_or(|earliest| now >= earliest);
        if !allowed || (unknown.is_empty() && !due) {
            return false;
        }
        self.search(pids);
        // The inodes of closed sockets would pile up.
        if self.strangers.len() > 4 * answers.len() + 1024 {
            self.strangers = answers.iter().map(|answer| answer.inode).collect();
        }
        self.strangers.extend(unknown);
        self.ask_options();
        (self.search, self.earliest) =
            (Some(Instant::now()), Some(Instant::now() + now.elapsed() * SEARCH_SHARE));
        true
    }

    fn search(&mut self, pids: &[u32]) {
        // Processes whose parent has ended are now children of another.
        let orphans = self.tree.iter().filter(|pid| processes::exists(**pid));
        let roots: Vec<u32> = pids.iter().chain(orphans).copied().collect();
        self.tree = processes::trees(&roots);
        for pid in self.tree.clone() {
            if !processes::may_see(pid) {
                if processes::is_of_another(pid) && !pids.contains(&pid) {
                    self.closed.insert(pid);
                }
                continue;
            }
            let sockets = processes::sockets(pid);
            let before = self.owners.len();
            self.owners.extend(sockets.into_iter().map(|(inode, _)| inode));
            if self.owners.len() > before {
                self.processes.look_into(pid);
            }
        }
    }

    fn ask_options(&mut self) {
        for seen in self.sockets.values_mut().take(ASKED) {
            seen.ask(&self.processes);
        }
    }

    /// Names the processes whose descriptors may not be read, in a sentence.
    fn refused(&self) -> Option<String> {
        let mut closed: Vec<_> = self.closed.iter().collect();
        closed.sort_unstable();
        let first = closed.first()?;
        let others = match closed.len() - 1 {
            0 => String::new(),
            others => format!(" and of {}", words::count(others as u64, "other")),
        };
        Some(format!(
            "The sockets of process {first}{others} were not looked at: they belong to another \
             user."
        ))
    }

    fn look(&mut self, answers: Vec<Answer>, live: &mut Live) {
        let now = monotonic();
        let all: HashSet<u64> = answers.iter().map(|answer| answer.cookie).collect();
        self.new += all.difference(&self.known).count() as u64;
        self.brief += self.fresh.difference(&all).count() as u64;
        let fresh = answers.iter().filter(|answer| {
            !self.known.contains(&answer.cookie) && !self.owners.contains(&answer.inode)
        });
        self.fresh = fresh.map(|answer| answer.cookie).collect();
        self.known = all;
        let mut present = HashSet::new();
        for answer in answers {
            let listened = self.sockets.contains_key(&answer.cookie);
            if !listened && !self.owners.contains(&answer.inode) {
                continue;
            }
            present.insert(answer.cookie);
            self.look_at(answer, now, live);
        }
        let gone: Vec<u64> =
            self.sockets.keys().filter(|cookie| !present.contains(cookie)).copied().collect();
        for cookie in gone {
            self.end(cookie, live);
        }
    }

    fn look_at(&mut self, answer: Answer, now: Duration, live: &mut Live) {
        let seen = self.sockets.entry(answer.cookie).or_insert_with(|| Seen::new(&answer, now));
        let new = seen.since == now;
        let held = seen.look(answer.info, now, answer.cookie);
        if new || held.is_some() {
            seen.ask(&self.processes);
        }
        held.into_iter().for_each(|held| live.event(Event::Held(held)));
    }

    /// Polls the known sockets, and no others.
    fn look_at_ours(&mut self, kernel: &mut SockDiag, live: &mut Live) -> io::Result<()> {
        let names = self.sockets.iter().map(|(cookie, seen)| (*cookie, seen.name.clone()));
        for (cookie, name) in names.collect::<Vec<_>>() {
            match kernel.connection(&name)? {
                Some(answer) => self.look_at(answer, monotonic(), live),
                None => self.end(cookie, live),
            }
        }
        Ok(())
    }

    fn end(&mut self, cookie: u64, live: &mut Live) {
        let Some(seen) = self.sockets.remove(&cookie) else { return };
        let process = self.processes.known(seen.inode);
        let (ends, nodelay) = (seen.ends, seen.nodelay);
        live.event(Event::Socket(Box::new(seen.told(cookie, process.as_ref()))));
        if let Some(process) = process {
            live.process(ends, process);
        }
        if let Some(on) = nodelay {
            live.nodelay(ends, on);
        }
    }

    fn finish(&mut self, live: &mut Live) {
        self.ask_options();
        let left: Vec<u64> = self.sockets.keys().copied().collect();
        left.into_iter().for_each(|cookie| self.end(cookie, live));
    }
}
