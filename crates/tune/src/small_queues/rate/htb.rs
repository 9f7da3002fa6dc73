//! The class of an htb (tc-htb(8)) that shapes unclassified traffic.

use super::{RATE_AT, Shaper, options, rate};
use uncork_netlink::{attribute, number};

// linux/pkt_sched.h
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_CEIL64: u16 = 7;
/// Offset of the second rate, the ceiling, in `struct tc_htb_opt`.
const CEIL_AT: usize = 12 + RATE_AT;
/// Offset in `struct tc_htb_glob` of the minor number of the default class, for what no filter classifies.
const DEFAULT_AT: usize = 8;
/// Offsets in `struct tcmsg` of a class's own handle, and of its parent's.
const HANDLE_AT: usize = 8;
const PARENT_AT: usize = 12;
/// The parent of a class at the root.
const TC_H_ROOT: u32 = u32::MAX;
/// The greatest depth of a class tree (TC_HTB_MAXDEPTH).
const DEEPEST: usize = 8;

struct Class {
    handle: u32,
    parent: u32,
    ceil: u64,
}

/// Returns the class of unclassified traffic, with the lowest ceiling among it and the classes that it
/// borrows from; without such a class, the fastest one at the root: the link is no slower than that.
pub(super) fn shaper(disciplines: &[Vec<u8>], classes: &[Vec<u8>]) -> Option<Shaper> {
    let classes: Vec<Class> = classes.iter().filter_map(|answer| Class::read(answer)).collect();
    let at_root = || classes.iter().filter(|class| class.parent == TC_H_ROOT);
    let default = disciplines.iter().find_map(|answer| default(answer)).and_then(|handle| {
        let ceil = path(&classes, handle).map(|class| class.ceil).min()?;
        Some((format!("htb class {}, that of unsorted traffic,", name(handle)), ceil))
    });
    default.or_else(|| {
        let fastest = at_root().max_by_key(|class| class.ceil)?;
        let which = if at_root().count() == 1 { "" } else { ", the fastest," };
        Some((format!("htb class {}{which}", name(fastest.handle)), fastest.ceil))
    })
}

/// Returns the class, its parent, and so on up to the root.
fn path(classes: &[Class], handle: u32) -> impl Iterator<Item = &Class> {
    let of = |handle: u32| classes.iter().find(|class| class.handle == handle);
    std::iter::successors(of(handle), move |class| of(class.parent)).take(DEEPEST)
}

fn default(answer: &[u8]) -> Option<u32> {
    let minor = number(attribute(options(answer, b"htb\0")?, TCA_HTB_INIT)?, DEFAULT_AT)?;
    let handle = number(answer, HANDLE_AT)?;
    (minor != 0).then_some(handle | minor & 0xffff)
}

/// Formats a handle as tc(8) does: both halves in hexadecimal digits.
fn name(handle: u32) -> String {
    format!("{:x}:{:x}", handle >> 16, handle & 0xffff)
}

impl Class {
    fn read(answer: &[u8]) -> Option<Self> {
        let ceil = rate(options(answer, b"htb\0")?, (TCA_HTB_PARMS, CEIL_AT), TCA_HTB_CEIL64)?;
        Some(Self { handle: number(answer, HANDLE_AT)?, parent: number(answer, PARENT_AT)?, ceil })
    }
}
