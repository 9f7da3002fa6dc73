//! `uncork tune`: options and messages. The changes, and how they are undone, are in `uncork-tune`.

mod arguments;
mod sink;
mod small;
mod verified;
mod words;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use uncork_tune::journal::Entry;
use uncork_tune::netns::Handle;
use uncork_tune::{
    Applied, Cure, Error, Journal, Plan, Request, Stray, apply, bpffs, check, journal, list,
    missing_after, missing_capabilities, missing_for_undoing, strays, undo, undo_all,
};

pub(crate) use arguments::Tune;
use arguments::{Places, TuneCommand};

use crate::failure::Failure;
use crate::output::{complain, print, shown};
use crate::pids;

/// Exit statuses besides those of [`Failure`].
const DONE: i32 = 0;

/// `uncork tune`.
pub(crate) fn tune(arguments: &Tune) -> Result<i32, Failure> {
    let places = &arguments.places;
    match &arguments.command {
        None => {
            let request = request(arguments)?;
            change(places, arguments.dry_run, |_| Plan::of(request))
        }
        Some(TuneCommand::SmallQueues(wanted)) => small::small_queues(places, wanted),
        Some(TuneCommand::Sink(sink)) => sink::take(sink.address),
        Some(TuneCommand::List(list)) => show(places, list.json),
        Some(TuneCommand::Undo(wanted)) => take_back(places, wanted.id),
    }
}

impl Places {
    fn journal(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| journal::DIRECTORY.into())
    }

    /// Returns the option that names the journal, for a command that has to find it.
    fn option(&self) -> String {
        let named = self.state.as_ref().map(|state| shown(&state.to_string_lossy()).into_owned());
        named.map(|state| format!(" --state {state}")).unwrap_or_default()
    }

    fn bpffs(&self) -> &Path {
        self.bpffs.as_deref().unwrap_or(Path::new(bpffs::DIRECTORY))
    }
}

fn request(arguments: &Tune) -> Result<Request, Failure> {
    let (given, scope) = (&arguments.cures, &arguments.scope);
    if given.quickack && (scope.pid.is_some() || scope.port.is_some() || scope.cgroup.is_some()) {
        return Err(Failure::unusable(
            "--quickack is set on routes, which cannot tell processes, ports or cgroups apart: name \
             the other ends by --peer instead",
        ));
    }
    if given.quickack && (scope.new || scope.live) {
        return Err(Failure::unusable(
            "--quickack is set on routes, which hold for new and present connections alike: leave \
             out --new and --live",
        ));
    }
    scope.pid.map_or(Ok(()), is_a_process)?;
    let cures = [
        given.nodelay.then_some(Cure::NoDelay),
        given.delack_max.map(Cure::DelackMax),
        given.notsent_lowat.map(Cure::NotsentLowat),
        given.rto_min.map(Cure::RtoMin),
        given.pacing.map(Cure::Pacing),
        given.congestion.clone().map(Cure::Congestion),
    ];
    Ok(Request {
        cures: cures.into_iter().flatten().collect(),
        quickack: given.quickack,
        pid: scope.pid,
        port: scope.port,
        peer: scope.peer,
        cgroup: scope.cgroup.clone(),
        netns: scope.netns.as_deref().map(Handle::named).transpose().map_err(failure)?,
        new: !scope.live,
        live: !scope.new,
    })
}

/// Checks that it is a process: the kernel shows threads, too, when asked for them by number.
fn is_a_process(pid: u32) -> Result<(), Failure> {
    if let Some(sentence) = pids::not_mounted() {
        return Err(Failure::unusable(sentence));
    }
    let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
        // It exists, but is hidden from this user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        status => status.unwrap_or_default(),
    };
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
    match process {
        Some(process) if process == pid.to_string() => Ok(()),
        Some(process) => Err(Failure::unusable(format!(
            "{pid} is a thread of process {process}: name that with --pid"
        ))),
        None => Err(Failure::unusable(format!("there is no process {pid}"))),
    }
}

/// Plans and makes changes while no other process does.
fn change(
    places: &Places,
    dry_run: bool,
    plan: impl FnOnce(&[Entry]) -> Result<Plan, Error>,
) -> Result<i32, Failure> {
    if dry_run {
        let plan = plan(&standing(places)?).map_err(failure)?;
        let prepared = plan.prepared(places.bpffs()).map_err(failure)?;
        print(&words::planned(&plan, &prepared))?;
        return Ok(if plan.left.is_empty() { DONE } else { Failure::LEFT });
    }
    // What can be found out without the privilege is reported without it.
    let (journal, mut plan) = match existing(places) {
        Ok(Some(journal)) => {
            let standing = journal.standing().map_err(failure)?;
            (Some(journal), plan(&standing).map_err(failure)?)
        }
        Ok(None) => (None, plan(&[]).map_err(failure)?),
        Err(error) if error.is_permission() => (None, plan(&[]).map_err(failure)?),
        Err(error) => return Err(failure(error)),
    };
    permitted(&missing_capabilities(&plan, places.bpffs()))?;
    let journal = match journal {
        Some(journal) => journal,
        None => {
            check(&mut plan, places.bpffs()).map_err(failure)?;
            first(places)?
        }
    };
    let applied = apply(&journal, plan, places.bpffs()).map_err(failure)?;
    print(&words::applied(&applied, &places.option())).inspect_err(|_| made(&applied))?;
    applied.left.iter().for_each(complain);
    Ok(if applied.left.is_empty() { DONE } else { Failure::LEFT })
}

