//! What `uncork stack stat` shows.

use std::cmp::Reverse;

use uncork_stat::{Acks, ByQueue, Connection, Counts, Report};

use crate::output::shown;
use crate::tables::{LISTED, Width, bytes, lines, table, time};

const HEADER: [&str; 10] = [
    "peer",
    "state",
    "cwnd",
    "srtt",
    "in flight",
    "in device",
    "held",
    "acks",
    "waits for",
    "sent",
];

/// The stack in two lines, and its connections, those that have most to send first.
pub(super) fn report(report: Report, width: Width) -> String {
    let running = report.running;
    let counts = &running.counts;
    let addresses: Vec<_> = running.addresses.iter().map(ToString::to_string).collect();
    // An instance whose programs listen nowhere has none.
    let at = match addresses.join(", ") {
        none if none.is_empty() => none,
        addresses => format!(" at {addresses}"),
    };
    let mut text = format!(
        "process {}: {}{at} over {}, for {}\n",
        running.pid,
        shown(&running.does),
        shown(&running.device),
        time(running.age_ms.saturating_mul(1_000_000)),
    );
    text += &format!(
        "{} connections came, {} were begun; segments: {} in, {} out, {} sent again; {} times the \
         device was full of one connection\n",
        counts.passive_opens,
        counts.active_opens,
        counts.segments_in,
        counts.segments_out,
        counts.retransmitted,
        counts.throttled,
    );
    text += &running.frames_lost.map(lost).unwrap_or_default();
    text += &running.by_queue.map(|by_queue| queues(&by_queue, counts)).unwrap_or_default();
    let mut connections = report.connections;
    if connections.is_empty() {
        return text + "no connections\n";
    }
    connections.sort_by_key(|one| (Reverse(one.held_bytes), Reverse(one.sent_bytes), one.remote));
    // Of programs that are not ours each has a descriptor.
    let by_descriptor = connections.iter().any(|one| one.fd.is_some());
    let own = usize::from(by_descriptor);
    let header: Vec<_> = ["fd"][..own].iter().chain(&HEADER).copied().collect();
    let numbers: Vec<_> = (0..own).chain([2, 3, 4, 5, 6, 9].map(|at| at + own)).collect();
    let mut table = table(&header, &numbers, width);
    for one in connections.iter().take(LISTED) {
        let fd = one.fd.map_or_else(|| "-".to_owned(), |fd| fd.to_string());
        let fd = by_descriptor.then_some(fd);
        table.add_row(fd.into_iter().chain(row(one)));
    }
    text += &lines(&table);
    match connections.len().saturating_sub(LISTED) {
        0 => {}
        1 => text += "… and 1 connection with less to send; --json has all\n",
        more => text += &format!("… and {more} connections with less to send; --json has all\n"),
    }
    text
}

fn lost(frames: u64) -> String {
    match frames {
        0 => String::new(),
        1 => "1 frame was lost here: the process did not take in those before it in time\n"
            .to_owned(),
        _ => format!(
            "{frames} frames were lost here: the process did not take in those before them in time\n"
        ),
    }
}

fn queues(by_queue: &ByQueue, counts: &Counts) -> String {
    let names: Vec<_> = by_queue.queues.iter().map(|name| shown(name)).collect();
    let came = match names.join(", ") {
        none if none.is_empty() => {
            "it has no queue of AF_XDP: all came by packet sockets\n".to_owned()
        }
        names => format!(
            "{} of {} frames came by AF_XDP, {names}\n",
            by_queue.frames_in, counts.frames_in
        ),
    };
    let missing = by_queue.missing.iter().map(|why| shown(why).into_owned() + "\n");
    std::iter::once(came).chain(missing).collect()
}

fn row(one: &Connection) -> [String; 10] {
    [
        one.remote.to_string(),
        shown(&one.state).into_owned(),
        one.cwnd.to_string(),
        one.srtt_us.map_or_else(|| "-".to_owned(), micros),
        one.in_flight.to_string(),
        bytes(one.device_bytes.into()),
        bytes(one.held_bytes.into()),
        acks(&one.ack),
        one.waits_for.as_deref().map_or_else(|| "-".to_owned(), |why| shown(why).into_owned()),
        bytes(one.sent_bytes),
    ]
}

fn acks(acks: &Acks) -> String {
    match acks.mode.as_str() {
        "quick" => format!("quick, {} left", acks.quick_left),
        "delayed" => format!("delayed {}", micros(acks.delay_us)),
        other => shown(other).into_owned(),
    }
}

fn micros(micros: u64) -> String {
    time(micros.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use uncork_stat::Running;

    use super::*;

    fn shown_with(frames_lost: Option<u64>) -> String {
        let running = Running {
            pid: 7,
            does: "redis-server".to_owned(),
            device: "eth0".to_owned(),
            addresses: Vec::new(),
            age_ms: 12,
            counts: Counts::default(),
            frames_lost,
            by_queue: None,
        };
        report(Report { running, connections: Vec::new() }, Width::of_stdout())
    }

    #[test]
    fn frames_that_were_lost_are_told_and_none_are_not_mentioned() {
        assert!(!shown_with(None).contains("lost") && !shown_with(Some(0)).contains("lost"));
        assert!(shown_with(Some(1)).contains("\n1 frame was lost here: "));
        assert!(shown_with(Some(12)).contains("\n12 frames were lost here: "));
    }
}
