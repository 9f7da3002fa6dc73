//! Ending: every order in which two sides can close, resets, TIME-WAIT (RFC 9293 §3.6, §3.10.4 to
//! §3.10.7).

use std::time::Duration;
use uncork_packet::{Capabilities, Medium};
use uncork_stack::{
    Config, ConnectionError, Event, Ready, RecvError, SendError, Shutdown, SocketId, SocketOption,
    State,
};

use crate::common::{self, Lab};

const NOTHING: [&str; 0] = [];

fn open() -> (Lab, SocketId) {
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK,ts 100 0");
    (lab, socket)
}

#[test]
fn closing_first_leads_through_fin_wait_1_fin_wait_2_and_time_wait() {
    let (mut lab, socket) = open();
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    assert_eq!(lab.state(socket), State::FinWait1);
    assert_eq!(lab.take(), ["F. 1:1(0) ack 1 <ts>"]);
    assert_eq!(lab.stack.send(lab.now, socket, b"x", false), Err(SendError::Closed));
    lab.send(". 1:0(0) ack 2 win 5000 <ts 201 0>");
    assert_eq!(lab.state(socket), State::FinWait2);
    // Half-closed: data that still arrives can be read.
    lab.send("P. 1:0(10) ack 2 win 5000 <ts 202 0>");
    assert_eq!(lab.read(socket), Ok(10));
    lab.send("F. 11:0(0) ack 2 win 5000 <ts 203 0>");
    assert_eq!(lab.state(socket), State::TimeWait);
    assert_eq!(lab.take().last().unwrap(), ". 2:2(0) ack 12 <ts>");
    assert_eq!(lab.read(socket), Ok(0));
    lab.stack.close(lab.now, socket);
    // A retransmitted FIN is acknowledged, and starts the wait anew.
    lab.wait(30_000);
    lab.send("F. 11:0(0) ack 2 win 5000 <ts 204 0>");
    assert_eq!(lab.take().len(), 1);
    lab.wait(59_000);
    assert_eq!(lab.stack.connection_count(), 1);
    lab.wait(1_001);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn who_waits_for_a_connection_that_is_given_up_is_told_whichever_way_it_was() {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let mut lab = Lab::new(Config::default());
        let peer = std::net::SocketAddr::new(common::PEER.parse().unwrap(), common::PEER_PORT);
        let socket = lab.stack.connect(lab.now, None, peer).unwrap();
        lab.take();
        lab.stack.shutdown(lab.now, socket, how);
        assert_eq!(lab.state(socket), State::Closed, "{how:?}");
        assert!(lab.stack.readiness(lab.now, socket).has(Ready::ERROR), "{how:?}");
        assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::Reset), "{how:?}");
        lab.wait(5_000);
        assert_eq!(lab.take(), NOTHING, "{how:?}");
    }
}

#[test]
fn both_close_at_once() {
    // §3.6, figure 13.
    let (mut lab, socket) = open();
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.take();
    lab.send("F. 1:0(0) ack 1 win 5000 <ts 201 0>");
    assert_eq!(lab.state(socket), State::Closing);
    assert_eq!(lab.take(), [". 2:2(0) ack 2 <ts>"]);
    lab.send(". 2:0(0) ack 2 win 5000 <ts 202 0>");
    assert_eq!(lab.state(socket), State::TimeWait);
}