/// Reports the changes on standard error where standard output fails.
fn made(applied: &Applied) {
    complain(format_args!("entry {} was made all the same", applied.id));
}

/// Opens the journal, if there is one: it is not created for a request that is refused.
fn existing(places: &Places) -> Result<Option<Journal>, Error> {
    let directory = places.journal();
    directory.exists().then(|| Journal::open(&directory)).transpose()
}

/// Creates a journal that did not exist at planning time: it must have no entries.
fn first(places: &Places) -> Result<Journal, Failure> {
    let journal = Journal::open(&places.journal()).map_err(failure)?;
    if journal.standing().map_err(failure)?.is_empty() {
        return Ok(journal);
    }
    Err(Failure::left(
        "somebody else has tuned something meanwhile, and nothing was changed: give the command \
         again",
    ))
}

/// Returns the entries of the journal, for a command that only reads it.
fn standing(places: &Places) -> Result<Vec<Entry>, Failure> {
    let journal = Journal::look(&places.journal()).map_err(failure)?;
    let standing = journal.map_or_else(|| Ok(Vec::new()), |journal| journal.standing());
    standing.map_err(failure)
}

fn show(places: &Places, json: bool) -> Result<i32, Failure> {
    let journal = Journal::look(&places.journal()).map_err(failure)?;
    let strays = strays(&places.journal(), journal.as_ref(), places.bpffs()).map_err(failure)?;
    let items = journal.map_or_else(|| Ok(Vec::new()), |journal| list(&journal));
    let (items, broken): (Vec<_>, Vec<_>) =
        items.map_err(failure)?.into_iter().partition(Result::is_ok);
    let items: Vec<_> = items.into_iter().flatten().collect();
    // What cannot be read may be in force.
    let all_is_known = broken.is_empty() && strays.is_empty();
    if json {
        let text = serde_json::to_string_pretty(&items);
        print(&(text.map_err(|error| Failure::left(error.to_string()))? + "\n"))?;
    } else if items.is_empty() && all_is_known {
        print(words::NOTHING)?;
    } else {
        print(&words::listed(&items))?;
    }
    for error in broken.iter().filter_map(|item| item.as_ref().err()) {
        complain(error);
    }
    strays.iter().for_each(|stray| complain(words::stray(stray, &places.option())));
    Ok(if all_is_known { DONE } else { Failure::LEFT })
}

fn take_back(places: &Places, id: Option<u32>) -> Result<i32, Failure> {
    let there = Journal::look(&places.journal()).map_err(failure)?;
    let strays = strays(&places.journal(), there.as_ref(), places.bpffs()).map_err(failure)?;
    let is_ours = |stray: &Stray| stray.state.is_none();
    match (&there, id) {
        (Some(_), _) => {}
        (None, Some(id)) => return Err(failure(Error::NoEntry(id))),
        (None, None) if !strays.iter().any(is_ours) => {
            return print("nothing to undo\n").map(|()| DONE);
        }
        (None, None) => {}
    }
    let missing = missing_for_undoing(there.as_ref(), id, &strays);
    permitted(&missing.map_err(failure)?)?;
    drop(there);
    let journal = Journal::open(&places.journal()).map_err(failure)?;
    let all = match id {
        Some(id) => match undo(&journal, id) {
            Err(error) if error.is_absent() => return Err(failure(error)),
            undone => vec![(id, undone)],
        },
        None => undo_all(&journal, places.bpffs()).map_err(failure)?,
    };
    if all.is_empty() {
        print("nothing to undo\n")?;
    }
    let mut code = DONE;
    for (id, undone) in all {
        match undone {
            Ok(undone) => {
                print(&words::undone(id, &undone))?;
                undone.left.iter().for_each(complain);
                undone.failed.iter().for_each(complain);
                if !(undone.left.is_empty() && undone.failed.is_empty()) {
                    code = Failure::LEFT;
                }
            }
            Err(error) => {
                complain(&error);
                code = Failure::LEFT;
            }
        }
    }
    Ok(code)
}

/// Says which capabilities are missing, and the command that has them.
fn permitted(missing: &[&str]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    let (names, command) = (missing.join(", "), as_root());
    Err(Failure::no_permission(format!("this needs {names}, which this process lacks: {command}")))
}

/// Returns this command as a user with every capability enters it.
fn as_root() -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| "uncork".into());
    let line: Vec<_> = std::env::args_os()
        .skip(1)
        .map(|word| shown(&word.to_string_lossy()).into_owned())
        .collect();
    format!("sudo {} {}", own.display(), line.join(" "))
}

fn failure(error: Error) -> Failure {
    let sentence = error.to_string();
    if error.is_permission() {
        denied(&sentence, &missing_after(&error))
    } else if error.is_absent() {
        Failure::unusable(sentence)
    } else {
        Failure::left(sentence)
    }
}

/// Says what the system does not permit, and the capabilities that may be missing for it.
fn denied(sentence: &str, missing: &[&str]) -> Failure {
    let why = if missing.is_empty() {
        "this process has the capability for it, so a security module or a user namespace forbids \
         it"
        .to_owned()
    } else {
        format!("this needs {}, which this process lacks: {}", missing.join(", "), as_root())
    };
    Failure::no_permission(format!("{sentence}; {why}"))
}
