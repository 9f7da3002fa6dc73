//! Verdicts: from a connection's tallies to what is reported about it.

use std::time::Duration;

use crate::connection::Connection;
use crate::direction::Direction;
use crate::report::{self, Finding, Kind, Party, Severity};
use crate::tally::{Cause, Tally};
use crate::{Bucket, Example, Histogram, InForce, Role, Settings, Spread};

mod acks;
mod held;
mod program;
mod waste;
pub(crate) mod words;

/// Returns what is wrong with a connection, and what it looked like.
pub(crate) fn on(connection: &Connection, settings: &Settings) -> report::Connection {
    let mut findings = Vec::new();
    for by in 0..2 {
        let view = View::new(connection, by);
        findings.extend(held::by_nagle(&view));
        findings.extend(held::as_runts(&view));
        findings.extend(held::by_cork(&view));
        findings.extend(held::until_acked_with_more(&view));
        findings.extend(held::by_window(&view));
        findings.extend(held::until_sent_again(&view));
        findings.extend(acks::delayed(&view));
        findings.extend(waste::tiny_packets(&view));
        findings.extend(waste::sender_queue(&view));
        findings.extend(program::slow(&view, settings));
    }
    // The program's own time is no fault of TCP: it comes last of what was waited for.
    findings.sort_by_key(|finding| {
        let by_tcp = finding.kind != Kind::Application;
        std::cmp::Reverse((finding.severity, by_tcp, finding.lost))
    });
    let of_tcp = |finding: &&Finding| {
        finding.severity == Severity::LostTime && finding.kind != Kind::Application
    };
    let lost = findings.iter().filter(of_tcp).map(|f| f.lost).sum();
    let client = connection.client();
    report::Connection {
        client: party(connection, client),
        server: party(connection, 1 - client),
        first_seen: connection.first_seen.as_secs_f64(),
        duration: connection.last_seen.saturating_sub(connection.first_seen),
        handshake_seen: connection.handshake_seen(),
        rtt: connection.rtt(),
        requests: connection.exchanges.answered.into(),
        request_time: request_time(connection, lost),
        stalls: findings.iter().filter(of_tcp).map(|f| f.count).sum(),
        lost,
        findings,
    }
}

/// Returns the time that requests took. One that was cut off counts where something was lost, for that
/// may have been in it; and what was lost before the first request (in a greeting) was waited for, too.
fn request_time(connection: &Connection, lost: Duration) -> Duration {
    let exchanges = &connection.exchanges;
    if lost.is_zero() {
        exchanges.time
    } else {
        (exchanges.time + exchanges.unanswered()).max(lost)
    }
}

fn party(connection: &Connection, end: usize) -> Party {
    let view = View::new(connection, end);
    let direction = view.sender;
    Party {
        endpoint: connection.ends[end],
        process: None,
        data_segments: direction.data_segments,
        payload_bytes: direction.payload_bytes,
        messages: direction.messages.count.into(),
        segments_per_message: direction.messages.segments.get(),
        message_bytes: direction.messages.bytes.get(),
        mss: direction.mss(),
        nagle: nagle(&view),
        uncork: None,
        ack_delay: direction.ack_delay.spread(),
    }
}

fn nagle(view: &View<'_>) -> InForce {
    let held = held::by_nagle(view).map_or(0, |finding| finding.count);
    view.sender.nagle(held)
}

/// One direction of a connection: its sender, and the end that receives.
struct View<'a> {
    connection: &'a Connection,
    by: usize,
    sender: &'a Direction,
    receiver: &'a Direction,
}

impl<'a> View<'a> {
    fn new(connection: &'a Connection, by: usize) -> Self {
        Self {
            connection,
            by,
            sender: &connection.directions[by],
            receiver: &connection.directions[1 - by],
        }
    }

    /// Returns the role of the sender.
    fn role(&self) -> Role {
        self.connection.role(self.by)
    }

    fn tally(&self, cause: Cause) -> Option<&'a Tally> {
        self.connection.tallies.get(cause, self.by)
    }

    fn count(&self, cause: Cause) -> u64 {
        self.connection.tallies.count(cause, self.by)
    }

    /// Returns the round trip from the sender's end and back, as seen at the capture point.
    fn path(&self) -> Duration {
        self.receiver.reaction_least.unwrap_or_default()
    }
}

/// Tallies of several causes that make one finding.
#[derive(Default)]
struct Sum {
    count: u64,
    lost: Duration,
    each: Histogram,
    examples: Vec<Example>,
}

impl Sum {
    fn of<'a>(tallies: impl IntoIterator<Item = Option<&'a Tally>>) -> Self {
        let mut sum = Self::default();
        for tally in tallies.into_iter().flatten() {
            sum.count += tally.count;
            sum.lost += tally.lost;
            sum.each.merge(&tally.each);
            sum.examples.extend(tally.examples.iter().cloned());
        }
        sum.examples.sort_by_key(|e| std::cmp::Reverse(e.end.saturating_sub(e.begin)));
        sum.examples.truncate(3);
        sum
    }

    fn spread(&self) -> Spread {
        self.each.spread()
    }

    fn histogram(&self) -> Vec<Bucket> {
        self.each.buckets()
    }

    /// Returns the finding that these stalls are.
    fn finding(self, kind: Kind, severity: Severity, evidence: String) -> Finding {
        Finding {
            kind,
            severity,
            count: self.count,
            lost: self.lost,
            each: self.spread(),
            histogram: self.histogram(),
            bytes_held_by: None,
            ack_held_by: None,
            evidence,
            remedies: Vec::new(),
            examples: self.examples,
        }
    }
}
