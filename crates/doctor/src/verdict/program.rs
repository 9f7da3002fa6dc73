//! Time taken by a program and not by TCP.

use super::words::{count, ms};
use super::{Sum, View, held};
use crate::report::{Finding, Kind, Severity};
use crate::tally::Cause;
use crate::{Role, Settings};

/// A program's time must be at least this fraction of the time that its clients waited.
const SHARE: u32 = 10;

pub(super) fn slow(view: &View<'_>, settings: &Settings) -> Option<Finding> {
    if view.role() == Role::Client {
        return None;
    }
    let not_cork = |cause| view.tally(cause).filter(|_| !held::is_cork(view));
    let tails = not_cork(Cause::Cork).filter(|_| !held::is_lost_tail(view));
    let doubtful = not_cork(Cause::CorkOrProgram);
    let sum = Sum::of([view.tally(Cause::Program), doubtful, tails]);
    // A single slow reply among many is not a slow program.
    let waiting = view.connection.exchanges.time;
    if sum.count == 0 || sum.lost < settings.slow_application || sum.lost * SHARE < waiting {
        return None;
    }
    let longest = match sum.count {
        1 => String::new(),
        _ => format!(" ({} at most)", ms(sum.spread().max)),
    };
    let exchanges = &view.connection.exchanges;
    if is_conversation(view, sum.count) || exchanges.are_amid_events() {
        return None;
    }
    let mut evidence = format!(
        "The server's program took {} before it wrote {}{longest}, with no byte and no ACK held \
         by anybody: this is not TCP.",
        ms(sum.spread().p50),
        count(sum.count, "reply", "replies"),
    );
    let confirms = may_confirm(view);
    if confirms {
        evidence.push_str(&format!(
            " The client says {} each time: if that only confirms what the server sends by itself (a \
             pong, a receipt), nobody waited.",
            count(view.receiver.messages.bytes.get().into(), "octet", "octets"),
        ));
    }
    if doubtful.is_some() {
        let those = if sum.count == 1 { "That" } else { "Some of that" };
        evidence.push_str(&format!(
            " {those} is about 200 ms, which is also what a kernel leaves a corked write: look for \
             TCP_CORK or MSG_MORE if the program should have been faster.",
        ));
    }
    let severity = if confirms { Severity::Harmless } else { Severity::LostTime };
    let mut finding = sum.finding(Kind::Application, severity, evidence);
    finding.bytes_held_by = Some(Role::Server);
    Some(finding)
}

/// Returns whether the client may only confirm what the server sends when it likes: it says little, and only when
/// it has heard something. What it says before it has heard anything is a request, and so is what is no
/// shorter later.
fn may_confirm(view: &View<'_>) -> bool {
    /// A WebSocket pong with a few octets, an MQTT PUBACK, an answer to a heartbeat.
    const CONFIRMATION_BYTES: u32 = 16;
    let exchanges = &view.connection.exchanges;
    let says_bytes = view.receiver.messages.bytes.get();
    says_bytes <= CONFIRMATION_BYTES && exchanges.are_prompt() && !exchanges.open_within(says_bytes)
}

/// Returns whether both ends send when they like: then what one sends is no reply to what the other
/// sent last, and nobody has waited for it.
fn is_conversation(view: &View<'_>, replies: u64) -> bool {
    /// A few may come from how a long message was produced.
    const FEW: u64 = 3;
    let unasked = u64::from(view.sender.unasked.min(view.receiver.unasked));
    unasked > FEW && unasked * 3 >= replies
}
