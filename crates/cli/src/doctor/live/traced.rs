//! Watching by eBPF.

use uncork_bpf::{Capability, Settings, Told, Tracer, has};
use uncork_doctor::live::{Event, Live};

use super::commands::Commands;
use super::processes::{self, Owners};
use super::records::Records;
use super::stacks::Stacks;
use super::target::Target;
use super::{BOTH_TOLD, TURN, monotonic};
use crate::doctor::words;
use crate::failure::Failure;
use crate::output::complain;

/// Loads the programs and names the processes to them. The error is a sentence.
pub(super) fn start(target: &Target, settings: Settings) -> Result<Tracer, String> {
    let begin = || -> Result<Tracer, uncork_bpf::Error> {
        let tracer = Tracer::start(settings)?;
        for pid in processes::trees(&target.pids) {
            tracer.trace(pid)?;
        }
        if target.is_command() {
            tracer.trace_children_of(std::process::id())?;
        }
        tracer.find_open()?;
        Ok(tracer)
    };
    let tracer = begin().map_err(|error| {
        format!("{error}; going on without tracing: the sockets are looked at again and again")
    })?;
    for absent in tracer.absent() {
        complain(absent);
        if absent.hook.target == uncork_bpf::Target::SetSockOpt && !has(Capability::NetAdmin) {
            complain(format_args!("that needs {}", Capability::NetAdmin));
        }
    }
    Ok(tracer)
}

/// Takes in events until the target is over.
pub(super) fn watch(
    mut tracer: Tracer,
    target: &mut Target,
    live: &mut Live,
    records: &mut Records,
) -> Result<Vec<String>, Failure> {
    let failed = |error: uncork_bpf::Error| Failure::unusable(error.to_string());
    target.start(records.variable())?;
    let mut watcher = Watcher::default();
    processes::trees(&target.pids).into_iter().for_each(|pid| watcher.meet(pid, live));
    for pid in &target.pids {
        processes::listening(*pid).into_iter().for_each(|port| live.listening(port));
    }
    while !target.is_over() {
        let told = tracer.poll(TURN).map_err(failed)?;
        let traced = tracer.traced();
        records.look(&traced);
        if !told.is_empty() {
            told.into_iter().for_each(|told| watcher.hear(told, &traced, live));
        }
        live.forget(monotonic().saturating_sub(BOTH_TOLD));
    }
    let traced = tracer.traced();
    // The processes that are left still have their descriptors.
    traced.iter().for_each(|pid| watcher.owners.look_into(*pid));
    let rest = tracer.finish().map_err(failed)?;
    rest.events.into_iter().for_each(|told| watcher.hear(told, &traced, live));
    if rest.dropped > 0 {
        complain(format_args!(
            "{} lost: more was told than could be listened to, and the figures are too small",
            words::counted(rest.dropped, "event was", "events were")
        ));
    }
    if rest.refused > 0 {
        complain(format_args!(
            "{} could not be traced: the kernel had no memory for that",
            words::counted(rest.refused, "connection", "connections")
        ));
    }
    Ok(Vec::new())
}

#[derive(Default)]
struct Watcher {
    owners: Owners,
    stacks: Stacks,
    commands: Commands,
}

impl Watcher {
    fn hear(&mut self, told: Told, traced: &[u32], live: &mut Live) {
        match told {
            Told::Event { event, place } => self.event(event, place, traced, live),
            Told::Stack(stack) => self.stacks.told(&stack),
            Told::Program { pid, arguments } => {
                self.commands.executed(pid, &arguments).tell(pid, live);
            }
        }
    }

    /// Reads how a process was started, while it still exists.
    fn meet(&mut self, pid: u32, live: &mut Live) {
        if let Some(started) = self.commands.met(pid) {
            started.tell(pid, live);
        }
    }

    /// Finds the socket's owner while that still exists, and passes the event on.
    fn event(&mut self, mut event: Event, place: Option<u64>, traced: &[u32], live: &mut Live) {
        let (ends, inode, pids) = match &mut event {
            Event::Held(held) => {
                held.stack = place.map(|place| self.stacks.at(place)).unwrap_or_default();
                (held.ends, held.inode, [held.writer.pid, 0])
            }
            Event::AckTimer(timer) => (timer.ends, timer.inode, [0, 0]),
            Event::Socket(socket) => {
                (socket.ends, socket.inode, [socket.writer.pid, socket.owner.pid])
            }
            Event::Lost(lost) => (lost.ends, 0, [0, 0]),
        };
        let process = match &event {
            // The socket is gone, and there may be many of them.
            Event::Socket(_) => self.owners.known(inode),
            _ => self.owners.of(inode, traced),
        };
        let owner = process.as_ref().map(|process| process.pid);
        pids.into_iter().chain(owner).for_each(|pid| self.meet(pid, live));
        live.event(event);
        if let Some(process) = process {
            live.process(ends, process);
        }
    }
}
