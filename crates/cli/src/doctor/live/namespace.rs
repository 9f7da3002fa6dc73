//! The PID namespace to which process numbers belong.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::pids;

/// Inode of the first PID namespace (PROC_PID_INIT_INO in the kernel's linux/proc_ns.h).
const FIRST: u64 = 0xEFFF_FFFC;

/// Returns the PID namespace of /proc, by its inode; `None` for the first one, whose numbers are
/// the kernel's own. The error is a sentence.
pub(super) fn of_proc() -> Result<Option<u32>, String> {
    // /proc/self is a number in the namespace for which /proc was mounted.
    if let Some(sentence) = pids::not_mounted() {
        return Err(sentence);
    }
    let seen = fs::read_link("/proc/self").ok();
    let seen = seen.and_then(|link| link.to_str()?.parse().ok());
    of(seen, std::process::id(), fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).ok())
}

fn of(seen: Option<u32>, own: u32, inode: Option<u64>) -> Result<Option<u32>, String> {
    if seen != Some(own) {
        return Err(format!(
            "/proc is that of another PID namespace than this process is in (number {own}), so no \
             process can be told from another: mount its own one, as `unshare --mount-proc` and \
             `nsenter --all` do"
        ));
    }
    match inode {
        Some(FIRST) => Ok(None),
        Some(other) => Ok(u32::try_from(other).ok()),
        // A kernel without PID namespaces.
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_another_namespace_are_refused() {
        assert_eq!(of(Some(7), 7, Some(FIRST)), Ok(None));
        assert_eq!(of(Some(7), 7, Some(4_026_532_999)), Ok(Some(4_026_532_999)));
        for seen in [None, Some(8)] {
            assert!(of(seen, 7, Some(FIRST)).unwrap_err().contains("PID namespace"));
        }
        assert!(of_proc().is_ok());
    }
}
