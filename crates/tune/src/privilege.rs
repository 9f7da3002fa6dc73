//! Which capabilities (capabilities(7)) a plan needs, and this process lacks.

use std::path::Path;

use crate::bpffs;
use crate::plan::Plan;

const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const SYS_PTRACE: (u32, &str) = (19, "CAP_SYS_PTRACE");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const BPF: (u32, &str) = (39, "CAP_BPF");

/// The names of those that are missing for this.
#[must_use]
pub fn missing_capabilities(plan: &Plan, at: &Path) -> Vec<&'static str> {
    let mut needed = vec![NET_ADMIN];
    if let Some(sockets) = &plan.sockets {
        needed.extend([BPF, PERFMON]);
        // To mount it, or to enter the namespaces of others.
        if !bpffs::is_mounted(at) || sockets.live.len() > 1 || sockets.scope.netns_cookie.is_none()
        {
            needed.push(SYS_ADMIN);
        }
        if sockets.scope.netns_cookie.is_none() {
            needed.push(SYS_PTRACE);
        }
    }
    lacking(needed)
}

/// The names of those that are missing for undoing whatever there may be.
#[must_use]
pub fn missing_for_undoing() -> Vec<&'static str> {
    lacking(vec![NET_ADMIN, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF])
}

fn lacking(needed: Vec<(u32, &'static str)>) -> Vec<&'static str> {
    let effective = effective();
    let lacks = |(bit, _): &(u32, &'static str)| effective >> bit & 1 == 0;
    needed.into_iter().filter(lacks).map(|(_, name)| name).collect()
}

fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
