//! ACKs that the kernel's timer sent.

use super::View;
use crate::live::sums::Sum;
use crate::report::{Finding, Kind, Severity};
use crate::verdict::words::{count, ms};

/// Quick ACKs that a receiver gives away before it delays them: 16 (Linux's TCP_MAX_QUICKACKS),
/// fewer if its window is small, and some more if they were renewed.
const CREDITS: std::ops::RangeInclusive<u32> = 4..=24;
/// A coincidence happens less often.
const PATTERN: u32 = 3;

/// This end sent its ACKs late, and the other end, of which nothing is known here, went on right
/// behind them.
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

/// This end sent ACKs late, and nobody is known to have waited for them.
pub(super) fn idle(view: &View<'_>) -> Option<Finding> {
    let side = view.side();
    let awaited = side.socket.as_ref().map_or(0, |socket| socket.awaited_acks);
    let awaited = if awaited >= PATTERN { u64::from(awaited) } else { 0 };
    let left = side.idle_acks.count.saturating_sub(awaited);
    let first = side.first_late.as_ref().filter(|_| left > 0)?;
    // Interactive sockets delay every ACK, in the hope of a reply to take it along.
    let spent = !first.interactive && CREDITS.contains(&first.segments_in.saturating_sub(1));
    let (kind, why) = if spent && side.idle_acks.count >= u64::from(PATTERN) {
        (
            Kind::QuickAckExhausted,
            format!(
                "the ACKs of its first {} segments were quick, those since are not: its \
                 quick-ACK credits are spent ({} left at the first late one); ",
                first.segments_in.saturating_sub(1),
                first.quick_credits,
            ),
        )
    } else {
        (Kind::DelayedAck, String::new())
    };
    let mut sum: Sum = side.idle_acks.copy();
    sum.count = left;
    sum.lost = std::time::Duration::ZERO;
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
