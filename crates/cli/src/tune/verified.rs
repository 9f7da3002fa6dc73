//! The messages of `uncork tune small-queues --verify`.

use std::fmt::Write as _;
use std::time::Duration;

use uncork_verify::{Round, Seen, Spread, Verdict};

use super::arguments::SmallQueues;

/// Says what will be measured, before anything is changed.
pub(super) fn begins(title: &str, rounds: usize, settle: Duration, each: Duration) -> String {
    let turns = u32::try_from(rounds).unwrap_or(1);
    let whole = each * turns * 2 + settle * (turns * 2 - 1);
    format!("verifying {title}: {rounds} times without and with it, {:.0} s\n", whole.as_secs_f64())
}

/// Says why nothing can be judged.
pub(super) fn no_load(wanted: &SmallQueues, seen: Option<&Seen>) -> String {
    let device = &wanted.dev;
    let share = seen.map_or(0.0, |seen| seen.busy_share) * 100.0;
    let what = match seen {
        Some(seen) if seen.busy_share == 0.0 && seen.elsewhere > 0 => format!(
            "no connection that goes over {device} has anything waiting to be sent, and {} that go \
             over other devices have (a bond, a bridge or a VLAN stands over the device that it \
             sends by: name that which ip route get shows)",
            seen.elsewhere
        ),
        _ => format!(
            "for {share:.0} % of a second some connection over {device} had more to send than it \
             had sent, and it takes 90 %"
        ),
    };
    format!(
        "there is no load to judge by: {what}; nothing was changed. Run it while the bulk is sent, or \
         give --load HOST:PORT"
    )
}

/// Says why a host cannot be used.
pub(super) fn silent(host: &str, device: &str) -> String {
    format!(
        "{host} does not answer pings, so that nothing can be judged by them; nothing was changed. Name \
         another host beyond {device}, or leave --ping out: then TCP's own round trips count"
    )
}

/// Returns the table of the measurements.
pub(super) fn table(rounds: &[Round]) -> String {
    let pinged = rounds.iter().any(|round| round.before.ping_us.is_some());
    let mut text = format!(
        "{:10}{:>12}{:>12}{:>12}{}{:>12}{:>14}\n",
        "",
        "bulk p50",
        "p99",
        "others p50",
        if pinged { "    ping p50" } else { "" },
        "queue",
        "throughput",
    );
    for (number, round) in (1..).zip(rounds) {
        line(&mut text, &format!("{number} before"), &round.before, pinged);
        line(&mut text, &format!("{number} after"), &round.after, pinged);
    }
    text
}

fn line(text: &mut String, name: &str, seen: &Seen, pinged: bool) {
    let ping = if pinged { format!("{:>12}", middle(seen.ping_us)) } else { String::new() };
    let queue =
        seen.backlog_bytes.map_or("no queue".to_owned(), |bytes| format!("{} B", bytes.p50));
    let _ = writeln!(
        text,
        "{name:10}{:>12}{:>12}{:>12}{ping}{queue:>12}{:>14}",
        middle(Some(seen.bulk_us)),
        if seen.bulk_us.count > 0 { ms(seen.bulk_us.p99) } else { "-".to_owned() },
        middle(Some(seen.others_us)),
        rate(seen.payload_bits_per_second),
    );
}

fn rate(bits_per_second: f64) -> String {
    if bits_per_second < 1e6 {
        format!("{:.1} kbit/s", bits_per_second / 1e3)
    } else {
        format!("{:.1} Mbit/s", bits_per_second / 1e6)
    }
}

fn middle(spread: Option<Spread>) -> String {
    spread.filter(|it| it.count > 0).map_or("-".to_owned(), |it| ms(it.p50))
}

#[allow(clippy::cast_precision_loss)] // far below 2^53
fn ms(us: u64) -> String {
    format!("{:.2} ms", us as f64 / 1e3)
}

/// Returns the verdict as a sentence.
pub(super) fn sentence(verdict: &Verdict, target: Duration) -> String {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    match verdict {
        Verdict::Helped { round_trip, throughput } => format!(
            "it helped: round trips are {} of what they were, at {} of the throughput",
            percent(*round_trip),
            percent(*throughput)
        ),
        Verdict::NoLoad { busy_share } => format!(
            "the load did not last: in one measurement there was more to send for {} of the time \
             only",
            percent(*busy_share)
        ),
        Verdict::NoRoundTrip => {
            "in one measurement nothing was acknowledged, or no ping was answered, so that there is \
             no round trip to compare"
                .to_owned()
        }
        Verdict::Slower { throughput } => format!(
            "it did not help: the throughput fell to {} of what it was (a longer --target than \
             {target:?} costs less)",
            percent(*throughput)
        ),
        Verdict::NoShorter { round_trip } => format!(
            "it did not help: round trips are {} of what they were (the queue may be on the way, or \
             there is none here)",
            percent(*round_trip)
        ),
        Verdict::Unclear { least, largest } => format!(
            "it cannot be told: round trips became {} of what they were in one round, and {} in \
             another",
            percent(*least),
            percent(*largest)
        ),
    }
}