#[test]
fn closing_after_the_peer_leads_through_close_wait_and_last_ack() {
    let (mut lab, socket) = open();
    lab.send("F. 1:0(0) ack 1 win 5000 <ts 201 0>");
    assert_eq!(lab.state(socket), State::CloseWait);
    assert_eq!(lab.take(), [". 1:1(0) ack 2 <ts>"]);
    lab.write(socket, 10);
    assert_eq!(lab.take(), ["P. 1:11(10) ack 2 <ts>"]);
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 11:11(0) ack 2 <ts>"]);
    assert_eq!(lab.state(socket), State::LastAck);
    lab.send(". 2:0(0) ack 12 win 5000 <ts 202 0>");
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn a_fin_travels_with_the_last_data_and_is_sent_again_like_it() {
    let (mut lab, socket) = open();
    lab.stack.hold(lab.now, socket);
    lab.write(socket, 1500);
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.stack.release(lab.now, socket);
    let last = "FP. 989:1501(512) ack 1 <ts>";
    assert_eq!(lab.take()[1..], [last]);
    lab.send(". 1:0(0) ack 989 win 5000 <ts 201 0>");
    let (_, again) = lab.until_something();
    assert_eq!(again, [last]);
}

#[test]
fn a_fin_that_is_all_that_is_left_of_a_train_is_sent_again() {
    // When the window opens, segments become longer, and the two of the train would be one
    // (tcp_bound_to_half_wnd).
    for (window, bytes) in [(65_535, 2000), (1000, 999)] {
        let device =
            Capabilities { max_train_bytes: 65_536, ..Capabilities::plain(Medium::Ip, 1500) };
        let mut lab = Lab::with_device(Config { pacing: false, ..Config::default() }, device);
        let listener = lab.listen();
        lab.send(&format!("S 0:0(0) win {window} <mss 1000>"));
        lab.take();
        lab.send(&format!(". 1:0(0) ack 1 win {window}"));
        let socket = lab.stack.accept(listener).unwrap();
        lab.stack.hold(lab.now, socket);
        lab.write(socket, bytes);
        lab.stack.shutdown(lab.now, socket, Shutdown::Write);
        lab.stack.release(lab.now, socket);
        let end = bytes + 1;
        assert_eq!(lab.take(), [format!("FP. 1:{end}({bytes}) ack 1")]);
        lab.send(&format!(". 1:0(0) ack {end} win 65535"));
        for _ in 0..2 {
            assert_eq!(lab.until_something().1, [format!("F. {end}:{end}(0) ack 1")]);
        }
    }
}

#[test]
fn what_was_held_leaves_when_nobody_has_the_connection_any_more() {
    let (mut lab, socket) = open();
    lab.stack.hold(lab.now, socket);
    lab.stack.send(lab.now, socket, b"last words", false).unwrap();
    assert_eq!(lab.take(), NOTHING);
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["FP. 1:11(10) ack 1 <ts>"]);
}

#[test]
fn closing_with_bytes_unread_resets() {
    // RFC 2525 §2.17.
    let (mut lab, socket) = open();
    lab.send("P. 1:0(10) ack 1 win 5000 <ts 201 0>");
    lab.take();
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["R. 1:1(0) ack 11 <ts>"]);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn data_for_a_connection_that_nobody_has_any_more_is_reset() {
    let (mut lab, socket) = open();
    lab.stack.close(lab.now, socket);
    lab.take();
    lab.send(". 1:0(0) ack 2 win 5000 <ts 201 0>");
    lab.send("P. 1:0(10) ack 2 win 5000 <ts 202 0>");
    assert_eq!(lab.take(), ["R 2:2(0)"]);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn a_closed_connection_does_not_wait_for_ever_for_the_peers_fin() {
    let (mut lab, socket) = open();
    lab.stack.close(lab.now, socket);
    lab.take();
    lab.send(". 1:0(0) ack 2 win 5000 <ts 201 0>");
    lab.wait(59_000);
    assert_eq!(lab.stack.connection_count(), 1);
    lab.wait(1_001);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn a_peer_that_keeps_its_window_shut_does_not_keep_a_closed_connection() {
    let (mut lab, socket) = open();
    lab.send(". 1:0(0) ack 1 win 0 <ts 201 0>");
    lab.write(socket, 500);
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), NOTHING);
    let mut probes = 0;
    loop {
        let (_, sent) = lab.until_something();
        assert_eq!(sent.len(), 1);
        if sent[0].starts_with('R') {
            break;
        }
        probes += 1;
        lab.send(". 1:0(0) ack 1 win 0 <ts 202 0>");
    }
    assert_eq!((probes, lab.stack.connection_count()), (8, 0));
}

