//! What poll(2) reports of a connection, from its beginning to its end.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use uncork_stack::{Config, ConnectionError, Ready, Shutdown, SocketId, SocketOption};

use crate::common::{Lab, PEER, PEER_PORT};

const SYN: &str = "mss 1000";

/// Lists what the socket is ready for, in the order of poll(2)'s names.
fn letters(lab: &mut Lab, socket: SocketId) -> String {
    let ready = lab.stack.readiness(lab.now, socket);
    let names = [
        (Ready::READABLE, "in"),
        (Ready::WRITABLE, "out"),
        (Ready::CONNECTED, "open"),
        (Ready::PEER_CLOSED, "rdhup"),
        (Ready::CLOSED, "hup"),
        (Ready::ERROR, "err"),
        (Ready::DRAINED, "drained"),
    ];
    let held: Vec<_> =
        names.into_iter().filter(|(one, _)| ready.has(*one)).map(|(_, name)| name).collect();
    held.join(" ")
}

fn connecting() -> (Lab, SocketId) {
    let mut lab = Lab::new(Config::default());
    let remote = format!("{PEER}:{PEER_PORT}").parse().unwrap();
    let socket = lab.stack.connect(lab.now, None, remote).unwrap();
    lab.take();
    (lab, socket)
}

#[test]
fn a_connection_that_is_opened_and_refused() {
    let (mut lab, socket) = connecting();
    assert_eq!(letters(&mut lab, socket), "");
    lab.send("R. 0:0(0) ack 1 win 0");
    // As Linux: POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP.
    assert_eq!(letters(&mut lab, socket), "in out rdhup hup err");
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::Refused));
    assert_eq!(letters(&mut lab, socket), "in out rdhup hup");
    lab.stack.close(lab.now, socket);
    assert_eq!(letters(&mut lab, socket), "", "there is none any more");
    assert_eq!(lab.stack.ends(socket), None);
}

#[test]
fn data_room_and_the_peers_end() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.stack.set_option(lab.now, socket, SocketOption::SendBuffer(8000));
    assert_eq!(letters(&mut lab, socket), "out open");
    lab.send(". 1:11(10) ack 1 win 65535");
    assert_eq!(letters(&mut lab, socket), "in out open");
    lab.read(socket).unwrap();
    assert_eq!(lab.write(socket, 8000), 8000);
    while lab.stack.poll_event().is_some() {}
    assert_eq!(letters(&mut lab, socket), "open");
    lab.take();
    // A user that was told there is no room hears when there is.
    lab.send(". 11:11(0) ack 8001 win 65535");
    let event = lab.stack.poll_event();
    assert_eq!(event, Some(uncork_stack::Event::Socket(socket, Ready::WRITABLE)));
    lab.send("F. 11:11(0) ack 8001 win 65535");
    assert_eq!(letters(&mut lab, socket), "in out open rdhup");
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    assert_eq!(letters(&mut lab, socket), "in out open rdhup hup");
}

#[test]
fn our_end_and_a_reset() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    assert_eq!(letters(&mut lab, socket), "out open");
    lab.take();
    lab.send(". 1:1(0) ack 2 win 65535");
    assert_eq!(letters(&mut lab, socket), "out open drained");
    lab.send("R. 1:1(0) ack 2 win 0");
    assert_eq!(letters(&mut lab, socket), "in out rdhup hup err");
}

#[test]
fn who_wants_no_more_has_the_end() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.stack.shutdown(lab.now, socket, Shutdown::Read);
    assert_eq!(letters(&mut lab, socket), "in out open rdhup");
}

#[test]
fn a_shut_window_ends_the_wait_for_more() {
    // SO_RCVLOWAT, tcp_epollin_ready.
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    let stopped = |lab: &mut Lab| lab.stack.readiness(lab.now, socket).has(Ready::STOPPED);
    assert!(!stopped(&mut lab));
    for n in 0..65 {
        lab.send(&format!("P. {}:0(1000) ack 1 win 65535", 1 + 1000 * n));
        lab.take();
        // There are 65,535 octets of room, and a segment takes a thousand.
        assert_eq!(stopped(&mut lab), n == 64, "{n}");
    }
    while lab.read(socket).is_ok() {}
    assert!(!stopped(&mut lab));
}
