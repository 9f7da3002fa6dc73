//! Capabilities (capabilities(7)) that an operation needs, and this process lacks.

use std::path::Path;

use crate::Error;
use crate::bpffs;
use crate::change::{Change, Sockets};
use crate::journal::{Entry, Journal};
use crate::list::Stray;
use crate::netns::{Handle, NetNs};
use crate::plan::Plan;

type Capability = (u32, &'static str);

const DAC_OVERRIDE: Capability = (1, "CAP_DAC_OVERRIDE");
const NET_ADMIN: Capability = (12, "CAP_NET_ADMIN");
const NET_RAW: Capability = (13, "CAP_NET_RAW");
const SYS_PTRACE: Capability = (19, "CAP_SYS_PTRACE");
const SYS_ADMIN: Capability = (21, "CAP_SYS_ADMIN");
const PERFMON: Capability = (38, "CAP_PERFMON");
const BPF: Capability = (39, "CAP_BPF");

/// The capabilities that programs on sockets need.
const PROGRAMS: [Capability; 3] = [NET_ADMIN, BPF, PERFMON];
/// The capabilities to enter any network namespace, and to find those without a name.
const ALL_NAMESPACES: [Capability; 2] = [SYS_ADMIN, SYS_PTRACE];

/// Returns the names of the missing capabilities that a plan needs.
#[must_use]
pub fn missing_capabilities(plan: &Plan, at: &Path) -> Vec<&'static str> {
    let mut needed = vec![NET_ADMIN];
    for change in &plan.changes {
        needed.extend(for_entering(change.netns()));
    }
    if let Some(sockets) = &plan.sockets {
        needed.extend(PROGRAMS);
        if !bpffs::is_mounted(at) || sockets.live.len() > 1 {
            needed.push(SYS_ADMIN);
        }
        if let Change::Sockets(sockets) = sockets.change(at) {
            needed.extend(for_sockets(&sockets));
        }
    }
    lacking(needed)
}

/// Returns the names of the missing capabilities for undoing an entry, or all entries.
///
/// # Errors
/// If the journal cannot be read.
pub fn missing_for_undoing(
    journal: Option<&Journal>,
    id: Option<u32>,
    strays: &[Stray],
) -> Result<Vec<&'static str>, Error> {
    let mut needed = Vec::new();
    let all = journal.map_or_else(|| Ok(Vec::new()), Journal::entries)?;
    let damaged = all.iter().any(|(_, entry)| entry.is_err());
    let readable = all.iter().filter_map(|(_, entry)| entry.as_ref().ok());
    let standing = readable.filter(|entry| !entry.is_of_another_boot());
    for entry in standing.filter(|entry| id.is_none_or(|id| id == entry.id)) {
        needed.extend(for_undoing(entry));
    }
    // Entries that cannot be read may have meant any connection.
    let lost = strays.iter().any(|stray| stray.state.is_none());
    if id.is_none() && (lost || damaged) {
        needed.extend(PROGRAMS.into_iter().chain(ALL_NAMESPACES));
    }
    if !needed.is_empty() && journal.is_some_and(bpffs::is_ours) {
        needed.push(SYS_ADMIN);
    }
    Ok(lacking(needed))
}

/// Returns the names of the missing capabilities that may be the cause of this error.
#[must_use]
pub fn missing_after(error: &Error) -> Vec<&'static str> {
    lacking(match error {
        Error::Journal { .. } | Error::Unread { .. } => vec![DAC_OVERRIDE],
        // A process's namespaces are visible only with the rights of a tracer.
        Error::Namespace { path, .. } if path.starts_with("/proc") => ALL_NAMESPACES.to_vec(),
        Error::Namespace { .. } | Error::BpfFs { .. } => vec![SYS_ADMIN],
        Error::Sysctl { .. } | Error::Netlink { .. } => vec![NET_ADMIN],
        Error::Programs(uncork_bpf::tune::Error::Pinned { .. }) => vec![DAC_OVERRIDE],
        Error::Programs(_) => PROGRAMS.to_vec(),
        _ => Vec::new(),
    })
}

/// Returns the name of the missing capability for a ping, if it is missing.
#[must_use]
pub fn missing_for_ping() -> Vec<&'static str> {
    lacking(vec![NET_RAW])
}

fn for_undoing(entry: &Entry) -> Vec<Capability> {
    let mut needed = Vec::new();
    for change in entry.changes.iter().filter(|change| !change.is_none()) {
        needed.push(NET_ADMIN);
        match change {
            Change::Sockets(sockets) => {
                needed.extend(PROGRAMS);
                needed.extend(for_sockets(sockets));
            }
            _ => needed.extend(for_entering(change.netns())),
        }
    }
    needed
}

fn for_sockets(sockets: &Sockets) -> Vec<Capability> {
    match sockets.reach.as_ref().and_then(|reach| reach.netns.as_ref()) {
        Some(netns) => for_entering(Some(netns)),
        None => ALL_NAMESPACES.to_vec(),
    }
}

/// Returns the capabilities to enter a namespace: none for the one in which this process is.
fn for_entering(netns: Option<&NetNs>) -> Vec<Capability> {
    let is_own = |netns: &NetNs| Handle::own().is_ok_and(|own| own.id == *netns);
    match netns {
        Some(netns) if !is_own(netns) && netns.name.is_none() => ALL_NAMESPACES.to_vec(),
        Some(netns) if !is_own(netns) => vec![SYS_ADMIN],
        _ => Vec::new(),
    }
}

fn lacking(mut needed: Vec<Capability>) -> Vec<&'static str> {
    let effective = effective();
    needed.sort_unstable();
    needed.dedup();
    needed.retain(|(bit, _)| effective >> bit & 1 == 0);
    needed.into_iter().map(|(_, name)| name).collect()
}

fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
