//! Observation of a device and of the connections that use it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use socket2::Socket;
use uncork_lab::probe::{PING_GIVEN_UP, ping_from, ping_is_answered, ping_socket};
use uncork_sockdiag::{Answer, Name, SockDiag};
use uncork_tune::device::Meter;
use uncork_tune::netns::Handle;

use crate::seen::{Seen, Spread};

/// With data to send in less than this share of the time there is no load to judge by.
pub const BUSY_SHARE: f64 = 0.9;
/// Sampling interval for the connections that are followed.
const EVERY: Duration = Duration::from_millis(4);
/// Interval between two queries for all connections, which take milliseconds on a large host: at
/// most a twentieth of the time is spent on that.
const ALL_EVERY: Duration = Duration::from_millis(200);
const ALL_SHARE: u32 = 20;
/// How often a load is looked for: a bulk sender may just be about to write the next piece.
const GLANCES: u32 = 5;
/// How many pings are tried: one may be lost, and so may the next.
const PINGS: u16 = 3;
/// How many connections are followed one by one, bulk senders first.
const FOLLOWED: usize = 64;

/// The observer of a device.
#[derive(Debug)]
pub struct Watch {
    meter: Meter,
    kernel: SockDiag,
    ping: Option<Socket>,
    /// Whether the route between two addresses leads over the device.
    leads: HashMap<(IpAddr, IpAddr), bool>,
}

/// A connection over the device.
struct Connection {
    name: Name,
    first_acked: u64,
    acked: u64,
    busy: bool,
    gone: bool,
}

impl Watch {
    /// Opens the observer of a device in a network namespace. An address, if given, is pinged meanwhile.
    ///
    /// # Errors
    /// If the device is not there, or no ping may be sent.
    pub fn open(handle: &Handle, device: &str, ping: Option<Ipv4Addr>) -> Result<Self> {
        let meter = Meter::open(handle, device)?;
        let kernel = handle.within(SockDiag::open)?.context("no line to the kernel's sockets")?;
        let socket = |to: Ipv4Addr| {
            handle.within(|| ping_socket(to))?.with_context(|| format!("{to} cannot be pinged"))
        };
        let ping = ping.map(socket).transpose()?;
        Ok(Self { meter, kernel, ping, leads: HashMap::new() })
    }

