//! Bytes held back by their sender's TCP.

use std::time::Duration;

use super::words::{at_most, count, ms, times};
use super::{Sum, View};
use crate::report::{Finding, Kind, Severity};
use crate::tally::Cause;

/// Data some milliseconds after a late ACK was held by it if so many times more came at once.
const MOSTLY: u64 = 3;

/// Fewer holds of a single round trip are no pattern.
const ROUND_TRIPS: u64 = 3;

/// A window that is shut no longer than this is how a fast sender and a fast reader take turns.
const SHORTLY_SHUT: Duration = Duration::from_millis(1);

pub(super) fn by_nagle(view: &View<'_>) -> Option<Finding> {
    let mut late = view.count(Cause::NagleLateAck);
    let round_trips = view.count(Cause::NagleRoundTrip);
    let all = late + round_trips;
    let near = view.tally(Cause::NearLateAck).filter(|near| near.count * MOSTLY <= late);
    late += near.map_or(0, |near| near.count);
    if is_coincidence(view, all) || (late == 0 && round_trips < ROUND_TRIPS) {
        return None;
    }
    let causes = [Cause::NagleLateAck, Cause::NagleRoundTrip].map(|cause| view.tally(cause));
    let sum = Sum::of(causes.into_iter().chain([near]));
    let (sender, receiver) = (view.role(), view.role().other());
    let messages = count(view.sender.messages.segments.get().into(), "segment", "segments");
    let evidence = if late > 0 {
        let others = match round_trips {
            0 => String::new(),
            more => format!(" {more} more waited only for the path's round trip."),
        };
        format!(
            "{} of the {sender} waited for an ACK that the {receiver} delayed ({}), and left right \
             behind it; its messages come in {messages}.{others}",
            count(late, "small segment", "small segments"),
            at_most(late, sum.spread().max),
        )
    } else {
        format!(
            "{} of the {sender} waited a round trip ({}) for the ACK of the one before; the ACKs \
             themselves came at once.",
            count(round_trips, "small segment", "small segments"),
            ms(sum.spread().p50),
        )
    };
    // Nothing waits for an end that never replies: what it gets merely comes a round trip later.
    let one_way = late == 0 && view.receiver.data_segments == 0;
    let severity = if one_way { Severity::Harmless } else { Severity::LostTime };
    let mut finding = sum.finding(Kind::NagleDelayedAck, severity, evidence);
    finding.bytes_held_by = Some(sender);
    finding.ack_held_by = (late > 0).then_some(receiver);
    Some(finding)
}

