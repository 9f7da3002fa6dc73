use super::trace::{Trace, us};
use crate::Kind;
use crate::Role::{Client, Server};

/// A request, a reply, and an orderly close.
fn closed() -> Trace {
    let mut trace = Trace::new(us(200));
    trace.data(Client, 100).rtt_later().data(Server, 100).after(us(20)).ack(Client);
    trace.fin(Client).rtt_later().fin(Server).after(us(20)).ack(Client);
    trace
}

#[test]
fn a_connection_that_is_over_is_reported_once_whatever_comes_after() {
    let mut trace = closed();
    // Its last ACK was lost on the way.
    trace.after(us(200_000)).again(Server, 1).after(us(20)).ack(Client);
    let report = trace.report();
    assert_eq!((report.summary.connections, report.connections.len()), (1, 1));
    assert_eq!(report.connections[0].requests, 1);
}

#[test]
fn the_same_ends_may_begin_again_after_an_end() {
    let mut trace = closed();
    trace.after(us(1_000_000)).open();
    trace.data(Client, 100).rtt_later().data(Server, 100).after(us(20)).ack(Client);
    let report = trace.report();
    assert_eq!(report.summary.connections, 2);
    assert!(report.connections.iter().all(|c| c.handshake_seen && c.requests == 1));
}

#[test]
fn what_is_lost_at_the_very_end_is_still_sent_again() {
    let mut trace = Trace::new(us(200));
    trace.data(Client, 100).rtt_later().data(Server, 100).after(us(20)).ack(Client);
    trace.data(Client, 100).fin(Client).rtt_later();
    // The reply and the FIN after it are lost, and retransmitted.
    trace.data(Server, 500).fin(Server).after(us(300_000)).again_with_fin(Server, 500);
    trace.rtt_later().ack(Client);
    let finding = trace.only(Kind::Retransmission);
    assert_eq!(finding.count, 1);
}

/// Whichever end closes first, no request is shorter than what it lost.
#[test]
fn a_request_that_is_cut_off_loses_no_more_than_it_took() {
    let mut trace = Trace::new(us(100));
    trace.data(Client, 120).rtt_later().after(us(200)).data(Server, 700).after(us(60));
    trace.ack(Client).after(us(900));
    // Header, delayed ACK, body, and the capture ends before the reply.
    trace.data(Client, 120).rtt_later().after(us(40_000)).ack(Server).after(us(30));
    trace.data(Client, 300);
    let report = trace.report();
    let connection = &report.connections[0];
    assert_eq!((connection.requests, connection.stalls), (1, 1));
    assert!(connection.lost > us(40_000), "{connection:#?}");
    assert!(connection.request_time >= connection.lost, "{connection:#?}");
    assert!(connection.request_time < us(42_000), "{connection:#?}");
    assert_eq!(report.summary.request_time, connection.request_time);
}

/// A greeting in two writes, before any request.
#[test]
fn what_is_lost_before_the_first_request_was_waited_for_too() {
    let mut trace = Trace::new(us(100));
    trace.data(Server, 50).after(us(40_000)).ack(Client).rtt_later().after(us(30));
    trace.data(Server, 20).after(us(100)).data(Client, 10).rtt_later().data(Server, 10);
    let connection = &trace.report().connections[0];
    assert!(connection.lost > us(40_000), "{connection:#?}");
    assert!(connection.request_time >= connection.lost, "{connection:#?}");
}

/// A second or more before the first octet: the SYN is never retransmitted sooner.
#[test]
fn a_lost_syn_is_a_loss() {
    let mut trace = closed();
    trace.after(us(1_000_000)).open_late(us(1_020_000));
    trace.data(Client, 100).rtt_later().data(Server, 100).after(us(20)).ack(Client);
    let report = trace.report();
    assert_eq!((report.summary.connections, report.summary.stalls), (2, 1));
    let connection = &report.connections[0];
    assert_eq!(connection.findings[0].kind, Kind::Retransmission);
    assert_eq!(connection.lost, us(1_020_000));
    assert!(connection.request_time >= connection.lost);
    assert!(connection.rtt.is_some_and(|rtt| rtt < us(1_000)), "{:?}", connection.rtt);
    let told = &connection.findings[0].evidence;
    assert!(told.contains("had to send its SYN again, 1.02 s after"), "{told}");
}
