//! Late ACKs.

use std::time::Duration;

use super::words::{at_most, count, ms};
use super::{Sum, View};
use crate::report::{Finding, Kind, Severity};
use crate::tally::Cause;

/// Quick ACKs that a receiver sends before it delays them: 16 (Linux's TCP_MAX_QUICKACKS), fewer if
/// its window is small, and some more if they were renewed.
const CREDITS: std::ops::RangeInclusive<u32> = 4..=24;

/// Judges the other end's ACKs of this one's data.
pub(super) fn delayed(view: &View<'_>) -> Option<Finding> {
    if let Some(finding) = exhausted_behind_nagle(view) {
        return Some(finding);
    }
    let waited = Sum::of([view.tally(Cause::LateAck)]);
    let by_others = view.count(Cause::NagleLateAck)
        + view.count(Cause::NearLateAck)
        + view.count(Cause::RuntLateAck)
        + view.count(Cause::MoreLateAck);
    let seen = view.count(Cause::LateAckSeen);
    let idle = seen.saturating_sub(by_others).saturating_sub(waited.count);
    if let Some(finding) = never_quick(view).filter(|_| seen == 0) {
        return Some(finding);
    }
    // A few among many that Nagle's algorithm held are of the same kind, wrongly classified. So is
    // the last one before a window shuts.
    let of_its_own = waited.count * 3 > by_others
        && waited.count > view.count(Cause::Window)
        && waited.count > view.sender.unhurried.into();
    let real = waited.count > 0 && of_its_own;
    if !real && idle == 0 {
        return None;
    }
    let exhausted = credits_spent(view);
    let kind = if exhausted { Kind::QuickAckExhausted } else { Kind::DelayedAck };
    let severity = if real { Severity::LostTime } else { Severity::Harmless };
    let receiver = view.role().other();
    let those = if real { seen } else { idle };
    let what = if exhausted {
        exhaustion(view)
    } else {
        let late = count(those, "ACK", "ACKs");
        let delay = at_most(those, view.receiver.ack_delay.spread().max);
        format!("{late} of the {receiver} came late ({delay}), with nothing to ride on")
    };
    let waiting = match (real, exhausted || those > 1) {
        (true, true) if waited.count >= seen => {
            format!("the {} had to wait for all of them.", view.role())
        }
        (true, true) => format!("the {} had to wait for {} of them.", view.role(), waited.count),
        (true, false) => format!("the {} had to wait for it.", view.role()),
        (false, true) => "nobody waited for them.".to_owned(),
        (false, false) => "nobody waited for it.".to_owned(),
    };
    let mut sum = if real { waited } else { Sum::of([view.tally(Cause::LateAckSeen)]) };
    if !real {
        sum.count = idle;
    }
    let mut finding = sum.finding(kind, severity, format!("{what}; {waiting}"));
    finding.ack_held_by = Some(receiver);
    finding.bytes_held_by = real.then_some(view.role());
    Some(finding)
}

/// Finds ACKs that all take as long as Linux delays them, in a connection whose beginning was not
/// seen: its path may be that long, too.
fn never_quick(view: &View<'_>) -> Option<Finding> {
    const DELAYED: std::ops::Range<Duration> = Duration::from_millis(39)..Duration::from_millis(50);
    const ENOUGH: u64 = 8;
    let delay = &view.receiver.ack_delay;
    let spread = delay.spread();
    let always = DELAYED.contains(&view.path()) && DELAYED.contains(&spread.max);
    if view.connection.handshake_seen() || !always || spread.count < ENOUGH {
        return None;
    }
    let evidence = format!(
        "All {} of the {} took {} to {}: they are delayed, unless the path is that long, which a \
         capture without the beginning of the connection does not tell; nobody waited for them.",
        count(spread.count, "ACK", "ACKs"),
        view.role().other(),
        ms(view.path()),
        ms(spread.max),
    );
    let mut finding = Sum::default().finding(Kind::DelayedAck, Severity::Harmless, evidence);
    finding.count = spread.count;
    finding.each = spread;
    finding.histogram = delay.buckets();
    finding.ack_held_by = Some(view.role().other());
    Some(finding)
}

/// Finds late ACKs that Nagle's algorithm waited for, of an end that only receives: they were late
/// because its credits were spent, for it never had data to piggyback them on. The time is lost
/// only once, and counted where the bytes were held.
fn exhausted_behind_nagle(view: &View<'_>) -> Option<Finding> {
    let held = Sum::of([Cause::NagleLateAck, Cause::RuntLateAck].map(|cause| view.tally(cause)));
    let one_way = view.receiver.data_segments == 0;
    if !one_way || held.count * 2 < view.count(Cause::LateAckSeen) || !is_order_of_credits(view, 2)
    {
        return None;
    }
    let evidence = format!("{}; the {} had to wait for them.", exhaustion(view), view.role());
    let kind = Kind::QuickAckExhausted;
    let mut finding = held.finding(kind, Severity::LostTime, evidence);
    finding.lost = Duration::ZERO;
    finding.ack_held_by = Some(view.role().other());
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

/// Returns whether the other end's ACKs were quick at first, and late from some point on.
fn credits_spent(view: &View<'_>) -> bool {
    let by_nagle = view.count(Cause::NagleLateAck) * 2 >= u64::from(view.receiver.quick.late);
    is_order_of_credits(view, 4) && !by_nagle
}

/// Returns whether the first ACKs were quick, and since then at least `of_five` in five late.
fn is_order_of_credits(view: &View<'_>, of_five: u32) -> bool {
    let quick = view.receiver.quick;
    let late_since = quick.late * 5 >= (quick.late + quick.quick_after) * of_five;
    CREDITS.contains(&quick.quick_first) && quick.late >= 3 && late_since
}

/// Describes how the credits were spent, and what that says about the receiver's kernel.
fn exhaustion(view: &View<'_>) -> String {
    let quick = view.receiver.quick;
    let receiver = view.role().other();
    let delay = ms(view.receiver.ack_delay.spread().p50);
    let counting = match quick.sent_before {
        0 => "it sent no data, so this does not tell on which side of Linux commit 059217c18be6 \
              (6.6, 6.1.57) it is"
            .to_owned(),
        // Before that commit each data segment that the receiver sent spent a credit, too.
        sent if quick.quick_first.saturating_add(sent) >= 12 && quick.quick_first < 12 => format!(
            "it sent {} meanwhile, which seem to have spent credits: a kernel before commit \
             059217c18be6 (6.6, 6.1.57)",
            count(sent.into(), "data segment", "data segments"),
        ),
        _ => "the data that it sent spent none: a kernel with commit 059217c18be6 (6.6, 6.1.57)"
            .to_owned(),
    };
    format!(
        "The {receiver}'s first {} were quick and the {} since took {delay} (median): its \
         quick-ACK credits are spent; {counting}",
        count(u64::from(quick.quick_first), "ACK", "ACKs"),
        quick.late,
    )
}
