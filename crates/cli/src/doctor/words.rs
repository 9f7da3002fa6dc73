//! Wording that the table and the page share.

use std::time::Duration;

use uncork_doctor::{
    Command, Connection, Finding, InForce, Kind, Party, Report, Role, Severity, Uncork,
};

/// Names a kind of finding in a few words, at most 24 columns wide.
pub(crate) fn name(finding: &Finding) -> &'static str {
    match finding.kind {
        // Its ACK came as soon as the path allows.
        Kind::NagleDelayedAck if finding.ack_held_by.is_none() => "Nagle waits a round trip",
        kind => kind_name(kind),
    }
}

/// Explains how it comes about.
pub(crate) fn explanation(kind: Kind) -> &'static str {
    match kind {
        Kind::NagleDelayedAck => {
            "While a segment is on its way, Nagle’s algorithm keeps the next small one until the \
             first is acknowledged. The receiver in turn keeps that ACK, 40 ms on Linux, in the \
             hope of data that could carry it. Each waits for the other until a timer ends it."
        }
        Kind::DelayedAck => {
            "The receiver keeps an ACK, 40 ms on Linux and up to 200 ms elsewhere, in the hope of \
             data that could carry it. Here there is none, and the sender does not go on without."
        }
        Kind::QuickAckExhausted => {
            "Linux acknowledges the first segments of a connection at once, on a credit of 16. \
             Once that is spent, the ACK of a lone segment waits for a timer."
        }
        Kind::CorkTimeout => {
            "Under TCP_CORK or MSG_MORE the kernel keeps an unfilled segment until more comes, \
             somebody pulls the cork, or its timeout has passed: 200 ms, and more over a long path. \
             Here nobody pulled it. What MSG_MORE keeps leaves as well once all before it is \
             acknowledged."
        }
        Kind::TinyPackets => {
            "Each small write leaves as a segment of its own: with headers larger than what they \
             carry, a way through both kernels, and a wake-up at the other end."
        }
        Kind::Runt => {
            "A message is cut into full segments and a rest. Nagle’s algorithm keeps the rest \
             until the full ones are acknowledged, however late that is."
        }
        Kind::NoDelayNotInForce => {
            "The program asked for TCP_NODELAY, and its small segments were held nevertheless: \
             the option was set on another descriptor, too early, or refused."
        }
        Kind::SenderQueue => {
            "The sender hands over more than the path takes. It queues below the sender’s own \
             TCP, and whatever else is sent waits behind it."
        }
        Kind::ZeroWindow => {
            "The receiver’s buffer is full because its program does not read. The sender may not \
             send until it does."
        }
        Kind::Retransmission => {
            "Segments were lost on the way. Where nothing sent later gives the loss away, the \
             sender finds out by its timeout: 200 ms or more on Linux."
        }
        Kind::Application => {
            "Nobody held a byte or an ACK: the reply was not written any sooner. TCP is not to \
             blame for this time."
        }
    }
}

/// Names a kind, the same for all its findings.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::NagleDelayedAck => "Nagle meets delayed ACK",
        Kind::DelayedAck => "delayed ACK",
        Kind::QuickAckExhausted => "quick ACKs used up",
        Kind::CorkTimeout => "corked tail",
        Kind::TinyPackets => "tiny packets",
        Kind::Runt => "runt after full segments",
        Kind::NoDelayNotInForce => "TCP_NODELAY not in force",
        Kind::SenderQueue => "queue at the sender",
        Kind::ZeroWindow => "receiver's window shut",
        Kind::Retransmission => "lost and sent again",
        Kind::Application => "slow program (not TCP)",
    }
}

/// Sums the report up in one sentence.
pub(crate) fn verdict(report: &Report) -> String {
    let summary = &report.summary;
    let seen = count(summary.connections, "connection");
    let looks = report.sampling.map(|sampling| match sampling.looks {
        0 | 1 => "only once".to_owned(),
        _ => format!("every {}", time(sampling.typical)),
    });
    if let (0, Some(every)) = (summary.connections, &looks) {
        return format!(
            "No TCP connection was caught: the sockets were looked at {every}, and what lives for \
             less goes unseen."
        );
    }
    if summary.connections == 0 {
        let others = match summary.not_tcp {
            0 => String::new(),
            others => format!(" ({} of other kinds)", count(others, "frame")),
        };
        return format!("No TCP connection was seen{others}.");
    }
    if let (0, Some(every)) = (summary.connections_with_findings, &looks) {
        return format!("{seen}, nothing found by looking at the sockets {every}.");
    }
    if summary.connections_with_findings == 0 {
        return format!("{seen}, nothing found: no stall, no waste that could be seen.");
    }
    let ill = thousands(summary.connections_with_findings);
    if let Some(time) = only_programs(report) {
        let in_some = match summary.connections {
            1 => String::new(),
            _ => format!("in {ill} of {seen} "),
        };
        let time = self::time(time);
        return format!("TCP is not to blame: {in_some}the program took its time ({time}).");
    }
    let found = format!("{seen}, {ill} with findings");
    if summary.stalls == 0 {
        return format!("{found}: nobody waited, but packets or queues are wasted.");
    }
    let stalls = count(summary.stalls, "stall");
    let cost = if summary.stalls == 1 { "costs" } else { "cost" };
    let own: Duration = report.connections.iter().map(programs_own).sum();
    let own = match own {
        own if own.is_zero() => String::new(),
        own => format!("; programs took {} of their own", time(own)),
    };
    if looks.is_some() {
        return format!("{found}: at least {stalls}, which {cost} {}{own}.", time(summary.lost));
    }
    let share = share_of_requests(report)
        .map(|share| format!(", {share} of the time that requests took"))
        .unwrap_or_default();
    format!("{found}: {stalls} {cost} {}{share}{own}.", time(summary.lost))
}

