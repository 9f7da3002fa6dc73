//! `uncork tune small-queues`.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use uncork_tune::netns::Handle;
use uncork_tune::small_queues::{self, Rate, Request};
use uncork_tune::{
    Applied, Journal, Plan, apply, missing_after, missing_capabilities, missing_for_ping, undo,
};
use uncork_verify::{BUSY_SHARE, Load, Seen, Times, Watch, judge, rounds};

use super::arguments::{Places, SmallQueues};
use super::{change, denied, failure, made, permitted, standing, verified, words};
use crate::failure::Failure;
use crate::lab::{INTERRUPTED, stopped_by_signals};
use crate::output::{complain, print};

/// How long a load is observed for its rate and the number of its senders.
const LOOK: Duration = Duration::from_secs(1);
/// From a change to the next measurement: some dozen round trips, during which a queue of the usual
/// size empties or fills.
const SETTLE: Duration = Duration::from_secs(1);
/// Number of measurements without and with the settings.
const ROUNDS: usize = 3;

pub(super) fn small_queues(places: &Places, wanted: &SmallQueues) -> Result<i32, Failure> {
    let netns = wanted.netns.as_deref().map_or_else(Handle::own, Handle::named).map_err(failure)?;
    let stop = stopped_by_signals()?;
    if wanted.verify {
        alone(places, wanted, &netns)?;
    }
    let _load = wanted.load.as_deref().map(|to| load(wanted, &netns, to)).transpose()?;
    let ping = wanted.ping.as_deref().map(ipv4).transpose()?;
    let mut watch = Watch::open(&netns, &wanted.dev, ping).map_err(|error| own(&error))?;
    if let Some(host) = &wanted.ping
        && !watch.is_answered(&stop).map_err(|error| unseen(&error, &stop))?
    {
        return Err(Failure::left(verified::silent(host, &wanted.dev)));
    }
    let seen = look(wanted, &netns, &mut watch, &stop)?;
    if wanted.verify && !seen.as_ref().is_some_and(|seen| seen.busy_share >= BUSY_SHARE) {
        return Err(Failure::left(verified::no_load(wanted, seen.as_ref())));
    }
    let request = request(wanted, netns, seen.as_ref())?;
    if wanted.verify {
        verify(places, wanted, &request, &mut watch, &stop)
    } else {
        change(places, wanted.dry_run, |standing| small_queues::plan(&request, standing))
    }
}

/// Checks that no settings are in force that the measurement without settings would include.
fn alone(places: &Places, wanted: &SmallQueues, netns: &Handle) -> Result<(), Failure> {
    let standing = standing(places)?;
    match small_queues::standing_on(netns, &wanted.dev, &standing).map_err(failure)? {
        None => Ok(()),
        Some(id) => Err(Failure::left(format!(
            "entry {id} keeps the queue of {} short already, so that what it was without cannot be \
             measured; nothing was changed: uncork tune undo {id}{} first",
            wanted.dev,
            places.option()
        ))),
    }
}

/// Observes the load if that is needed and there is one.
fn look(
    wanted: &SmallQueues,
    netns: &Handle,
    watch: &mut Watch,
    stop: &AtomicBool,
) -> Result<Option<Seen>, Failure> {
    let known = small_queues::known_rate(netns, &wanted.dev).map_err(failure)?.is_some();
    let all_is_known = (known || wanted.rate.is_some()) && wanted.senders.is_some();
    if !wanted.verify && all_is_known {
        return Ok(None);
    }
    if !wanted.verify && !watch.is_busy().map_err(|error| own(&error))? {
        return Ok(None);
    }
    watch.look(LOOK, stop).map(Some).map_err(|error| unseen(&error, stop))
}

/// Says why the load was not observed, before anything was changed.
fn unseen(error: &anyhow::Error, stop: &AtomicBool) -> Failure {
    if stop.load(Relaxed) { interrupted() } else { own(error) }
}

fn interrupted() -> Failure {
    Failure::ended_by(INTERRUPTED, "interrupted: all is as it was")
}

fn request(wanted: &SmallQueues, netns: Handle, seen: Option<&Seen>) -> Result<Request, Failure> {
    let busy = seen.filter(|seen| seen.busy_share >= BUSY_SHARE);
    let said = |bytes_per_second| Rate { bytes_per_second, source: "--rate".to_owned() };
    let mut rate = wanted.rate.map(said);
    if rate.is_none() {
        let known = small_queues::known_rate(&netns, &wanted.dev).map_err(failure)?;
        rate = known.or_else(|| busy.and_then(measured));
    }
    Ok(Request {
        device: wanted.dev.clone(),
        target: wanted.target,
        rate,
        senders: wanted.senders.or_else(|| busy.and_then(Seen::bulk_senders)),
        pace: wanted.pace,
        netns,
    })
}

/// Returns the rate of a device that does not know it: what was sent over it while more was waiting.
fn measured(seen: &Seen) -> Option<Rate> {
    let senders = seen.bulk_senders()?;
    let who = if senders == NonZeroU32::MIN { "connection" } else { "connections" };
    let source =
        format!("measured: it sent so much while {senders} {who} had more; --rate overrides");
    Some(Rate { bytes_per_second: seen.link_bytes_per_second(), source })
        .filter(|rate| rate.bytes_per_second > 0)
}

