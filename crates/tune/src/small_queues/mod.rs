//! `uncork tune small-queues`: no connection keeps more in the queue of a device than a target time
//! takes to send.
//!
//! The kernel has the limit (TCP small queues, tcp_limit_output_bytes), but a train of segments is
//! no longer cut to a part of it, and at short round trips is made longer still (tcp_tso_rtt_log):
//! so the limit alone does nothing. It takes all of what is set here together.

mod rate;

use std::time::Duration;

pub use rate::Rate;

use crate::Error;
use crate::change::{Change, Link, Sysctl};
use crate::netns::Handle;
use crate::plan::Plan;

/// What may wait unsent in a socket: enough for a program that is woken late not to run dry. It
/// delays nobody but that connection's own next message.
const UNSENT_BYTES: u32 = 128 * 1024;

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The device through which the bulk goes.
    pub device: String,
    /// How long what one connection has in the queue may take to send.
    pub target: Duration,
    /// Bytes a second, if the device is not to be asked.
    pub rate_bytes_per_second: Option<u64>,
    /// Where the device is.
    pub netns: Handle,
}

/// What has to be changed for this.
///
/// # Errors
/// If the device is not there, or its rate is not known.
pub fn plan(request: &Request) -> Result<Plan, Error> {
    let Request { device, target, netns, .. } = request;
    let rate = match request.rate_bytes_per_second {
        Some(bytes_per_second) => Rate { bytes_per_second, source: "--rate".to_owned() },
        None => rate::learn(netns, device)?,
    };
    let bits_per_second = rate.bytes_per_second.saturating_mul(8);
    let sizes = uncork_queues::small_queues(bits_per_second, *target, None);
    let title = format!(
        "small queues on {device}: {target:?} at {} Mbit/s ({}){}",
        bits_per_second / 1_000_000,
        rate.source,
        netns.id.words()
    );
    let mut changes = Vec::new();
    for (name, value) in [
        ("net.ipv4.tcp_limit_output_bytes", sizes.limit_output_bytes),
        ("net.ipv4.tcp_notsent_lowat", Some(UNSENT_BYTES)),
        ("net.ipv4.tcp_min_tso_segs", sizes.min_tso_segments),
        ("net.ipv4.tcp_tso_rtt_log", sizes.tso_rtt_log),
    ] {
        let Some(value) = value else { continue };
        match Sysctl::plan(netns, name, value.to_string()) {
            Ok(sysctl) => changes.push(Change::Sysctl(sysctl)),
            // Kernels before 5.18 have no trains that grow at short round trips.
            Err(_) if name == "net.ipv4.tcp_tso_rtt_log" => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(bytes) = sizes.gso_max_bytes {
        changes.push(Change::Link(Link::plan(netns, device, bytes)?));
    }
    Ok(Plan { title, changes, ..Plan::default() })
}
