//! Bytes held back by their sender's TCP, for the reason that the kernel itself gave.

use std::time::Duration;

use super::{View, others};
use crate::live::Origin;
use crate::live::sums::Sum;
use crate::report::{Finding, Kind, Severity};
use crate::verdict::words::{count, ms};

/// Fewer holds of a single round trip are no pattern.
const ROUND_TRIPS: u64 = 3;

pub(super) fn by_nagle(view: &View<'_>) -> Option<Finding> {
    let (late, round_trips) = (&view.side().nagle_late, &view.side().nagle_round_trip);
    if late.count == 0 && round_trips.count < ROUND_TRIPS {
        return None;
    }
    let sum = late.copy().with(round_trips);
    let mut evidence = if view.sampled && late.count > 0 {
        format!(
            "Small writes of the {} were seen waiting at least {}, {} each (median), {} at most, \
             with a segment in flight: that is Nagle's algorithm, and the path takes {}. So the \
             {} delayed its ACK.",
            view.name(),
            count(late.count, "time", "times"),
            ms(late.spread().p50),
            ms(late.spread().max),
            view.side().socket.as_ref().map_or_else(|| "less".to_owned(), |s| ms(s.min_rtt)),
            view.other_name(),
        )
    } else if view.sampled {
        format!(
            "Small writes of the {} were seen waiting at least {} for what was in flight to be \
             acknowledged, {} each (median): that is Nagle's algorithm, and no longer than a \
             round trip or a little more.",
            view.name(),
            count(round_trips.count, "time", "times"),
            ms(round_trips.spread().p50),
        )
    } else if late.count > 0 {
        format!(
            "Nagle's algorithm held small writes of the {} {} until the {} acknowledged what was \
             in flight, {} each (median), {} at most: that ACK was delayed.",
            view.name(),
            count(late.count, "time", "times"),
            view.other_name(),
            ms(late.spread().p50),
            ms(late.spread().max),
        )
    } else {
        format!(
            "Nagle's algorithm held small writes of the {} {} for a round trip ({}), until the \
             ACK of the one before came; the ACKs themselves came at once.",
            view.name(),
            count(round_trips.count, "time", "times"),
            ms(round_trips.spread().p50),
        )
    };
    evidence.push_str(&pattern(view));
    evidence.push_str(&stack(view));
    let is_late = late.count > 0;
    let mut finding = sum.finding(Kind::NagleDelayedAck, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = is_late.then_some(view.role().other());
    Some(finding)
}

/// Describes how the program writes its messages.
fn pattern(view: &View<'_>) -> String {
    let Some(socket) = &view.side().socket else { return String::new() };
    let writing = &socket.writing;
    if socket.origin == Origin::Peer {
        if writing.typical_segments < 2 {
            return String::new();
        }
        // It is followed only from when something of it was held, and its program is not: as in a capture, its
        // segments are what is known.
        return format!(" Its messages come in {} segments.", writing.typical_segments);
    }
    match writing.message_writes.checked_div(writing.messages) {
        Some(writes) if writes > 1 => {
            format!(" It makes {writes} writes for a message of {} octets.", writing.typical_bytes)
        }
        _ => String::new(),
    }
}

/// Returns the call stack of the write, if stacks were asked for.
fn stack(view: &View<'_>) -> String {
    let most = view.side().stacks.iter().max_by_key(|(_, times)| *times);
    match most {
        Some((calls, times)) => format!(
            " {} the write came from {}.",
            count(*times, "time", "times"),
            calls.join(" < ")
        ),
        None => String::new(),
    }
}

pub(super) fn as_runts(view: &View<'_>) -> Option<Finding> {
    let sum = view.side().runts.copy();
    if sum.count == 0 {
        return None;
    }
    let late = sum.spread().p50 >= crate::live::link::LATE;
    if !late && sum.count < ROUND_TRIPS {
        return None;
    }
    let mut evidence = format!(
        "{} of the {} behind full segments waited for an ACK ({} at most): what is left of a \
         message once it is cut into segments.",
        count(sum.count, "short write", "short writes"),
        view.name(),
        ms(sum.spread().max),
    );
    evidence.push_str(&stack(view));
    let mut finding = sum.finding(Kind::Runt, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = late.then_some(view.role().other());
    Some(finding)
}

pub(super) fn by_cork(view: &View<'_>) -> Option<Finding> {
    let sum = view.side().corks.copy();
    if sum.count == 0 {
        return None;
    }
    let mut evidence = format!(
        "{} {} left its last bytes corked (TCP_CORK or MSG_MORE) {}: they went only when an ACK \
         came or the kernel's timer sent them, after {} (median).",
        if view.sampled { "As far as could be seen, the" } else { "The" },
        view.name(),
        count(sum.count, "time", "times"),
        ms(sum.spread().p50),
    );
    evidence.push_str(&stack(view));
    let mut finding = sum.finding(Kind::CorkTimeout, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

/// Less than this is a reader that takes turns with the writer.
const LONG: Duration = Duration::from_millis(20);
/// So is less than one part in so many of the time in which there was something to send.
const SHARE: u32 = 10;

pub(super) fn by_window(view: &View<'_>) -> Option<Finding> {
    let mut sum = view.side().window.copy();
    let times = view.side().socket.as_ref().map(|s| (s.window_limited, s.busy));
    let (limited, busy) = times.unwrap_or_default();
    // Bytes that wait in a queue of the sender's own fill the window, too: then the receiver is not
    // what is slow. A shut window would have been seen.
    if sum.count == 0 && others::sender_queue(view).is_some() {
        return None;
    }
    // A bulk transfer fills the window now and then; that alone slows nothing down.
    if limited.max(sum.lost) < LONG || limited.max(sum.lost) * SHARE < busy {
        return None;
    }
    // The kernel's own clock for this also runs while the writer sleeps in its call.
    if sum.lost < limited {
        sum.lost = limited;
        sum.each.record(limited.saturating_sub(sum.each.spread().max));
        sum.count = sum.count.max(1);
    }
    let evidence = format!(
        "The receive window of the {} kept the {} waiting for {} in all: the program there does not \
         read fast enough, or its receive buffer is small for this path.",
        view.other_name(),
        view.name(),
        ms(sum.lost),
    );
    let mut finding = sum.finding(Kind::ZeroWindow, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = Some(view.role().other());
    Some(finding)
}

pub(super) fn until_sent_again(view: &View<'_>) -> Option<Finding> {
    let mut sum = view.side().again.copy();
    let counted = view.side().socket.as_ref().map_or(0, |s| u64::from(s.retransmissions));
    if sum.count.max(counted) == 0 {
        return None;
    }
    let untimed = sum.count == 0;
    sum.count = sum.count.max(counted);
    let severity =
        if sum.lost >= Duration::from_millis(1) { Severity::LostTime } else { Severity::Harmless };
    let evidence = if untimed {
        format!("The {} sent {} again.", view.name(), count(counted, "segment", "segments"))
    } else {
        format!(
            "The {} sent {} again, {} of them after a timeout: {} after the time before (median), \
             {} at most.",
            view.name(),
            count(sum.count, "segment", "segments"),
            view.side().timeouts,
            ms(sum.spread().p50),
            ms(sum.spread().max),
        )
    };
    let mut finding = Sum::finding(sum, Kind::Retransmission, severity, evidence);
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}
