//! `uncork tune small-queues`: no connection keeps more in the queue of a device than a target time
//! takes to send.
//!
//! The kernel has the limit (TCP small queues, tcp_limit_output_bytes), but a train of segments is
//! no longer cut to a part of it, and at short round trips is made longer still (tcp_tso_rtt_log):
//! so the limit alone does nothing. It takes all of what is set here together.

mod rate;

use std::num::NonZeroU32;
use std::time::Duration;

pub use rate::Rate;
use uncork_bpf::tune::{Cure, Scope};

use crate::Error;
use crate::change::link::Device;
use crate::change::{Change, Link, Sysctl};
use crate::netns::Handle;
use crate::plan::{Plan, SocketPlan};

/// What may wait unsent in a socket: enough for a program that is woken late not to run dry. It
/// delays nobody but that connection's own next message.
const UNSENT_BYTES: u32 = 128 * 1024;

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The device through which the bulk goes.
    pub device: String,
    /// How long what all senders together have in the queue may take to send.
    pub target: Duration,
    /// The link's rate, if the device is not to be asked.
    pub rate: Option<Rate>,
    /// How many connections send in bulk at a time; one, if that is not known.
    pub senders: Option<NonZeroU32>,
    /// Pace each connection over the device at its part of the rate.
    pub pace: bool,
    /// Where the device is.
    pub netns: Handle,
}

/// What the device itself says of its rate: its shaper, or its speed. `None` if neither does.
///
/// # Errors
/// If the device is not there.
pub fn known_rate(netns: &Handle, device: &str) -> Result<Option<Rate>, Error> {
    rate::known(netns, device)
}

/// What has to be changed for this.
///
/// # Errors
/// If the device is not there, or its rate is not known.
pub fn plan(request: &Request) -> Result<Plan, Error> {
    let Request { device, target, netns, .. } = request;
    let rate = match &request.rate {
        Some(rate) => rate.clone(),
        None => known_rate(netns, device)?.ok_or_else(|| rate::unknown(device))?,
    };
    let bits_per_second = rate.bytes_per_second.saturating_mul(8);
    // To be paced is to be paced at a part of the rate, if only at the whole.
    let senders = request.senders.or(if request.pace { Some(NonZeroU32::MIN) } else { None });
    let sizes = uncork_queues::small_queues(bits_per_second, *target, senders);
    let mut plan = Plan { title: title(request, &rate), ..Plan::default() };
    for (name, value) in [
        ("net.ipv4.tcp_limit_output_bytes", sizes.limit_output_bytes),
        ("net.ipv4.tcp_notsent_lowat", (!request.pace).then_some(UNSENT_BYTES)),
        ("net.ipv4.tcp_min_tso_segs", sizes.min_tso_segments),
        ("net.ipv4.tcp_tso_rtt_log", sizes.tso_rtt_log),
    ] {
        let Some(value) = value else { continue };
        match Sysctl::plan(netns, name, value.to_string()) {
            Ok(sysctl) => plan.changes.push(Change::Sysctl(sysctl)),
            // Kernels before 5.18 have no trains that grow at short round trips.
            Err(_) if name == "net.ipv4.tcp_tso_rtt_log" => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(bytes) = sizes.gso_max_bytes {
        plan.changes.push(Change::Link(Link::plan(netns, device, bytes, sizes.gso_max_segments)?));
    }
    if let Some(bytes_per_second) = sizes.pacing_bytes_per_second.filter(|_| request.pace) {
        plan.sockets = Some(paced(request, bytes_per_second)?);
    }
    Ok(plan)
}

/// Each connection over the device, by eBPF: where programs are set to work anyhow, what may wait
/// unsent is theirs, too, and connections over other devices keep their own.
fn paced(request: &Request, bytes_per_second: u64) -> Result<SocketPlan, Error> {
    let Request { device, netns, .. } = request;
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX - 1);
    let index = Device::named(netns, device)?.index;
    let here = Handle::find(&netns.id)?;
    Ok(SocketPlan {
        cures: vec![Cure::NotsentLowat(UNSENT_BYTES), Cure::Pacing(rate)],
        scope: Scope {
            netns_cookie: Some(netns.id.cookie),
            device: Some(index.cast_unsigned()),
            ..Scope::default()
        },
        new: true,
        live: here.into_iter().collect(),
        words: format!("connections over {device}{}", netns.id.words()),
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
        "small queues on {device}: {target:?} at {} Mbit/s ({}){senders}{}{}",
        rate.bytes_per_second.saturating_mul(8) / 1_000_000,
        rate.source,
        if request.pace { ", paced" } else { "" },
        netns.id.words()
    )
}