#[test]
fn an_abort_resets_and_a_reset_fails_what_the_user_does_next() {
    let (mut lab, socket) = open();
    lab.stack.abort(lab.now, socket);
    assert_eq!(lab.take(), ["R. 1:1(0) ack 1 <ts>"]);
    let (mut lab2, other) = open();
    lab2.send("R. 1:0(0) ack 1 win 0");
    assert_eq!(lab2.read(other), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(lab2.read(other), Ok(0));
    lab2.stack.close(lab2.now, other);
    assert_eq!(lab2.stack.connection_count(), 0);
}

#[test]
fn a_reset_behind_the_peers_end_is_told_to_who_writes_and_not_to_who_reads() {
    // Linux: tcp_reset (EPIPE in CLOSE-WAIT), tcp_recvmsg (SOCK_DONE).
    let (mut lab, socket) = open();
    lab.send("F. 1:0(0) ack 1 win 5000 <ts 201 0>");
    lab.send("R. 2:0(0) ack 1 win 0");
    assert_eq!(lab.state(socket), State::Closed);
    assert_eq!(lab.read(socket), Ok(0));
    let broken = SendError::Failed(ConnectionError::Broken);
    assert_eq!(lab.stack.send(lab.now, socket, b"x", false), Err(broken));
    assert_eq!(lab.stack.send(lab.now, socket, b"x", false), Err(SendError::Closed));
    lab.stack.put_back_error(socket, ConnectionError::Broken);
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::Broken));
    assert_eq!(lab.stack.take_error(socket), None);
}

#[test]
fn a_later_syn_ends_time_wait_and_an_old_one_does_not() {
    // RFC 9293 §3.10.7.4 (TIME-WAIT), RFC 6191 §2.
    for (syn, opens) in [
        ("S 5000:0(0) win 5000 <mss 1000>", true),
        ("S 0:0(0) win 5000 <mss 1000,ts 900 0>", true),
        ("S 0:0(0) win 5000 <mss 1000,ts 50 0>", false),
        ("S 0:0(0) win 5000 <mss 1000>", false),
        // Nor one with a later number whose timestamp is older.
        ("S 5000:0(0) win 5000 <mss 1000,ts 50 0>", false),
    ] {
        let (mut lab, socket) = open();
        lab.stack.close(lab.now, socket);
        lab.take();
        lab.send("F. 1:0(0) ack 2 win 5000 <ts 203 0>");
        lab.take();
        assert_eq!(lab.state(socket), State::TimeWait, "{syn}");
        lab.send(syn);
        let answer = lab.take();
        assert_eq!(answer.len(), 1, "{syn}");
        assert_eq!(answer[0].starts_with("S."), opens, "{syn}: {answer:?}");
    }
}

#[test]
fn a_syn_does_not_end_time_wait_where_nobody_listens() {
    // Linux: tcp_v4_rcv, TCP_TW_SYN. RFC 5961 §4.2.
    let mut lab = Lab::new(Config::default());
    let socket = lab.connected("mss 1000");
    lab.stack.close(lab.now, socket);
    lab.take();
    lab.send("F. 1:0(0) ack 2 win 5000");
    assert_eq!(lab.take(), [". 2:2(0) ack 2"]);
    lab.send("S 5000:0(0) win 5000 <mss 1000>");
    assert_eq!((lab.take(), lab.stack.connection_count()), (vec![". 2:2(0) ack 2".to_owned()], 1));
}

#[test]
fn what_was_not_read_stays_when_a_syn_ends_time_wait() {
    let (mut lab, socket) = open();
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.take();
    lab.send("FP. 1:0(10) ack 2 win 5000 <ts 203 0>");
    lab.take();
    assert_eq!(lab.state(socket), State::TimeWait);
    lab.send("S 5000:0(0) win 5000 <mss 1000>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 5001 <mss 1460>"]);
    assert_eq!((lab.read(socket), lab.read(socket)), (Ok(10), Ok(0)));
    lab.stack.close(lab.now, socket);
    lab.send(". 5001:0(0) ack 1 win 5000");
    assert_eq!((lab.take(), lab.stack.connection_count()), (vec![], 1));
}

#[test]
fn numbers_behind_time_wait_begin_behind_those_before_it() {
    // RFC 9293 §3.6.1. The ISN clock of RFC 6528 is slower than many a connection.
    let (mut lab, socket) = open();
    for round in 1..=16 {
        lab.write(socket, 5000);
        lab.take();
        lab.send(&format!(". 1:0(0) ack {} win 65535 <ts 201 0>", 1 + round * 5000));
    }
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 80001:80001(0) ack 1 <ts>"]);
    lab.send("F. 1:0(0) ack 80002 win 5000 <ts 203 0>");
    lab.take();
    let next = lab.absolute(80_002);
    lab.send("S 5000:0(0) win 5000 <mss 1000>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 5001 <mss 1460>"]);
    assert_eq!(lab.absolute(0).wrapping_sub(next), 65_537);
}