fn verify(
    places: &Places,
    wanted: &SmallQueues,
    request: &Request,
    watch: &mut Watch,
    stop: &AtomicBool,
) -> Result<i32, Failure> {
    let standing = standing(places)?;
    let plan = || small_queues::plan(request, &standing);
    let first = plan().map_err(failure)?;
    permitted(&missing_capabilities(&first, places.bpffs()))?;
    print(&verified::begins(&first.title, ROUNDS, SETTLE, wanted.each))?;
    let mut applied = None;
    let set = |on: bool| -> anyhow::Result<()> {
        if on {
            applied = Some(make(places, plan()?)?);
        } else if let Some(Applied { id, .. }) = applied.take() {
            take_back(&places.journal(), id)?;
        }
        Ok(())
    };
    let times = Times { settle: SETTLE, look: wanted.each };
    let done = rounds(watch, (times, ROUNDS), stop, set);
    let verdict = done.as_ref().ok().map(|rounds| judge(rounds, wanted.target));
    // Settings that are not kept are taken back, even if printing fails.
    let told = done.as_ref().map_or(Ok(()), |rounds| print(&verified::table(rounds)));
    if let (Some(verdict), Some(applied)) = (verdict.filter(|it| it.is_kept()), &applied) {
        let sentence = format!("{}\n", verified::sentence(&verdict, wanted.target));
        let words = sentence + &words::applied(applied, &places.option());
        told.and_then(|()| print(&words)).inspect_err(|_| made(applied))?;
        applied.left.iter().for_each(complain);
        return Ok(if applied.left.is_empty() { super::DONE } else { Failure::LEFT });
    }
    if let Some(Applied { id, .. }) = applied {
        take_back(&places.journal(), id).map_err(|error| own(&error))?;
    }
    told?;
    match (verdict, done) {
        (Some(verdict), _) => Err(Failure::left(format!(
            "{}: all is as it was",
            verified::sentence(&verdict, wanted.target)
        ))),
        (None, _) if stop.load(Relaxed) => Err(interrupted()),
        (None, Err(error)) => Err(own(&error)),
        (None, Ok(_)) => Err(Failure::left("nothing was measured: all is as it was")),
    }
}

/// Makes changes through the journal, which is not locked during the measurement: if this run is
/// killed, its changes are recorded there.
fn make(places: &Places, plan: Plan) -> anyhow::Result<Applied> {
    let journal = Journal::open(&places.journal())?;
    Ok(apply(&journal, plan, places.bpffs())?)
}

fn take_back(journal: &Path, id: u32) -> anyhow::Result<()> {
    let undone = undo(&Journal::open(journal)?, id)?;
    let failed = undone.failed.iter().map(ToString::to_string);
    let left: Vec<String> = undone.left.into_iter().chain(failed).collect();
    anyhow::ensure!(left.is_empty(), "not all of it could be taken back: {}", left.join("; "));
    Ok(())
}

fn load(wanted: &SmallQueues, netns: &Handle, to: &str) -> Result<Load, Failure> {
    let address = resolve(to)?;
    let senders = wanted.senders.unwrap_or(NonZeroU32::MIN);
    Load::start(netns, address, senders).map_err(|error| {
        Failure::left(format!(
            "{error:#}: have it taken there by uncork tune sink {to}, or by another who throws \
             away what he gets"
        ))
    })
}

fn resolve(name: &str) -> Result<SocketAddr, Failure> {
    let unusable = |why: String| Failure::unusable(format!("{name}: {why}"));
    let mut found = name.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => unusable("the port is missing: --load HOST:PORT".to_owned()),
        _ => unusable(error.to_string()),
    })?;
    found.next().ok_or_else(|| unusable("it has no address".to_owned()))
}

fn ipv4(name: &str) -> Result<Ipv4Addr, Failure> {
    let unusable = |why: String| Failure::unusable(format!("{name}: {why}"));
    let found = (name, 0).to_socket_addrs().map_err(|error| unusable(error.to_string()))?;
    let mut addresses = found.filter_map(|address| match address {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    });
    addresses.next().ok_or_else(|| unusable("it has no IPv4 address to be pinged".to_owned()))
}

/// Formats an error with its causes, in one line.
fn own(error: &anyhow::Error) -> Failure {
    let sentence = format!("{error:#}");
    let ours = error.chain().find_map(|cause| cause.downcast_ref::<uncork_tune::Error>());
    match ours {
        Some(ours) if ours.is_permission() => return denied(&sentence, &missing_after(ours)),
        Some(ours) if ours.is_absent() => return Failure::unusable(sentence),
        _ => {}
    }
    let mut kinds = error.chain().filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
    if kinds.any(|kind| kind == ErrorKind::PermissionDenied) {
        // An error that is not uncork-tune's is about the raw socket.
        return denied(&sentence, &missing_for_ping());
    }
    Failure::left(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_without_a_port_is_told() {
        for name in ["foo", "192.0.2.1"] {
            let failure = resolve(name).unwrap_err();
            assert_eq!(failure.code(), Failure::USAGE);
            assert!(failure.to_string().contains("the port is missing"), "{failure}");
        }
        assert_eq!(resolve("192.0.2.1:9").unwrap().port(), 9);
    }
}
