//! Watching by eBPF.

use uncork_bpf::{Capability, Settings, Told, Tracer, has};
use uncork_doctor::live::{Event, Live};

use super::processes::{self, Owners};
use super::records::Records;
use super::stacks::Symbols;
use super::target::Target;
use super::{BOTH_TOLD, TURN, monotonic};
use crate::doctor::words;
use crate::failure::Failure;
use crate::output::complain;

/// Loads the programs and names the processes. The error is a sentence.
pub(super) fn start(target: &Target, stacks: bool) -> Result<Tracer, String> {
    let settings = Settings { stacks, ..Settings::default() };
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

/// Listens until the target is over.
pub(super) fn watch(
    mut tracer: Tracer,
    target: &mut Target,
    live: &mut Live,
    records: &mut Records,
) -> Result<Vec<String>, Failure> {
    let failed = |error: uncork_bpf::Error| Failure::unusable(error.to_string());
    target.start(records.variable())?;
    let mut watcher = Watcher::default();
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
    // Those that are left have their descriptors still.
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
    symbols: Symbols,
}

impl Watcher {
    /// Finds who has the socket while it is still there, and passes it on.
    fn hear(&mut self, told: Told, traced: &[u32], live: &mut Live) {
        let Told { mut event, stack } = told;
        let (ends, inode) = match &mut event {
            Event::Held(held) => {
                held.stack = self.symbols.name(held.writer.pid, &stack);
                (held.ends, held.inode)
            }
            Event::AckTimer(timer) => (timer.ends, timer.inode),
            Event::Socket(socket) => (socket.ends, socket.inode),
            Event::Lost(lost) => (lost.ends, 0),
        };
        let process = match &event {
            // It is gone, and there may be many of them.
            Event::Socket(_) => self.owners.known(inode),
            _ => self.owners.of(inode, traced),
        };
        live.event(event);
        if let Some(process) = process {
            live.process(ends, process);
        }
    }
}
