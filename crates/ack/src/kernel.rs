//! Which of two corrections of October 2023 a Linux kernel contains, by its version.
//!
//! - 059217c18be6, "tcp: fix quick-ack counting to count actual ACKs of new data": a credit is
//!   spent only by an ACK of new data. Before, each data segment that the receiver itself sent
//!   cost one as well.
//! - 4720852ed9af, "tcp: fix delayed ACKs for MSS boundary condition": a pushed segment of exactly
//!   the size that the receiver takes for the MSS is acknowledged as soon as it has been read.
//!   Before, it was not, and any constant size of 536 bytes or more is soon taken for the MSS.
//!   This one ends the 40 ms of the reference run, whose receiver sends nothing.
//!
//! Both came in 6.6-rc5 and, by the review lists of 9 October 2023, in the stable releases below;
//! 4.14.327 took only the second.

use serde::Serialize;

/// Whether a kernel is from before or after a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The kernel lacks it.
    Before,
    /// The kernel has it.
    After,
    /// It is unknown which.
    Unknown,
}

/// The two corrections, each separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Corrections {
    /// 059217c18be6.
    pub credit_counting: Side,
    /// 4720852ed9af.
    pub mss_boundary: Side,
}

impl Corrections {
    const fn both(side: Side) -> Self {
        Self { credit_counting: side, mss_boundary: side }
    }
}

/// First release of each stable tree that has both.
const STABLE: [(u32, u32, u32); 7] =
    [(6, 5, 7), (6, 1, 57), (5, 15, 135), (5, 10, 198), (5, 4, 258), (4, 19, 296), (4, 14, 327)];

/// Returns which corrections the running kernel has.
#[must_use]
pub fn local() -> Corrections {
    let name = nix::sys::utsname::uname().ok();
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    // Ubuntu's releases all end in .0; the version that they are based on is in this file.
    let signature = std::fs::read_to_string("/proc/version_signature").unwrap_or_default();
    let release = text(name.as_ref().map(|name| name.release()));
    let version = text(name.as_ref().map(|name| name.version()));
    of(&release, &version, &signature)
}

/// Returns which corrections a kernel has, by `uname -r`, `uname -v` and, on Ubuntu, /proc/version_signature.
#[must_use]
pub fn of(release: &str, version: &str, signature: &str) -> Corrections {
    let Some((numbers, rest)) = numbers(release) else { return Corrections::both(Side::Unknown) };
    if (numbers.0, numbers.1) == (6, 6)
        && numbers.2 == 0
        && candidate(rest).is_some_and(|rc| rc < 5)
    {
        return Corrections::both(Side::Before);
    }
    if (numbers.0, numbers.1) >= (6, 6) {
        return Corrections::both(Side::After);
    }
    // A distribution's kernel: the version that it is based on is given elsewhere, or not at all.
    let named = version
        .split_whitespace()
        .skip_while(|word| *word != "Debian")
        .nth(1)
        .or_else(|| signature.split_whitespace().nth(2))
        .and_then(|word| self::numbers(word));
    match named {
        Some((numbers, _)) => by_number(numbers),
        None if numbers.2 == 0 && !rest.is_empty() => Corrections::both(Side::Unknown),
        None if rest.contains(".el") => Corrections::both(Side::Unknown),
        None => by_number(numbers),
    }
}

fn by_number(numbers: (u32, u32, u32)) -> Corrections {
    if (numbers.0, numbers.1) >= (6, 6) {
        return Corrections::both(Side::After);
    }
    let first = STABLE.iter().find(|first| (first.0, first.1) == (numbers.0, numbers.1));
    match first {
        Some(first) if numbers.2 < first.2 => Corrections::both(Side::Before),
        Some((4, 14, _)) => {
            Corrections { credit_counting: Side::Before, mss_boundary: Side::After }
        }
        Some(_) => Corrections::both(Side::After),
        None => Corrections::both(Side::Before),
    }
}

/// Parses `6.1.57-rc1` into its numbers and the rest.
fn numbers(text: &str) -> Option<((u32, u32, u32), &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut parts = text[..end].split('.').filter(|part| !part.is_empty());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next().map_or(Some(0), |part| part.parse().ok())?;
    Some(((major, minor, patch), &text[end..]))
}

fn candidate(rest: &str) -> Option<u32> {
    let digits = rest.strip_prefix("-rc")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(release: &str, version: &str, signature: &str) -> Side {
        of(release, version, signature).credit_counting
    }

    #[test]
    fn mainline_and_stable_releases() {
        for (release, expected) in [
            ("6.18.44", Side::After),
            ("7.0.0", Side::After),
            ("6.6.0", Side::After),
            ("6.6.0-rc4", Side::Before),
            ("6.6.0-rc5", Side::After),
            ("6.5.6", Side::Before),
            ("6.5.7", Side::After),
            ("6.4.16", Side::Before),
            ("6.1.56", Side::Before),
            ("6.1.57", Side::After),
            ("5.15.134", Side::Before),
            ("5.15.135", Side::After),
            ("5.10.197", Side::Before),
            ("5.10.198", Side::After),
            ("5.4.257", Side::Before),
            ("5.4.258", Side::After),
            ("4.19.295", Side::Before),
            ("4.19.296", Side::After),
            ("4.14.336", Side::Before),
            ("3.10.108", Side::Before),
        ] {
            assert_eq!(side(release, "#1 SMP", ""), expected, "{release}");
        }
    }

    #[test]
    fn the_last_tree_of_the_fours_took_one_of_the_two() {
        let late = of("4.14.327", "#1 SMP", "");
        assert_eq!(late.credit_counting, Side::Before);
        assert_eq!(late.mss_boundary, Side::After);
        assert_eq!(of("4.14.326", "#1 SMP", ""), Corrections::both(Side::Before));
    }

    /// The published captures were made on the first two of these.
    #[test]
    fn debian_tells_in_its_version() {
        let debian = |release, version| side(release, version, "");
        let old = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.27-1 (2023-05-08)";
        let new = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.112-1 (2024-09-30)";
        assert_eq!(debian("6.1.0-9-amd64", old), Side::Before);
        assert_eq!(debian("6.1.0-26-amd64", new), Side::After);
        assert_eq!(debian("6.1.0-26-amd64", "#1 SMP"), Side::Unknown);
    }

    #[test]
    fn ubuntu_tells_in_its_signature() {
        let signature = "Ubuntu 5.15.0-92.102-generic 5.15.131";
        assert_eq!(side("5.15.0-92-generic", "#102-Ubuntu SMP", signature), Side::Before);
        let signature = "Ubuntu 5.15.0-100.110-generic 5.15.143";
        assert_eq!(side("5.15.0-100-generic", "#110-Ubuntu SMP", signature), Side::After);
    }

    #[test]
    fn what_an_enterprise_kernel_was_given_nobody_can_tell() {
        assert_eq!(side("5.14.0-570.49.1.el9_6.x86_64", "#1 SMP", ""), Side::Unknown);
        assert_eq!(side("4.18.0-553.el8_10.x86_64", "#1 SMP", ""), Side::Unknown);
        assert_eq!(side("6.12.0-55.el10.x86_64", "#1 SMP", ""), Side::After);
    }

    #[test]
    fn nonsense_is_unknown() {
        for release in ["", "x", "6", "6.", "-6.1", "99999999999.1"] {
            assert_eq!(side(release, "", ""), Side::Unknown, "{release:?}");
        }
    }
}
