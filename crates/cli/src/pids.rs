//! Process numbers in PID namespaces.

use std::fs;

/// Says that nothing is known of any process, if that is so.
pub(crate) fn not_mounted() -> Option<String> {
    // Present in each /proc, even if it is that of another PID namespace or hides other users' processes.
    let there = fs::symlink_metadata("/proc/self").is_ok();
    (!there).then(|| {
        "/proc is not mounted here, so nothing is known of any process: mount it (mount -t proc proc /proc)"
            .to_owned()
    })
}

/// Returns its number in each of its PID namespaces, ours first and its own last.
pub(crate) fn in_namespaces(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let mut all: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if all.is_empty() {
        all.push(pid);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        assert_eq!(not_mounted(), None);
    }

    #[test]
    fn a_process_has_a_number_at_least_one() {
        let own = std::process::id();
        assert!(in_namespaces(own).contains(&own));
        assert_eq!(in_namespaces(u32::MAX), [u32::MAX], "one that is not there");
    }
}
