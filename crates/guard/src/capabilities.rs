//! The capabilities that the guardian needs, and which of them are missing (capabilities(7)).

use std::fs;

/// Their bits and names: for the filters, for packet and raw sockets, for eBPF programs and maps.
const CAPABILITIES: [(u32, &str); 3] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (39, "CAP_BPF")];

/// Returns the names of those that this process lacks; none if that cannot be told.
pub(crate) fn missing() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()) else {
        return Vec::new();
    };
    let lacks = |(bit, _): &(u32, &str)| effective >> bit & 1 == 0;
    CAPABILITIES.into_iter().filter(lacks).map(|(_, name)| name).collect()
}
