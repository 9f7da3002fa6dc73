//! The kernel's rules (RTM_GETRULE, ip-rule(8)), as far as they tell connections to one address apart.

use std::io;

use nix::errno::Errno;
use uncork_netlink::{Line, attribute};

// linux/rtnetlink.h, linux/fib_rules.h
pub(crate) const RTM_NEWRULE: u16 = 32;
pub(crate) const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
/// `struct fib_rule_hdr`.
const HEAD_BYTES: usize = 12;

/// Returns whether a rule of either version of IP names ports.
pub(crate) fn name_ports(line: &mut Line) -> io::Result<bool> {
    // AF_UNSPEC: all versions.
    match line.dump(RTM_GETRULE, &[0; HEAD_BYTES]) {
        Ok(rules) => Ok(rules.iter().any(|rule| names_ports(rule))),
        // A kernel without rules (CONFIG_IP_MULTIPLE_TABLES).
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(false),
        Err(error) => Err(error),
    }
}

fn names_ports(rule: &[u8]) -> bool {
    let attributes = rule.get(HEAD_BYTES..).unwrap_or_default();
    [FRA_SPORT_RANGE, FRA_DPORT_RANGE].iter().any(|&kind| attribute(attributes, kind).is_some())
}
