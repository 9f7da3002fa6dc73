//! Options, packets, queues, and programs.

use std::time::Duration;

use super::View;
use crate::live::Astray;
use crate::live::sums::Sum;
use crate::report::{Finding, Kind, Severity};
use crate::verdict::words::{count, ms};
use crate::{Histogram, Settings};

/// Headers of a segment on Ethernet: 14 octets, 20 of IPv4, 32 of TCP with timestamps.
const HEADERS: u64 = 66;
/// Fewer needless segments are not reported, nor is less than so many times what is needed.
const NEEDLESS: u64 = 16;
const MANY_TIMES: u64 = 4;
/// Segments with more data than this are not tiny.
const TINY_BYTES: u64 = 256;
/// A queue shorter than this is no trouble.
const LONG_QUEUE: Duration = Duration::from_millis(3);
/// Writes without room that must be seen before anything is reported.
const MEASURED: u64 = 6;

/// Finds TCP_NODELAY asked for, while Nagle's algorithm held bytes all the same.
pub(super) fn nodelay(view: &View<'_>) -> Option<Finding> {
    let side = view.side();
    let held = side.nagle_late.count + side.nagle_round_trip.count + side.runts.count;
    if held == 0 {
        return None;
    }
    let options = side.socket.as_ref().map(|socket| socket.options).unwrap_or_default();
    let how: String = match (options.nodelay_on, options.nodelay_off) {
        (Some(on), Some(off)) if off > on => "set TCP_NODELAY and took it off again".into(),
        (Some(_), _) if side.cured_late > 0 || options.nodelay => {
            "set TCP_NODELAY only after bytes had been held".into()
        }
        (Some(_), _) => "set TCP_NODELAY, and it is not in force".into(),
        (None, _) => in_vain(options.nodelay_astray?),
    };
    let evidence = format!(
        "The program of the {} {how}: Nagle's algorithm held its bytes {}.",
        view.name(),
        count(held, "time", "times"),
    );
    let mut finding = Sum::default().finding(Kind::NoDelayNotInForce, Severity::Waste, evidence);
    finding.count = held;
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

/// Says how a program that meant to set TCP_NODELAY failed.
fn in_vain(astray: Astray) -> String {
    match astray {
        Astray::Level(level) => format!(
            "set option 1 at level {level}; TCP_NODELAY is option 1 at level IPPROTO_TCP, and is \
             not in force"
        ),
        Astray::Short { octets } => format!(
            "passed TCP_NODELAY a value of {}, which the kernel refuses: it takes an int, of four",
            count(octets.into(), "octet", "octets"),
        ),
        Astray::Listener => {
            "set TCP_NODELAY on the listening socket when this connection had been \
                             accepted already: only later ones inherit it"
                .to_owned()
        }
        Astray::NotTcp => {
            "set TCP_NODELAY on a socket that is not TCP's, and not on this one: was \
                           it the wrong descriptor?"
                .to_owned()
        }
    }
}

pub(super) fn tiny_packets(view: &View<'_>) -> Option<Finding> {
    let writing = &view.side().socket.as_ref()?.writing;
    let mss = u64::from(view.side().mss()?);
    let mean_bytes = writing.message_bytes.checked_div(writing.message_segments)?;
    let mean_message = writing.message_bytes.checked_div(writing.messages)?;
    let needed = writing.messages * mean_message.div_ceil(mss).max(1);
    let needless = writing.message_segments.saturating_sub(needed);
    let many = writing.message_segments >= needed * MANY_TIMES;
    if needless < NEEDLESS || !many || mean_bytes > TINY_BYTES {
        return None;
    }
    let evidence = format!(
        "The {} sent {} segments of {mean_bytes} octets on average where {needed} would have \
         done: {} writes a message, and {} % of what went over the wire was headers.",
        view.name(),
        writing.message_segments,
        writing.message_writes / writing.messages.max(1),
        HEADERS * 100 / (HEADERS + mean_bytes),
    );
    let mut finding = Sum::default().finding(Kind::TinyPackets, Severity::Waste, evidence);
    finding.count = writing.messages;
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

pub(super) fn sender_queue(view: &View<'_>) -> Option<Finding> {
    let socket = view.side().socket.as_ref()?;
    let queue = &socket.queue;
    let queued = queue.mean_rtt.saturating_sub(socket.min_rtt);
    let long = queued >= LONG_QUEUE && queue.mean_rtt >= 3 * socket.min_rtt;
    if queue.samples < MEASURED || !long {
        return None;
    }
    let evidence = format!(
        "While the {} had up to {} octets under way, a round trip took {} ({} at most) where the \
         path alone takes {}: the rest is spent in a queue of its own making.",
        view.name(),
        queue.most_bytes,
        ms(queue.mean_rtt),
        ms(queue.longest_rtt),
        ms(socket.min_rtt),
    );
    let mut sum = Sum::default();
    sum.each.record(queue.mean_rtt);
    sum.each.record(queue.longest_rtt);
    let mut finding = sum.finding(Kind::SenderQueue, Severity::Waste, evidence);
    finding.count = queue.samples;
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

/// Finds a slow program at the server: as it is seen there, else as the client waited for it.
pub(super) fn slow_program(
    view: &View<'_>,
    lost: Duration,
    settings: &Settings,
) -> Option<Finding> {
    let slow = settings.slow_application;
    if let Some(server) = &view.side().socket {
        let sum = longer(&server.turns, slow);
        return (sum.count > 0).then(|| {
            let evidence = format!(
                "The program of the {} took {} before it wrote {} ({} at most), with nothing held \
                 by TCP: this is not TCP.",
                view.name(),
                ms(sum.spread().p50),
                count(sum.count, "reply", "replies"),
                ms(sum.spread().max),
            );
            by_program(sum, view, evidence)
        });
    }
    // From here the server's program cannot be told from its TCP, unless that shows no trouble.
    let client = view.other().socket.as_ref()?;
    if !lost.is_zero() || client.awaited_acks > 0 {
        return None;
    }
    // Nor while the request itself has yet to pass a queue.
    if sender_queue(&View { at: 1 - view.at, ..*view }).is_some() {
        return None;
    }
    let sum = longer(&client.waits, slow + client.min_rtt);
    (sum.count > 0).then(|| {
        let longest = match sum.count {
            1 => String::new(),
            _ => format!(" (median, {} at most)", ms(sum.spread().max)),
        };
        let evidence = format!(
            "{} took {}{longest}, where the path takes {}, and nothing was held at this end: the \
             server took its time.",
            count(sum.count, "reply", "replies"),
            ms(sum.spread().p50),
            ms(client.min_rtt),
        );
        by_program(sum, view, evidence)
    })
}

fn by_program(sum: Sum, server: &View<'_>, evidence: String) -> Finding {
    let mut finding = sum.finding(Kind::Application, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(server.role());
    finding
}

/// Returns the times that are at least that long.
fn longer(times: &Histogram, least: Duration) -> Sum {
    let mut sum = Sum::default();
    for (time, count) in times.times().filter(|(time, _)| *time >= least) {
        sum.count += u64::from(count);
        sum.lost += time * count;
        sum.each.record_times(time, count);
    }
    sum
}
