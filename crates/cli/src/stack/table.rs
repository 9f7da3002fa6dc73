//! The output of `uncork stack stat`.

use std::cmp::Reverse;

use uncork_posix::report::StackReport;
use uncork_stat::{Acks, ByQueue, Connection, Counts, Report};

use super::running::Runs;
use crate::output::shown;
use crate::tables::{LISTED, Width, bytes, counted, lines, table, time};

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

/// How many descriptors are named before the rest is only counted.
const NAMED: usize = 8;

/// Shows the stack in two lines, where the program's other sockets are, and its connections, those with most to send first.
pub(super) fn report(report: Report, stack: Option<&StackReport>, width: Width) -> String {
    let running = report.running;
    let counts = &running.counts;
    let addresses: Vec<_> = running.addresses.iter().map(ToString::to_string).collect();
    // An instance whose programs listen nowhere has no address.
    let at = match addresses.join(", ") {
        none if none.is_empty() => none,
        addresses => format!(" at {addresses}"),
    };
    // A program has closed its idle devices, or has needed none yet.
    let over = match shown(&running.device) {
        none if none.is_empty() => "without a device".to_owned(),
        device => format!("over {device}"),
    };
    let mut text = format!(
        "process {}: {}{at} {over}, for {}\n",
        running.pid,
        shown(&running.does),
        time(running.age_ms.saturating_mul(1_000_000)),
    );
    text += &format!(
        "{} came, {} begun; segments: {} in, {} out, {} sent again; {} the device was full of one \
         connection\n",
        counted(counts.passive_opens, "connection", "connections"),
        counted(counts.active_opens, "was", "were"),
        counts.segments_in,
        counts.segments_out,
        counts.retransmitted,
        counted(counts.throttled, "time", "times"),
    );
    text.extend(running.without.iter().map(|why| format!("without {}\n", shown(why))));
    text += &running.frames_lost.map(lost).unwrap_or_default();
    text += &running.by_queue.map(|by_queue| queues(&by_queue, counts)).unwrap_or_default();
    text += &stack.map(|stack| elsewhere(running.pid, stack)).unwrap_or_default();
    let mut connections = report.connections;
    if connections.is_empty() {
        return text + "no connections\n";
    }
    connections.sort_by_key(|one| (Reverse(one.held_bytes), Reverse(one.sent_bytes), one.remote));
    // In the programs that are not ours each connection has a descriptor.
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

/// Shows a program whose stack does not answer.
pub(super) fn places(pid: u32, program: &str, stack: &StackReport) -> String {
    format!("process {pid}: {}\n{}", shown(program), elsewhere(pid, stack))
}

/// Says what was on the stack, and what stayed with the kernel, and why.
fn elsewhere(pid: u32, stack: &StackReport) -> String {
    if !stack.is_anything() {
        return String::new();
    }
    let lines = stack.lines().into_iter().map(|line| shown(&line).into_owned() + "\n");
    let open = stack.sockets.iter().filter(|one| one.place == "kernel");
    let open: Vec<_> = open.map(|one| one.fd.to_string()).collect();
    let named = open.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let named = match (open.len(), open.len().saturating_sub(NAMED)) {
        (1, _) => format!("descriptor {named}"),
        (_, 0) => format!("descriptors {named}"),
        (_, more) => format!("descriptors {named} and {more} more"),
    };
    let open = open.first().map(|first| {
        format!("with the kernel now: {named}; each by uncork stack why {pid}:{first}\n")
    });
    lines.chain(open).collect()
}

/// Lists the processes that can be asked.
pub(super) fn running(all: &[Runs], width: Width) -> String {
    let mut rows = table(&["pid", "program", "what"], &[0], width);
    for one in all {
        rows.add_row([
            one.pid.to_string(),
            shown(&one.program).into_owned(),
            shown(&one.what).into_owned(),
        ]);
    }
    format!("these run: uncork stack stat PID says more of each\n{}", lines(&rows))
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
            "{} of {} came by AF_XDP, {names}\n",
            by_queue.frames_in,
            counted(counts.frames_in, "frame", "frames"),
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
    use uncork_posix::report::StackSocket;
    use uncork_stat::Running;

    use super::*;

    fn running_with(frames_lost: Option<u64>, by_queue: Option<ByQueue>) -> Report {
        let running = Running {
            pid: 7,
            does: "redis-server".to_owned(),
            device: "eth0".to_owned(),
            without: Vec::new(),
            addresses: Vec::new(),
            age_ms: 12,
            counts: Counts { frames_in: 30, ..Counts::default() },
            frames_lost,
            by_queue,
        };
        Report { running, connections: Vec::new() }
    }

    fn shown_with(frames_lost: Option<u64>) -> String {
        report(running_with(frames_lost, None), None, Width::of_stdout())
    }

    #[test]
    fn frames_that_were_lost_are_told_and_none_are_not_mentioned() {
        assert!(!shown_with(None).contains("lost") && !shown_with(Some(0)).contains("lost"));
        assert!(shown_with(Some(1)).contains("\n1 frame was lost here: "));
        assert!(shown_with(Some(12)).contains("\n12 frames were lost here: "));
    }

    #[test]
    fn devices_that_it_does_without_are_told_each_with_why() {
        let mut told = running_with(None, None);
        assert!(!report(told.clone(), None, Width::of_stdout()).contains("without"));
        told.running.without = vec!["eth1: it is down".to_owned(), "eth2: it is gone".to_owned()];
        let shown = report(told, None, Width::of_stdout());
        assert!(
            shown.contains("\nwithout eth1: it is down\nwithout eth2: it is gone\n"),
            "{shown}"
        );
    }

    #[test]
    fn queues_that_could_not_be_had_are_told_with_the_reason_and_never_guessed() {
        let why = "eth0:1 cannot be had: cannot do it: no memory".to_owned();
        let shown = |by_queue| report(running_with(None, Some(by_queue)), None, Width::of_stdout());
        let none = shown(ByQueue::default());
        assert!(
            none.contains("\nit has no queue of AF_XDP: all came by packet sockets\n"),
            "{none}"
        );
        let one = shown(ByQueue::new("eth0", &[0], 20).without(std::slice::from_ref(&why)));
        let said = format!("\n20 of 30 frames came by AF_XDP, eth0:0\n{why}\n");
        assert!(one.contains(&said), "{one}");
    }

    /// Returns a program with sockets of these descriptors that are the kernel's, and one that is not.
    fn stack(kernels: std::ops::Range<i32>) -> StackReport {
        let one =
            |place: &str, fd| StackSocket { fd, place: place.to_owned(), ..Default::default() };
        let count = u64::try_from(kernels.len()).unwrap();
        StackReport {
            listening: 1,
            kernel: [("it is not to be\x1b[2J".to_owned(), count)].into(),
            sockets: kernels.map(|fd| one("kernel", fd)).chain([one("stack", 3)]).collect(),
            ..StackReport::default()
        }
    }

    #[test]
    fn what_stayed_with_the_kernel_is_shown_and_why() {
        let told = report(running_with(None, None), Some(&stack(5..7)), Width::of_stdout());
        let said = "\non the stack: 1 listener, 0 connections accepted, 0 made\n\
                    2 with the kernel: it is not to be\u{fffd}[2J\n\
                    with the kernel now: descriptors 5, 6; each by uncork stack why 7:5\n\
                    no connections\n";
        assert!(told.ends_with(said), "{told}");
        let one = places(9, "one", &stack(5..6));
        assert!(one.contains("\nwith the kernel now: descriptor 5; each by "), "{one}");
        let many = places(9, "many", &stack(10..110));
        assert!(many.starts_with("process 9: many\non the stack: "), "{many}");
        assert!(
            many.contains("descriptors 10, 11, 12, 13, 14, 15, 16, 17 and 92 more; "),
            "{many}"
        );
        let nothing =
            report(running_with(None, None), Some(&StackReport::default()), Width::of_stdout());
        assert_eq!(nothing, shown_with(None));
    }

    #[test]
    fn who_runs_is_listed_with_his_number_and_name() {
        let runs = |pid, program: &str, what: &str| Runs {
            pid,
            program: program.to_owned(),
            what: what.to_owned(),
        };
        let all = [runs(71, "nginx", "on the stack"), runs(4711, "uncork", "an instance")];
        let told = running(&all, Width::fixed(None, false));
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines[0], "these run: uncork stack stat PID says more of each");
        assert!(lines[2].contains("71  nginx ") && lines[2].ends_with("on the stack"), "{told}");
        assert!(lines[3].contains("4711  uncork ") && lines.len() == 4, "{told}");
    }
}
