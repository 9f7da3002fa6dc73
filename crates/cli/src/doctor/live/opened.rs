//! The kernel's count of connections opened, which includes those that lived between two polls.

use std::fs;

/// Returns how many connection ends were established in this network namespace since it was
/// created: `ActiveOpens` and `PassiveOpens` of /proc/net/snmp, less `AttemptFails` (RFC 4022).
pub(super) fn opened() -> Option<u64> {
    of(&fs::read_to_string("/proc/self/net/snmp").ok()?)
}

fn of(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let columns = names.split(' ').zip(values.split(' '));
    let (mut opened, mut failed) = (None, 0);
    for (name, value) in columns {
        match name {
            "ActiveOpens" | "PassiveOpens" => {
                *opened.get_or_insert(0) += value.parse::<u64>().ok()?;
            }
            "AttemptFails" => failed = value.parse().ok()?,
            _ => {}
        }
    }
    opened.map(|opened| opened.saturating_sub(failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_added_up_less_what_failed() {
        let text = "Ip: Forwarding\nIp: 1\n\
                    Tcp: RtoAlgorithm MaxConn ActiveOpens PassiveOpens AttemptFails\n\
                    Tcp: 1 -1 40 2 7\n";
        assert_eq!(of(text), Some(35));
        assert_eq!(of("Ip: 1\n"), None);
        assert!(opened().is_some());
    }
}