/// Returns what was lost as a share of the time that requests took, if any was answered.
pub(crate) fn share_of_requests(report: &Report) -> Option<String> {
    let answered = report.connections.iter().any(|connection| connection.requests > 0);
    share(report.summary.lost, report.summary.request_time).filter(|_| answered)
}

/// Returns the time that programs took, if that is all that was found.
fn only_programs(report: &Report) -> Option<Duration> {
    let findings = || report.connections.iter().flat_map(|connection| &connection.findings);
    let ill = || findings().filter(|finding| finding.severity > Severity::Harmless);
    let only = ill().next().is_some() && ill().all(|finding| finding.kind == Kind::Application);
    only.then(|| ill().map(|finding| finding.lost).sum())
}

/// Says what a connection lost, and what its program took.
pub(crate) fn cost(connection: &Connection) -> String {
    let by_program = programs_own(connection);
    let own = match by_program {
        own if own.is_zero() => String::new(),
        own => format!("; {} of the program’s own", time(own)),
    };
    if connection.stalls == 0 {
        return format!("no stall that TCP is to blame for{own}");
    }
    let stalls = count(connection.stalls, "stall");
    // Without a reply there is nothing to compare with.
    let waited = connection.request_time;
    let share = share(connection.lost, waited).filter(|_| connection.requests > 0);
    let share = share.map(|share| {
        let requests = count(connection.requests, "request");
        format!(", {share} of the {} that {requests} took", time(waited))
    });
    format!("{stalls}, {} lost{}{own}", time(connection.lost), share.unwrap_or_default())
}

/// Returns the time that a connection's program took, which TCP did not.
fn programs_own(connection: &Connection) -> Duration {
    let findings = connection.findings.iter().filter(|finding| {
        finding.kind == Kind::Application && finding.severity > Severity::Harmless
    });
    findings.map(|finding| finding.lost).sum()
}

/// Returns two cells of a table: what was lost, and what was a program's own time; a dash for nothing.
pub(crate) fn lost_and_own(kind: Kind, spent: Duration) -> (String, String) {
    let spent = if spent.is_zero() { "-".to_owned() } else { time(spent) };
    let nothing = "-".to_owned();
    if kind == Kind::Application { (nothing, spent) } else { (spent, nothing) }
}

/// Says the cost at the end of a sentence.
pub(crate) fn cost_of(kind: Kind, spent: Duration) -> String {
    match kind {
        _ if spent.is_zero() => String::new(),
        Kind::Application => format!(", {} of the program’s own", time(spent)),
        _ => format!(", {} lost", time(spent)),
    }
}

/// Names one end, with its process where that is known: `10.0.0.1:40000 (probe, pid 4711, fd 7)`.
pub(crate) fn party(party: &Party) -> String {
    format!("{}{}", party.endpoint, process(party).map(|p| format!(" ({p})")).unwrap_or_default())
}

/// Names the process: `probe, pid 4711, fd 7`.
pub(crate) fn process(party: &Party) -> Option<String> {
    let process = party.process.as_ref()?;
    let thread = process.tid.filter(|tid| *tid != process.pid);
    let thread = thread.map(|tid| format!(", thread {tid}")).unwrap_or_default();
    let fd = process.fd.map(|fd| format!(", fd {fd}")).unwrap_or_default();
    Some(format!("{}, pid {}{thread}{fd}", process.name, process.pid))
}

