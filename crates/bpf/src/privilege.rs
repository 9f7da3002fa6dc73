//! The capabilities that this process needs, and which of them it has.

use std::fmt;
use std::fs;
use std::path::Path;

/// A capability (capabilities(7)) that tracing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Loading programs and creating maps.
    Bpf,
    /// Attaching programs to the kernel's functions, and reading its memory.
    Perfmon,
    /// Seeing which options programs set; tracing works without.
    NetAdmin,
    /// Looking into processes of other users; tracing works without.
    SysPtrace,
}

/// What to do where it is not mounted.
pub(crate) const NO_SYS: &str = "sysfs is not mounted at /sys, so the kernel's types (/sys/kernel/btf/vmlinux) cannot be \
                                 read: mount it (mount -t sysfs sysfs /sys)";

/// Returns whether sysfs is mounted.
pub(crate) fn has_sys() -> bool {
    Path::new("/sys/kernel").exists()
}

impl Capability {
    /// Returns its bit in `CapEff`.
    fn bit(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::SysPtrace => 19,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysPtrace => "CAP_SYS_PTRACE",
        })
    }
}

/// CAP_SYS_ADMIN stands for both CAP_BPF and CAP_PERFMON.
const SYS_ADMIN_BIT: u32 = 21;

/// Returns the capabilities that this process lacks for tracing; empty if that cannot be determined.
#[must_use]
pub fn missing_capabilities() -> Vec<Capability> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).map(missing_of).unwrap_or_default()
}

/// Whether this process has a capability; true if that cannot be determined.
#[must_use]
pub fn has(capability: Capability) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status).is_none_or(|set| set >> capability.bit() & 1 == 1)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn missing_of(effective: u64) -> Vec<Capability> {
    if effective >> SYS_ADMIN_BIT & 1 == 1 {
        return Vec::new();
    }
    let lacks = |capability: &Capability| effective >> capability.bit() & 1 == 0;
    [Capability::Bpf, Capability::Perfmon].into_iter().filter(lacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_read_from_the_effective_set() {
        let of = |set: &str| effective(&format!("Name:\tx\nCapEff:\t{set}\n")).map(missing_of);
        assert_eq!(of("0000000000000000"), Some(vec![Capability::Bpf, Capability::Perfmon]));
        assert_eq!(of("0000008000000000"), Some(vec![Capability::Perfmon]));
        assert_eq!(of("000000c000000000"), Some(vec![]));
        assert_eq!(of("000001ffffffffff"), Some(vec![]));
        assert_eq!(of("0000000000200000"), Some(vec![]));
        assert_eq!(effective("no such line"), None);
    }
}