#[test]
fn who_is_over_leaves_his_ends_to_the_next_though_his_user_has_a_name_for_him() {
    // Linux: tcp_done. First a connection that was accepted, then one that was not.
    for accepts in [true, false] {
        let mut lab = Lab::new(Config::default());
        let listener = lab.listen();
        let open = |lab: &mut Lab, first: u32| {
            lab.send(&format!("S {first}:0(0) win 65535 <mss 1000>"));
            assert_eq!(lab.take(), [format!("S. 0:0(0) ack {} <mss 1460>", first + 1)]);
            lab.send(&format!(". {}:0(0) ack 1 win 65535", first + 1));
        };
        open(&mut lab, 0);
        let first = accepts.then(|| lab.stack.accept(listener).unwrap());
        lab.send("R. 1:0(0) ack 1 win 0");
        open(&mut lab, 5000);
        let first = first.unwrap_or_else(|| lab.stack.accept(listener).unwrap());
        let second = lab.stack.accept(listener).unwrap();
        assert_eq!(lab.read(first), Err(RecvError::Failed(ConnectionError::Reset)));
        lab.stack.close(lab.now, first);
        lab.send("P. 5001:0(10) ack 1 win 65535");
        assert_eq!((lab.read(second), lab.stack.connection_count()), (Ok(10), 1));
    }
}

#[test]
fn a_reset_with_the_number_of_the_fin_before_it_is_believed() {
    // Darwin sends it; Linux: tcp_reset_check.
    let (mut lab, socket) = open();
    lab.send("R. 0:0(0) ack 1 win 0");
    assert_eq!(lab.state(socket), State::Established);
    lab.send("F. 1:0(0) ack 1 win 5000 <ts 201 0>");
    lab.take();
    lab.send("R. 1:0(0) ack 1 win 0");
    assert_eq!(lab.state(socket), State::Closed);
}

#[test]
fn a_segment_with_an_old_timestamp_is_dropped_and_answered() {
    // PAWS, RFC 7323 §5.3.
    let (mut lab, socket) = open();
    lab.send("P. 1:0(10) ack 1 win 5000 <ts 300 0>");
    lab.take();
    lab.send("P. 11:0(10) ack 1 win 5000 <ts 299 0>");
    assert_eq!(lab.take(), [". 1:1(0) ack 11 <ts>"]);
    assert_eq!((lab.read(socket), lab.stack.counters().old_timestamps), (Ok(10), 1));
    // A reset is accepted whatever its timestamp (§5.2).
    lab.send("R. 11:0(0) ack 1 win 0 <ts 1 0>");
    assert_eq!(lab.state(socket), State::Closed);
}

#[test]
fn shutting_the_read_side_keeps_what_comes() {
    let (mut lab, socket) = open();
    lab.stack.shutdown(lab.now, socket, Shutdown::Read);
    assert_eq!(lab.read(socket), Ok(0));
    lab.send("P. 1:0(10) ack 1 win 5000 <ts 201 0>");
    assert_eq!((lab.read(socket), lab.read(socket)), (Ok(10), Ok(0)));
    assert_eq!(lab.take().len(), 1);
}