pub(super) fn as_runts(view: &View<'_>) -> Option<Finding> {
    let causes = [Cause::RuntLateAck, Cause::RuntRoundTrip];
    let sum = Sum::of(causes.map(|cause| view.tally(cause)));
    if sum.count == 0 || is_coincidence(view, sum.count) {
        return None;
    }
    let late = view.count(Cause::RuntLateAck) > 0;
    if !late && sum.count < ROUND_TRIPS {
        return None;
    }
    let (full, message) = (view.sender.full_bytes(), view.sender.messages.bytes.get());
    // Not so where most messages are shorter than a segment.
    let of = if message > full { format!(" of about {message} octets") } else { String::new() };
    let evidence = format!(
        "{} behind full ones of {full} octets waited for an ACK ({}): what is left of a message{of} \
         once it is cut into segments.",
        count(sum.count, "short segment", "short segments"),
        at_most(sum.count, sum.spread().max),
    );
    let mut finding = sum.finding(Kind::Runt, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = late.then_some(view.role().other());
    Some(finding)
}

/// Returns whether the holds are a coincidence: a program that paces itself may now and then write
/// just when an ACK comes, and one that does not wait for ACKs sends small segments back to back.
fn is_coincidence(view: &View<'_>, held: u64) -> bool {
    held <= view.sender.unhurried.into() || held <= view.sender.small_behind_small.into()
}

/// Returns whether the pauses that look like a cork's ceiling are one: a kernel's timer expires at
/// its ticks, and a program that works or sleeps does not. After full segments of the same message a
/// few are believed without that, unless their program pauses there as often for other times.
pub(super) fn is_cork(view: &View<'_>) -> bool {
    if let Some(tails) = view.tally(Cause::Cork) {
        let by_timer = !tails.ticks.can_tell() || tails.ticks.are_kept();
        let others = view.count(Cause::Program);
        return by_timer && others < tails.count && !is_lost_tail(view);
    }
    view.tally(Cause::CorkOrProgram).is_some_and(|tally| tally.ticks.are_kept())
}

/// Returns whether tails that came after a timeout had been sent before and lost on their way to the
/// capture point. The only sign of that is that others were not held.
pub(super) fn is_lost_tail(view: &View<'_>) -> bool {
    view.count(Cause::Cork) <= u64::from(view.sender.messages.prompt_tails)
}

pub(super) fn by_cork(view: &View<'_>) -> Option<Finding> {
    if !is_cork(view) {
        return None;
    }
    let sum = Sum::of([Cause::Cork, Cause::CorkOrProgram].map(|cause| view.tally(cause)));
    let evidence = format!(
        "{} of the {} left with nothing in flight before and no ACK to wait for, {} after what \
         came before: the time that a kernel leaves what is held by TCP_CORK or MSG_MORE.",
        count(sum.count, "short segment", "short segments"),
        view.role(),
        ms(sum.spread().p50),
    );
    let mut finding = sum.finding(Kind::CorkTimeout, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

/// Finds what MSG_MORE held, with something in flight: it waits for the ACK as under Nagle's
/// algorithm, but whatever TCP_NODELAY says.
pub(super) fn until_acked_with_more(view: &View<'_>) -> Option<Finding> {
    let sum = Sum::of([Cause::MoreLateAck, Cause::MoreRoundTrip].map(|cause| view.tally(cause)));
    let late = view.count(Cause::MoreLateAck) > 0;
    let pattern = sum.count >= ROUND_TRIPS || late;
    if sum.count == 0 || !pattern || sum.count <= view.sender.unhurried.into() {
        return None;
    }
    let evidence = format!(
        "{} of the {} waited for an ACK ({}), without the PSH flag that ends a write: held by \
         MSG_MORE, with which TCP_NODELAY does not help.",
        count(sum.count, "short segment", "short segments"),
        view.role(),
        at_most(sum.count, sum.spread().max),
    );
    let mut finding = sum.finding(Kind::CorkTimeout, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = late.then_some(view.role().other());
    Some(finding)
}

pub(super) fn by_window(view: &View<'_>) -> Option<Finding> {
    let shut = view.tally(Cause::Window)?;
    let unread = view.tally(Cause::Unread);
    let sum = Sum::of([Some(shut), unread]);
    let mut evidence = format!(
        "The receive window of the {} was shut, or had no room for a segment, {} ({}), and the {} \
         went on as soon as it opened: the program there does not read fast enough.",
        view.role().other(),
        times(shut.count),
        at_most(shut.count, shut.each.spread().max),
        view.role(),
    );
    if let Some(unread) = unread {
        evidence.push_str(&format!(
            " What was in its buffer at the end took it {} more to read.",
            ms(unread.lost),
        ));
    }
    let severity = if sum.lost > SHORTLY_SHUT { Severity::LostTime } else { Severity::Harmless };
    let mut finding = sum.finding(Kind::ZeroWindow, severity, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = Some(view.role().other());
    Some(finding)
}

pub(super) fn until_sent_again(view: &View<'_>) -> Option<Finding> {
    let unseen = view.tally(Cause::Cork).filter(|_| is_lost_tail(view));
    let opening = view.tally(Cause::SynAgain);
    let mut sum = Sum::of([view.tally(Cause::Again), unseen, opening]);
    if sum.count == 0 {
        return None;
    }
    let severity =
        if sum.lost >= Duration::from_millis(1) { Severity::LostTime } else { Severity::Harmless };
    let spread = sum.spread();
    let by_timeout = spread.max >= Duration::from_millis(200);
    let how = match (by_timeout, sum.count) {
        (true, 1) => "only after a timeout",
        (true, _) => "the longest only after a timeout",
        (false, _) => "without waiting for a timeout",
    };
    let longest = match sum.count {
        1 => String::new(),
        _ => format!(" (median), {} at most", ms(spread.max)),
    };
    let mut evidence = match opening {
        Some(opening) if opening.count == sum.count => format!(
            "The {} had to send its SYN again, {} after it was sent first: it or its answer was \
             lost, or the other end's queue of new connections was full.",
            view.role(),
            ms(spread.p50),
        ),
        _ => format!(
            "The {} sent {} again {}, {how}: {} after it was sent first{longest}.",
            view.role(),
            if opening.is_some() { "its SYN and data" } else { "data" },
            times(sum.count),
            ms(spread.p50),
        ),
    };
    if unseen.is_some() {
        evidence.push_str(
            " Some of it was lost before it came to where the capture was made: a last segment \
             came after a timeout, while others followed at once.",
        );
    }
    let lost_some = severity == Severity::LostTime;
    if let Some(reduced) = view.tally(Cause::ReducedWindow).filter(|_| lost_some) {
        evidence.push_str(&format!(
            " The congestion window, smaller since, made it wait for {} more ({} in all).",
            count(reduced.count, "ACK", "ACKs"),
            ms(reduced.lost),
        ));
        sum.lost += reduced.lost;
    }
    let mut finding = sum.finding(Kind::Retransmission, severity, evidence);
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}
