//! The rate at which a link sends: its shaper's, or its own.

mod htb;

use std::fs;
use std::io;
use std::ops::RangeInclusive;

use crate::Error;
use crate::change::link::Device;
use crate::netns::Handle;
use uncork_netlink::{Line, attribute, long_number, number};

// linux/rtnetlink.h, linux/pkt_sched.h
const RTM_GETQDISC: u16 = 38;
const RTM_GETTCLASS: u16 = 42;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
/// `struct tcmsg`.
const HEAD_BYTES: usize = 20;
/// Offset of the rate in `struct tc_ratespec`, in bytes a second.
const RATE_AT: usize = 8;
/// The rates that links have. Below them two full segments take longer than the longest target.
const BITS_PER_SECOND: RangeInclusive<u64> = 32_000..=2_000_000_000_000;

/// A rate, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// The source in words: `tbf on eth0`, `the speed of eth0`.
    pub source: String,
}

impl Rate {
    /// Returns the rate in bits a second.
    ///
    /// # Errors
    /// If no link has such a rate.
    pub fn sensible(&self) -> Result<u64, Error> {
        let bits = self.bytes_per_second.saturating_mul(8);
        if BITS_PER_SECOND.contains(&bits) {
            return Ok(bits);
        }
        let (least, most) = (BITS_PER_SECOND.start(), BITS_PER_SECOND.end());
        Err(Error::Unable(format!(
            "{} ({}) is the rate of no link that could be tuned: {} to {} are possible, said by \
             --rate",
            rate_words(bits),
            self.source,
            rate_words(*least),
            rate_words(*most)
        )))
    }
}

/// Formats a rate in the unit that suits it best, with a decimal where that tells more: `64
/// kbit/s`, `1.5 Mbit/s`, `2500 Mbit/s`.
#[must_use]
pub fn rate_words(bits_per_second: u64) -> String {
    let (unit, name) = match bits_per_second {
        0..1000 => return format!("{bits_per_second} bit/s"),
        1000..1_000_000 => (1000, "kbit/s"),
        1_000_000..10_000_000_000 => (1_000_000, "Mbit/s"),
        10_000_000_000..10_000_000_000_000 => (1_000_000_000, "Gbit/s"),
        _ => (1_000_000_000_000, "Tbit/s"),
    };
    let (whole, tenths) = (bits_per_second / unit, bits_per_second % unit * 10 / unit);
    if whole < 10 && tenths > 0 {
        format!("{whole}.{tenths} {name}")
    } else {
        format!("{whole} {name}")
    }
}

/// Returns the most that the device sends: its shaper's rate, else its speed.
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

/// A shaper, by a name that distinguishes it from others, and its rate.
type Shaper = (String, u64);

/// Returns the slowest shaper of the device.
fn shaped(index: i32) -> io::Result<Option<Shaper>> {
    let mut line = Line::open()?;
    let mut head = vec![0; HEAD_BYTES];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    let of_device = |answer: &Vec<u8>| number(answer, 4) == Some(index.cast_unsigned());
    let mut disciplines = line.dump(RTM_GETQDISC, &head)?;
    let mut classes = line.dump(RTM_GETTCLASS, &head)?;
    disciplines.retain(of_device);
    classes.retain(of_device);
    let tbf = disciplines.iter().filter_map(|answer| Some(("tbf".to_owned(), tbf(answer)?)));
    let slowest = tbf.min_by_key(|(_, rate)| *rate);
    let htb = htb::shaper(&disciplines, &classes);
    Ok([slowest, htb].into_iter().flatten().min_by_key(|(_, rate)| *rate))
}

fn tbf(answer: &[u8]) -> Option<u64> {
    let options = options(answer, b"tbf\0")?;
    rate(options, (TCA_TBF_PARMS, RATE_AT), TCA_TBF_RATE64)
}

fn options<'a>(answer: &'a [u8], kind: &[u8]) -> Option<&'a [u8]> {
    let attributes = answer.get(HEAD_BYTES..)?;
    let is_kind = attribute(attributes, TCA_KIND) == Some(kind);
    attribute(attributes, TCA_OPTIONS).filter(|_| is_kind)
}

/// Returns a rate; beyond 34 Gbit/s it is in a separate attribute.
fn rate(options: &[u8], (parameters, at): (u16, usize), long: u16) -> Option<u64> {
    let long = attribute(options, long).and_then(|value| long_number(value, 0));
    let short = || number(attribute(options, parameters)?, at).map(u64::from);
    long.or_else(short).filter(|rate| *rate > 0)
}

/// Returns its speed. sysfs shows the namespace in which it was mounted: this process's.
fn speed(handle: &Handle, name: &str) -> Option<u64> {
    if Handle::own().ok()?.id != handle.id {
        return None;
    }
    let text = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    // -1, or nothing, if there is no link.
    let megabits = text.trim().parse::<u64>().ok().filter(|speed| *speed > 0)?;
    Some(megabits * 1_000_000 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_said_in_their_own_unit() {
        for (bits, words) in [
            (8, "8 bit/s"),
            (64_000, "64 kbit/s"),
            (1_500_000, "1.5 Mbit/s"),
            (2_500_000_000, "2500 Mbit/s"),
            (100_000_000_000, "100 Gbit/s"),
            (u64::MAX, "18446744 Tbit/s"),
        ] {
            assert_eq!(rate_words(bits), words);
        }
    }

    #[test]
    fn a_rate_that_no_link_has_is_a_sentence() {
        let said = |bytes_per_second| {
            Rate { bytes_per_second, source: "--rate".to_owned() }
                .sensible()
                .map_err(|e| e.to_string())
        };
        assert_eq!(said(12_500_000), Ok(100_000_000));
        assert_eq!(said(4000), Ok(32_000));
        for absurd in [0, 1, 3999, 1_250_000_000_000, u64::MAX] {
            let sentence = said(absurd).unwrap_err();
            assert!(sentence.contains("32 kbit/s to 2000 Gbit/s are possible"), "{sentence}");
        }
    }
}
