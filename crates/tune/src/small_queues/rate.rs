//! How fast a link sends: what shapes it, or what it is.

use std::fs;
use std::io;

use crate::Error;
use crate::change::link::Device;
use crate::netlink::{Line, attribute, long_number, number};
use crate::netns::Handle;

// linux/rtnetlink.h, linux/pkt_sched.h
const RTM_GETQDISC: u16 = 38;
const RTM_GETTCLASS: u16 = 42;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_CEIL64: u16 = 7;
/// `struct tcmsg`.
const HEAD_BYTES: usize = 20;
/// Where `struct tc_ratespec` has its rate, in bytes a second.
const RATE_AT: usize = 8;
/// Where `struct tc_htb_opt` has its second one, the ceiling.
const CEIL_AT: usize = 12 + RATE_AT;
/// The parent of what stands at the root.
const TC_H_ROOT: u32 = u32::MAX;

/// A rate, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// For the words: `tbf on eth0`, `the speed of eth0`.
    pub source: String,
}

/// What the device sends at most: what its shaper says, else its speed.
pub(super) fn known(handle: &Handle, name: &str) -> Result<Option<Rate>, Error> {
    let index = Device::named(handle, name)?.index;
    let asked = handle.within(|| shaped(index))?;
    let shaped = asked.map_err(|error| Error::Netlink {
        what: format!("the queueing disciplines of {name}"),
        error,
    })?;
    let known = shaped
        .map(|(kind, rate)| (format!("{kind} on {name}"), rate))
        .or_else(|| Some((format!("the speed of {name}"), speed(handle, name)?)));
    Ok(known.map(|(source, bytes_per_second)| Rate { bytes_per_second, source }))
}

pub(super) fn unknown(name: &str) -> Error {
    Error::Unable(format!(
        "the rate of {name} is not known: it has no speed (a virtual device) and no shaper (tbf or \
         htb), and nobody fills it just now, so that it could be measured; run this while the bulk \
         is sent, or say it by --rate, for example --rate 100mbit"
    ))
}

/// The slowest shaper of the device.
fn shaped(index: i32) -> io::Result<Option<(&'static str, u64)>> {
    let mut line = Line::open()?;
    let mut head = vec![0; HEAD_BYTES];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    let of_device = |answer: &&Vec<u8>| number(answer, 4) == Some(index.cast_unsigned());
    let disciplines = line.dump(RTM_GETQDISC, &head)?;
    let classes = line.dump(RTM_GETTCLASS, &head)?;
    let tbf = disciplines.iter().filter(of_device).filter_map(|answer| Some(("tbf", tbf(answer)?)));
    let slowest = tbf.min_by_key(|(_, rate)| *rate);
    // Of several classes at the root each has its own ceiling: the link is no slower than that.
    let htb = classes.iter().filter(of_device).filter_map(|answer| Some(("htb", htb(answer)?)));
    let fastest = htb.max_by_key(|(_, rate)| *rate);
    Ok([slowest, fastest].into_iter().flatten().min_by_key(|(_, rate)| *rate))
}

fn tbf(answer: &[u8]) -> Option<u64> {
    let options = options(answer, b"tbf\0")?;
    rate(options, (TCA_TBF_PARMS, RATE_AT), TCA_TBF_RATE64)
}

fn htb(answer: &[u8]) -> Option<u64> {
    let options = options(answer, b"htb\0")?;
    let at_root = number(answer, 12) == Some(TC_H_ROOT);
    rate(options, (TCA_HTB_PARMS, CEIL_AT), TCA_HTB_CEIL64).filter(|_| at_root)
}

fn options<'a>(answer: &'a [u8], kind: &[u8]) -> Option<&'a [u8]> {
    let attributes = answer.get(HEAD_BYTES..)?;
    let is_kind = attribute(attributes, TCA_KIND) == Some(kind);
    attribute(attributes, TCA_OPTIONS).filter(|_| is_kind)
}

/// Rates beyond 34 Gbit/s are in an attribute of their own.
fn rate(options: &[u8], (parameters, at): (u16, usize), long: u16) -> Option<u64> {
    let long = attribute(options, long).and_then(|value| long_number(value, 0));
    let short = || number(attribute(options, parameters)?, at).map(u64::from);
    long.or_else(short).filter(|rate| *rate > 0)
}

/// sysfs shows the devices of the namespace in which it was mounted: this process's.
fn speed(handle: &Handle, name: &str) -> Option<u64> {
    if Handle::own().ok()?.id != handle.id {
        return None;
    }
    let text = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    // -1, or nothing, if there is no link.
    let megabits = text.trim().parse::<u64>().ok().filter(|speed| *speed > 0)?;
    Some(megabits * 1_000_000 / 8)
}
