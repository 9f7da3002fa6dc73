//! `uncork tune small-queues`: no connection keeps more in the queue of a device than it sends in a
//! target time.
//!
//! The kernel has the limit (TCP small queues, tcp_limit_output_bytes), but it no longer cuts a train
//! of segments to a part of that, and makes trains longer still at short round trips (tcp_tso_rtt_log):
//! so the limit alone has no effect. All the settings made here are needed together.

mod bound;
mod rate;

use std::num::NonZeroU32;
use std::time::Duration;

pub use rate::{Rate, rate_words};
use uncork_bpf::tune::{Cure, Scope};
use uncork_queues::QueueSettings;

use crate::Error;
use crate::change::link::Device;
use crate::change::{Change, Link, Sysctl};
use crate::journal::Entry;
use crate::netns::Handle;
use crate::plan::{Plan, SocketPlan};

/// What may wait unsent in a socket: enough for a program that is woken late not to run dry. It
/// delays only that connection's own next message.
const UNSENT_BYTES: u32 = 128 * 1024;
const NOTSENT_LOWAT: &str = "net.ipv4.tcp_notsent_lowat";

/// A request for short queues.
#[derive(Debug)]
pub struct Request {
    /// The device through which bulk data is sent.
    pub device: String,
    /// How long the queued data of all senders together may take to send.
    pub target: Duration,
    /// The link's rate, if the device is not to be asked for it.
    pub rate: Option<Rate>,
    /// How many connections send bulk data at a time; one, if that is not known.
    pub senders: Option<NonZeroU32>,
    /// Whether each connection over the device is paced at its share of the rate.
    pub pace: bool,
    /// The namespace of the device.
    pub netns: Handle,
}

/// Returns the rate that the device itself reports: its shaper's, or its speed. `None` if it has neither.
///
/// # Errors
/// If the device is not there.
pub fn known_rate(netns: &Handle, device: &str) -> Result<Option<Rate>, Error> {
    rate::known(netns, device)
}

/// Returns the youngest of these entries that keeps the queue of this device short.
///
/// # Errors
/// If the device is not there.
pub fn standing_on(netns: &Handle, device: &str, standing: &[Entry]) -> Result<Option<u32>, Error> {
    let index = Device::named(netns, device)?.index;
    let is_on = |change: &Change| matches!(change, Change::Link(link) if link.netns == netns.id && link.index == index);
    let on = standing.iter().rev().find(|entry| entry.changes.iter().any(is_on));
    Ok(on.map(|entry| entry.id))
}

/// Plans the changes for a request, given the entries in force: nothing is made looser than it is.
///
/// # Errors
/// If the device is not there, or its rate is not known, or is that of no link.
pub fn plan(request: &Request, standing: &[Entry]) -> Result<Plan, Error> {
    let Request { device, target, netns, .. } = request;
    let rate = match &request.rate {
        Some(rate) => rate.clone(),
        None => known_rate(netns, device)?.ok_or_else(|| rate::unknown(device))?,
    };
    let bits_per_second = rate.sensible()?;
    // Pacing is at a share of the rate, if only at the whole of it.
    let senders = request.senders.or(if request.pace { Some(NonZeroU32::MIN) } else { None });
    let sizes = uncork_queues::small_queues(bits_per_second, *target, senders);
    let mut plan = Plan { title: title(request, &rate), ..Plan::default() };
    let link = Link::plan(netns, device, sizes.gso_max_bytes, sizes.gso_max_segments)?;
    for (name, value) in [
        ("net.ipv4.tcp_limit_output_bytes", sizes.limit_output_bytes),
        (NOTSENT_LOWAT, (!request.pace).then_some(UNSENT_BYTES)),
        ("net.ipv4.tcp_min_tso_segs", sizes.min_tso_segments),
        ("net.ipv4.tcp_tso_rtt_log", sizes.tso_rtt_log),
    ] {
        let Some(value) = value else { continue };
        match Sysctl::plan(netns, name, value.to_string()) {
            Ok(sysctl) => plan.changes.push(Change::Sysctl(sysctl)),
            // Kernels before 5.18 do not lengthen trains at short round trips.
            Err(_) if name == "net.ipv4.tcp_tso_rtt_log" => {}
            Err(error) => return Err(error),
        }
    }
    plan.changes.push(Change::Link(link.clone()));
    for change in &mut plan.changes {
        plan.notes.extend(bound::tighten(change, &link, standing));
    }
    if !request.pace {
        plan.notes.extend(unmet(request, bits_per_second, &sizes));
    }
    if let Some(bytes_per_second) = sizes.pacing_bytes_per_second.filter(|_| request.pace) {
        plan.sockets = Some(paced(request, bytes_per_second)?);
    }
    Ok(plan)
}

/// Plans eBPF programs for each connection over the device: where programs run anyway, they set
/// what may wait unsent, too, and connections over other devices keep their own.
fn paced(request: &Request, bytes_per_second: u64) -> Result<SocketPlan, Error> {
    let Request { device, netns, .. } = request;
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX - 1);
    let index = Device::named(netns, device)?.index;
    let here = Handle::find(&netns.id)?;
    // A socket's own value replaces the setting for all, which may be tighter.
    let unsent = Sysctl::plan(netns, NOTSENT_LOWAT, String::new())?.before.parse();
    let unsent = unsent.map_or(UNSENT_BYTES, |present: u32| present.clamp(1, UNSENT_BYTES));
    Ok(SocketPlan {
        cures: vec![Cure::NotsentLowat(unsent), Cure::Pacing(rate)],
        scope: Scope {
            netns_cookie: Some(netns.id.cookie),
            device: Some(index.cast_unsigned()),
            looser_only: true,
            ..Scope::default()
        },
        new: true,
        netns: Some(netns.id.clone()),
        live: here.into_iter().collect(),
        words: format!("connections over {device}{}", netns.id.words()),
    })
}

/// Says that the target is shorter than what TCP queues at least, if it is.
fn unmet(request: &Request, bits_per_second: u64, sizes: &QueueSettings) -> Option<String> {
    let senders = request.senders.unwrap_or(NonZeroU32::MIN);
    let least = uncork_queues::least_queued(bits_per_second, senders, sizes)?;
    let who =
        if senders == NonZeroU32::MIN { String::new() } else { format!(" of {senders} senders") };
    let rate = rate_words(bits_per_second);
    let segments = match sizes.gso_max_segments {
        Some(1) | None => "two full segments".to_owned(),
        Some(more) => format!("two trains of {more} segments, which keep the device busy,"),
    };
    (least > request.target).then(|| {
        format!(
            "the target of {:?} cannot be met: {segments}{who} take {least:.1?} at {rate}, and TCP \
             has as much in the queue at least",
            request.target
        )
    })
}

fn title(request: &Request, rate: &Rate) -> String {
    let Request { device, target, netns, .. } = request;
    let senders = match request.senders.map(NonZeroU32::get) {
        None => String::new(),
        Some(1) => " for 1 sender".to_owned(),
        Some(more) => format!(" for {more} senders"),
    };
    format!(
        "small queues on {device}: {target:?} at {} ({}){senders}{}{}",
        rate_words(rate.bytes_per_second.saturating_mul(8)),
        rate.source,
        if request.pace { ", paced" } else { "" },
        netns.id.words()
    )
}