/// Says which end held what, as a sentence.
pub(crate) fn holders(finding: &Finding) -> Option<String> {
    let what = match finding.kind {
        Kind::Application => return None,
        Kind::TinyPackets => "sends in pieces",
        Kind::CorkTimeout => "held the tail",
        Kind::Retransmission => "had to send again",
        Kind::ZeroWindow | Kind::DelayedAck | Kind::QuickAckExhausted => "had to wait",
        Kind::SenderQueue => "queued the bytes",
        _ => "held the bytes",
    };
    match (finding.bytes_held_by, finding.ack_held_by) {
        (Some(bytes), _) if finding.kind == Kind::ZeroWindow => {
            Some(format!("The {bytes} {what}, the {} shut its window.", bytes.other()))
        }
        (Some(bytes), Some(ack)) => Some(format!("The {bytes} {what}, the {ack} held the ACK.")),
        (Some(bytes), None) => Some(format!("The {bytes} {what}.")),
        (None, Some(ack)) => Some(format!("The {ack} held the ACK.")),
        (None, None) => None,
    }
}

/// Describes how an end writes: `12 segments of 3 octets for each message of 45`.
pub(crate) fn pattern(party: &Party) -> String {
    if party.messages == 0 {
        return "no message".to_owned();
    }
    let messages = count(party.messages, "message");
    let segments = count(u64::from(party.segments_per_message), "segment");
    let bytes = count(u64::from(party.message_bytes), "octet");
    let typically = if party.messages == 1 { "" } else { "typically " };
    format!("{messages}, {typically}{bytes} in {segments}")
}

/// Says whether Nagle's algorithm was at work.
pub(crate) fn in_force(option: InForce) -> &'static str {
    match option {
        InForce::On => "on",
        InForce::Off => "off (TCP_NODELAY)",
        InForce::Changed => "on at times",
        InForce::Unknown => "not known",
    }
}

/// Returns the role as a heading.
pub(crate) fn role(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

/// Says what libuncork.so does for an end: `held in the kernel, 12 writes left as 4 packets`.
pub(crate) fn uncork(uncork: &Uncork) -> String {
    if !uncork.helps() {
        return uncork.state.clone();
    }
    let writes = counted(uncork.writes, "write", "writes");
    let packets = counted(uncork.pushes, "packet", "packets");
    let held = uncork.held.map(|held| format!(", held for {} typically", time(held.p50)));
    let so_far = if uncork.complete { "" } else { " so far" };
    let held = held.unwrap_or_default();
    format!("hold {}, {writes} left as {packets}{held}{so_far}", uncork.hold)
}

/// Says how the command ended, if that is worth reporting.
pub(crate) fn ended(command: &Command) -> Option<String> {
    match (command.status, command.signal) {
        (Some(0), _) => None,
        (Some(status), _) => Some(format!("The command ended with status {status}.")),
        (None, Some(signal)) => {
            let name = nix::sys::signal::Signal::try_from(signal);
            let name = name.map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            Some(format!("The command was ended by signal {name}."))
        }
        (None, None) => Some("The command still ran when this was told.".to_owned()),
    }
}

/// Formats a number with what it counts: `1 process runs`, `2 processes run`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// Formats a number with its noun: `1 stall`, `1,204 stalls`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// Formats a number with separators: `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time with three digits and a unit: `12.3 µs`, `41.2 ms`, `5.70 s`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 99.95 {
        return format!("{} s", thousands(seconds.round() as u64));
    }
    if time.is_zero() {
        return "0".to_owned();
    }
    // 999.5 of a unit would be shown as 1000 of it.
    let (value, unit) = match seconds {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.999_5e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Formats a share: `61 %`; `None` where nothing was waited for.
pub(crate) fn share(part: Duration, whole: Duration) -> Option<String> {
    if whole.is_zero() {
        return None;
    }
    let percent = part.as_secs_f64() / whole.as_secs_f64() * 100.0;
    Some(match percent.min(100.0) {
        0.0 => "none".to_owned(),
        few if few < 1.0 => "less than 1 %".to_owned(),
        all => format!("{all:.0} %"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (us, text) in [
            (0, "0"),
            (7, "7.00 µs"),
            (999, "999 µs"),
            (1000, "1.00 ms"),
            (41_234, "41.2 ms"),
            (999_600, "1.00 s"),
            (5_700_000, "5.70 s"),
            (1_234_567_000, "1,235 s"),
        ] {
            assert_eq!(time(Duration::from_micros(us)), text);
        }
    }

    #[test]
    fn shares_are_whole_and_never_more_than_all() {
        let ms = Duration::from_millis;
        assert_eq!(share(ms(61), ms(100)).unwrap(), "61 %");
        assert_eq!(share(ms(1), ms(1000)).unwrap(), "less than 1 %");
        assert_eq!(share(ms(5), ms(4)).unwrap(), "100 %");
        assert_eq!(share(ms(5), ms(0)), None);
    }

    #[test]
    fn counts_have_their_noun() {
        assert_eq!(count(1, "stall"), "1 stall");
        assert_eq!(count(1_204_000, "stall"), "1,204,000 stalls");
    }
}