#[test]
fn closing_a_listener_resets_those_who_wait() {
    let mut lab = Lab::new(Config::default());
    let listener = lab.listen();
    lab.send("S 0:0(0) win 5000 <mss 1000>");
    lab.take();
    lab.send(". 1:0(0) ack 1 win 5000");
    lab.stack.close_listener(lab.now, listener);
    assert_eq!(lab.take(), ["R. 1:1(0) ack 1"]);
    assert_eq!(lab.stack.connection_count(), 0);
    lab.send("S 9:0(0) win 5000 <mss 1000>");
    assert_eq!(lab.take().len(), 1);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn lingering_for_no_time_resets_and_throws_away_what_was_not_sent() {
    // SO_LINGER with zero (socket(7), tcp_close): in every state in which the peer must be told.
    let linger = SocketOption::Linger(Some(0));
    for with_data in [false, true] {
        let (mut lab, socket) = open();
        lab.stack.set_option(lab.now, socket, linger);
        if with_data {
            lab.stack.set_option(lab.now, socket, SocketOption::Cork(true));
            lab.write(socket, 10);
        }
        assert_eq!(lab.stack.begin_close(lab.now, socket), None);
        lab.stack.close(lab.now, socket);
        assert_eq!(lab.take(), ["R. 1:1(0) ack 1 <ts>"]);
        assert_eq!(lab.stack.connection_count(), 0);
    }
    // No reset where no peer has answered yet, nor in TIME-WAIT, which goes on.
    let mut lab = Lab::new(Config::default());
    let peer = std::net::SocketAddr::new(common::PEER.parse().unwrap(), common::PEER_PORT);
    let socket = lab.stack.connect(lab.now, None, peer).unwrap();
    lab.take();
    lab.stack.set_option(lab.now, socket, linger);
    lab.stack.close(lab.now, socket);
    assert_eq!((lab.take(), lab.stack.connection_count()), (vec![], 0));
    let (mut lab, socket) = open();
    lab.stack.set_option(lab.now, socket, linger);
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.take();
    lab.send("F. 1:0(0) ack 2 win 5000 <ts 201 0>");
    lab.take();
    lab.stack.close(lab.now, socket);
    assert_eq!((lab.take(), lab.stack.connection_count()), (vec![], 1));
}

#[test]
fn who_lingers_is_told_when_the_peer_has_everything() {
    let (mut lab, socket) = open();
    lab.stack.set_option(lab.now, socket, SocketOption::Linger(Some(7)));
    lab.write(socket, 10);
    lab.take();
    while lab.stack.poll_event().is_some() {}
    assert_eq!(lab.stack.begin_close(lab.now, socket), Some(Duration::from_secs(7)));
    assert_eq!(lab.take(), ["F. 11:11(0) ack 1 <ts>"]);
    assert_eq!(lab.stack.poll_event(), None);
    lab.send(". 1:0(0) ack 11 win 5000 <ts 201 0>");
    assert_eq!(lab.stack.poll_event(), None);
    lab.send(". 1:0(0) ack 12 win 5000 <ts 201 0>");
    assert_eq!(lab.stack.poll_event(), Some(Event::Socket(socket, Ready::DRAINED)));
    assert_eq!(lab.stack.begin_close(lab.now, socket), None);
    lab.stack.close(lab.now, socket);
    // The timeout does not end the connection: it goes on without a user, like any closed one.
    let (mut lab, socket) = open();
    lab.stack.set_option(lab.now, socket, SocketOption::Linger(Some(1)));
    assert_eq!(lab.stack.begin_close(lab.now, socket), Some(Duration::from_secs(1)));
    lab.take();
    lab.wait(1000);
    lab.stack.close(lab.now, socket);
    lab.send("F. 1:0(0) ack 2 win 5000 <ts 201 0>");
    assert_eq!(lab.take().last().unwrap(), ". 2:2(0) ack 2 <ts>");
}

#[test]
fn all_is_quiet_when_no_peer_waits_for_anything() {
    let (mut lab, socket) = open();
    assert!(!lab.stack.is_quiet());
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 1:1(0) ack 1 <ts>"]);
    lab.send(". 1:0(0) ack 2 win 5000 <ts 201 0>");
    assert!(!lab.stack.is_quiet());
    lab.send("F. 1:0(0) ack 2 win 5000 <ts 202 0>");
    // The peer still waits for the ACK of its FIN.
    assert!(!lab.stack.is_quiet());
    assert_eq!(lab.take(), [". 2:2(0) ack 2 <ts>"]);
    assert!(lab.stack.is_quiet());
    assert_eq!(lab.stack.connection_count(), 1);
}

#[test]
fn aborting_all_resets_those_as_well_whose_names_were_given_back() {
    let (mut lab, socket) = open();
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 1:1(0) ack 1 <ts>"]);
    lab.stack.abort_all(lab.now);
    assert!(!lab.stack.is_quiet());
    assert_eq!(lab.take(), ["R. 2:2(0) ack 1 <ts>"]);
    assert_eq!((lab.stack.connection_count(), lab.stack.is_quiet()), (0, true));
}