    /// Returns whether any connection over the device has more to send than it has sent, at the moment.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn is_busy(&mut self) -> Result<bool> {
        self.leads.clear();
        for _ in 0..GLANCES {
            let all = self.kernel.connections()?;
            if all.iter().any(|answer| answer.info.notsent_bytes > 0 && self.is_ours(answer)) {
                return Ok(true);
            }
            thread::sleep(EVERY);
        }
        Ok(false)
    }

    /// Returns whether the pinged host answers one of a few pings; true if none is pinged.
    ///
    /// # Errors
    /// If no ping can be sent; soon after `stop` was set.
    pub fn is_answered(&self, stop: &AtomicBool) -> Result<bool> {
        let Some(socket) = &self.ping else { return Ok(true) };
        // Numbers far from those of the pings in a measurement.
        for sequence in (0..PINGS).map(|number| u16::MAX - number) {
            if stop.load(Relaxed) {
                bail!("interrupted");
            }
            if ping_is_answered(socket, sequence)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Measures for that long.
    ///
    /// # Errors
    /// If the kernel does not tell; soon after `stop` was set.
    pub fn look(&mut self, length: Duration, stop: &AtomicBool) -> Result<Seen> {
        self.leads.clear();
        let ping = self.ping.as_ref().map(Socket::try_clone).transpose()?.map(ping_from);
        let mut look = Look::new()?;
        let sent = self.meter.sent_bytes()?;
        let begin = Instant::now();
        let mut next = begin;
        while begin.elapsed() < length {
            if stop.load(Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() >= next {
                let asked = Instant::now();
                self.all(&mut look)?;
                next = asked + ALL_EVERY.max(asked.elapsed() * ALL_SHARE);
            }
            self.sample(&mut look)?;
            thread::sleep(EVERY);
        }
        self.all(&mut look)?;
        let sent = self.meter.sent_bytes()?.saturating_sub(sent);
        let mut seen = look.seen(begin.elapsed(), sent);
        if let Some(ping) = ping {
            let times = ping.finish().context("the ping beside the load")?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some seconds
            let us = |ms: f64| (ms * 1e3) as u64;
            let (p50, p99) = (us(times.p50_ms), us(times.p99_ms));
            // If most of them were not answered, they have no round trip.
            let answered = times.p50_ms < PING_GIVEN_UP.as_secs_f64() * 1e3;
            let spread = Spread { count: times.count, p50, p99 };
            seen.ping_us = Some(if answered { spread } else { Spread::default() });
        }
        Ok(seen)
    }

    /// Reads all connections.
    fn all(&mut self, look: &mut Look) -> Result<()> {
        let mut elsewhere = 0;
        for answer in self.kernel.connections()? {
            let busy = answer.info.notsent_bytes > 0;
            if !self.is_ours(&answer) {
                elsewhere += u32::from(busy);
                continue;
            }
            let acked = answer.info.bytes_acked;
            let first_acked = if look.begun { 0 } else { acked };
            let new = Connection { name: answer.name, first_acked, acked, busy, gone: false };
            let known = look.connections.entry(answer.cookie).or_insert(new);
            (known.acked, known.busy) = (acked, busy);
        }
        look.begun = true;
        look.elsewhere = look.elsewhere.max(elsewhere);
        let mut living: Vec<_> = look.connections.iter().filter(|(_, one)| !one.gone).collect();
        living.sort_unstable_by_key(|(_, one)| !one.busy);
        look.followed = living.into_iter().map(|(cookie, _)| *cookie).take(FOLLOWED).collect();
        Ok(())
    }

    /// Reads the queue, and the connections that are followed.
    fn sample(&mut self, look: &mut Look) -> Result<()> {
        if let Some(bytes) = self.meter.backlog_bytes()? {
            look.backlog.saturating_record(bytes);
        }
        let mut senders = 0;
        for cookie in &look.followed {
            let Some(one) = look.connections.get_mut(cookie).filter(|one| !one.gone) else {
                continue;
            };
            let Some(answer) = self.kernel.connection(&one.name)? else {
                one.gone = true;
                continue;
            };
            let busy = answer.info.notsent_bytes > 0;
            senders += u64::from(busy);
            // If nothing was acknowledged on a connection its figure is an old one.
            if answer.info.bytes_acked > one.acked {
                let times = if busy { &mut look.bulk } else { &mut look.others };
                times.saturating_record(answer.info.rtt.into());
            }
            one.acked = answer.info.bytes_acked;
        }
        look.samples += 1;
        look.senders += senders;
        look.busy += u64::from(senders > 0);
        Ok(())
    }

    fn is_ours(&mut self, answer: &Answer) -> bool {
        let (local, remote) = (answer.local.ip(), answer.remote.ip());
        let meter = &mut self.meter;
        *self
            .leads
            .entry((local, remote))
            .or_insert_with(|| meter.towards(local, remote) == Some(meter.index()))
    }
}

/// One measurement.
struct Look {
    connections: HashMap<u64, Connection>,
    followed: Vec<u64>,
    begun: bool,
    elsewhere: u32,
    samples: u64,
    senders: u64,
    busy: u64,
    backlog: Histogram<u64>,
    bulk: Histogram<u64>,
    others: Histogram<u64>,
}

impl Look {
    fn new() -> Result<Self> {
        // Up to a terabyte, or two weeks in microseconds.
        let histogram = || Histogram::new_with_max(1 << 40, 3);
        Ok(Self {
            connections: HashMap::new(),
            followed: Vec::new(),
            begun: false,
            elsewhere: 0,
            samples: 0,
            senders: 0,
            busy: 0,
            backlog: histogram()?,
            bulk: histogram()?,
            others: histogram()?,
        })
    }

    #[allow(clippy::cast_precision_loss)] // far below 2^53 in any look
    fn seen(&self, took: Duration, sent_bytes: u64) -> Seen {
        let seconds = took.as_secs_f64();
        let each = self.connections.values().map(|one| one.acked.saturating_sub(one.first_acked));
        let payload: u64 = each.sum();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds;
        let part = |count: u64| count as f64 / self.samples.max(1) as f64;
        let backlog = (!self.backlog.is_empty()).then(|| Spread::of(&self.backlog));
        Seen {
            seconds,
            senders: part(self.senders),
            busy_share: part(self.busy),
            payload_bits_per_second: rate(payload),
            device_bits_per_second: rate(sent_bytes),
            backlog_bytes: backlog,
            bulk_us: Spread::of(&self.bulk),
            others_us: Spread::of(&self.others),
            ping_us: None,
            elsewhere: self.elsewhere,
        }
    }
}
