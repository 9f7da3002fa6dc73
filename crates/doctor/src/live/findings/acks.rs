//! ACKs that the delayed-ACK timer sent.

use std::time::Duration;

use super::View;
use crate::live::AckTimer;
use crate::live::sums::Sum;
use crate::report::{Finding, Kind, Severity};
use crate::verdict::words::{count, ms};

/// Quick ACKs that a receiver sends before it delays them: 16 (Linux's TCP_MAX_QUICKACKS), fewer if
/// its window is small, and some more if they were renewed.
const CREDITS: std::ops::RangeInclusive<u32> = 4..=24;
/// Fewer may be a coincidence.
const PATTERN: u32 = 3;

/// Finds late ACKs of this end that the other end, of which nothing is known here, waited for: it
/// went on right after them.
pub(super) fn awaited(view: &View<'_>) -> Option<Finding> {
    let socket = view.side().socket.as_ref()?;
    let nothing_known = view.other().socket.is_none() && view.other().nagle_late.count == 0;
    if !nothing_known || socket.awaited_acks < PATTERN {
        return None;
    }
    let mut sum = view.side().idle_acks.copy();
    sum.count = socket.awaited_acks.into();
    sum.lost = socket.awaited_ack_time;
    let evidence = format!(
        "{} the rest of what the {} had to say came right behind an ACK that the {} had delayed \
         ({} at most): it was held back for it.",
        count(sum.count, "time", "times"),
        view.role().other(),
        view.name(),
        ms(sum.spread().max),
    );
    let mut finding = sum.finding(Kind::NagleDelayedAck, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role().other());
    finding.ack_held_by = Some(view.role());
    Some(finding)
}

/// Finds late ACKs of this end that a congestion window of one segment waited for: with nothing
/// else in flight the other end can only wait, with or without Nagle's algorithm.
pub(super) fn by_lone_segments(view: &View<'_>) -> Option<Finding> {
    let sum = view.side().lone.copy();
    if sum.count == 0 {
        return None;
    }
    let evidence = format!(
        "{} the congestion window of the {} took one segment, as at the beginning, after a rest or \
         after a loss, and the next one waited for the ACK that the {} delayed ({} at most).",
        count(sum.count, "time", "times"),
        view.name(),
        view.other_name(),
        ms(sum.spread().max),
    );
    let mut finding = sum.finding(Kind::DelayedAck, Severity::LostTime, evidence);
    finding.bytes_held_by = Some(view.role());
    finding.ack_held_by = Some(view.role().other());
    Some(finding)
}

/// Returns whether this first late ACK came when the credits were spent. Interactive sockets delay
/// every ACK, in the hope of a reply to piggyback it on.
fn spent(first: &AckTimer) -> bool {
    !first.interactive && CREDITS.contains(&first.segments_in.saturating_sub(1))
}

fn exhaustion(first: &AckTimer) -> String {
    format!(
        "the ACKs of its first {} segments were quick, those since are not: its quick-ACK credits \
         are spent ({} left at the first late one)",
        first.segments_in.saturating_sub(1),
        first.quick_credits,
    )
}

/// Finds late ACKs of this end, which only receives, that Nagle's algorithm waited for: they were late
/// because its credits were spent. The time is lost only once, and counted where the bytes were held.
pub(super) fn exhausted_behind_nagle(view: &View<'_>) -> Option<Finding> {
    let side = view.side();
    let waited = side.late_acks.count.saturating_sub(side.idle_acks.count);
    let first = side.first_late.as_ref().filter(|first| spent(first))?;
    let one_way = side.socket.as_ref().is_some_and(|socket| socket.segments_out == 0);
    let held = view.other().nagle_late.count + view.other().runts.count > 0;
    let enough = waited >= u64::from(PATTERN) && waited * 2 >= side.late_acks.count;
    if !one_way || !held || !enough {
        return None;
    }
    let mut sum: Sum = side.late_acks.copy();
    (sum.count, sum.lost) = (waited, Duration::ZERO);
    let evidence = format!(
        "The {} sent {} late ({} at most): {}; the {} had to wait for {waited} of them.",
        view.name(),
        count(side.late_acks.count, "ACK", "ACKs"),
        ms(sum.spread().max),
        exhaustion(first),
        view.other_name(),
    );
    let mut finding = sum.finding(Kind::QuickAckExhausted, Severity::LostTime, evidence);
    finding.ack_held_by = Some(view.role());
    finding.bytes_held_by = Some(view.role().other());
    Some(finding)
}

/// Finds late ACKs of this end that nothing is known to have waited for.
pub(super) fn idle(view: &View<'_>) -> Option<Finding> {
    let side = view.side();
    let awaited = side.socket.as_ref().map_or(0, |socket| socket.awaited_acks);
    let awaited = if awaited >= PATTERN { u64::from(awaited) } else { 0 };
    let left = side.idle_acks.count.saturating_sub(awaited);
    let first = side.first_late.as_ref().filter(|_| left > 0)?;
    let (kind, why) = if spent(first) && side.idle_acks.count >= u64::from(PATTERN) {
        (Kind::QuickAckExhausted, format!("{}; ", exhaustion(first)))
    } else {
        (Kind::DelayedAck, String::new())
    };
    let mut sum: Sum = side.idle_acks.copy();
    sum.count = left;
    sum.lost = Duration::ZERO;
    let evidence = format!(
        "The {} sent {} late ({} at most), with nothing to ride on; {why}nobody is seen to have \
         waited for them.",
        view.name(),
        count(left, "ACK", "ACKs"),
        ms(sum.spread().max),
    );
    let mut finding = sum.finding(kind, Severity::Harmless, evidence);
    finding.ack_held_by = Some(view.role());
    Some(finding)
}
