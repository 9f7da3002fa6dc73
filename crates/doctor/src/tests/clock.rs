//! A clock that is set during the capture.

use std::time::Duration;

use super::trace::{Trace, us};
use crate::Report;
use crate::Role::{Client, Server};

const HOUR: Duration = Duration::from_secs(3600);

fn exchanges(trace: &mut Trace, times: u32) {
    for _ in 0..times {
        trace.data(Client, 100).rtt_later().data(Server, 300).after(us(20)).ack(Client);
        trace.after(us(30_000));
    }
}

/// The clock is set between a request and its reply, where it matters most.
fn set(forth: bool) -> Report {
    let mut trace = Trace::new(us(200));
    exchanges(&mut trace, 10);
    trace.data(Client, 100).rtt_later();
    if forth {
        trace.ahead += HOUR;
    } else {
        trace.behind += HOUR;
    }
    trace.data(Server, 300).after(us(20)).ack(Client);
    exchanges(&mut trace, 10);
    trace.report()
}

#[test]
fn nobody_waited_for_the_hour_by_which_the_clock_was_set() {
    for (forth, way) in [(true, "forward once, by 3600"), (false, "back once, by 3600")] {
        let report = set(forth);
        let connection = &report.connections[0];
        assert!(connection.findings.is_empty(), "{:#?}", connection.findings);
        assert_eq!(connection.requests, 21);
        assert!(connection.duration < Duration::from_secs(2), "{:?}", connection.duration);
        assert!(report.summary.duration < Duration::from_secs(2));
        assert!(report.summary.request_time < Duration::from_secs(1));
        assert!(report.notes.len() == 1 && report.notes[0].contains(way), "{:?}", report.notes);
    }
}

#[test]
fn an_hour_that_did_pass_is_an_hour() {
    let mut trace = Trace::new(us(200));
    exchanges(&mut trace, 10);
    trace.data(Client, 100).rtt_later().after(Duration::from_secs(60));
    trace.data(Server, 300).after(us(20)).ack(Client).after(HOUR);
    exchanges(&mut trace, 10);
    let report = trace.report();
    assert_eq!(report.notes, Vec::<String>::new());
    let connection = &report.connections[0];
    assert!(connection.duration > HOUR, "{:?}", connection.duration);
    let slow = connection.findings.iter().find(|f| f.kind == crate::Kind::Application).unwrap();
    assert!((59..61).contains(&slow.lost.as_secs()), "{slow:#?}");
}
