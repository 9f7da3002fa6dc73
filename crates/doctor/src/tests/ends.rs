use super::trace::{Trace, us};
use crate::Kind;
use crate::Role::{Client, Server};

/// A request, a reply, and an end in good order.
fn closed() -> Trace {
    let mut trace = Trace::new(us(200));
    trace.data(Client, 100).rtt_later().data(Server, 100).after(us(20)).ack(Client);
    trace.fin(Client).rtt_later().fin(Server).after(us(20)).ack(Client);
    trace
}

#[test]
fn a_connection_that_is_over_is_reported_once_whatever_comes_after() {
    let mut trace = closed();
    // Its last ACK got lost on the way.
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
    // The reply and the FIN behind it do not arrive, and are sent again.
    trace.data(Server, 500).fin(Server).after(us(300_000)).again_with_fin(Server, 500);
    trace.rtt_later().ack(Client);
    let finding = trace.only(Kind::Retransmission);
    assert_eq!(finding.count, 1);
}
