//! What holds bytes back and what lets them go: Nagle, cork, MSG_MORE, autocork, small queues,
//! windows, pacing, and the user's own hold.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_stack::{Blocked, Config, Event, Ready, SocketId, SocketOption};

use crate::common::{self, Lab};

const NOTHING: [&str; 0] = [];

fn lab() -> Lab {
    Lab::new(Config { pacing: false, ..Config::default() })
}

fn why(lab: &mut Lab, socket: SocketId) -> Option<Blocked> {
    lab.stack.info(lab.now, socket).unwrap().blocked
}

#[test]
fn no_segment_is_larger_than_the_peer_has_asked_for() {
    // RFC 9293 §3.7.1 (MUST-16). Two of 500 would fit into a frame of this device, which takes no
    // trains.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 500");
    lab.write(socket, 1500);
    assert_eq!(
        lab.take(),
        [". 1:501(500) ack 1", ". 501:1001(500) ack 1", "P. 1001:1501(500) ack 1"]
    );
    // Nor when it is sent again.
    let (_, again) = lab.until_something();
    assert_eq!(again, [". 1:501(500) ack 1"]);
}

#[test]
fn a_peer_who_asks_for_tiny_segments_gets_small_ones() {
    // CVE-2019-11479; tcp_min_snd_mss. Nor does a small window make them tiny
    // (tcp_bound_to_half_wnd).
    for (options, window, bytes) in [
        ("mss 1", 65_535, 48),
        ("mss 1,ts 5 0", 65_535, 36),
        ("mss 1000", 30, 48),
        ("mss 1000,ts 5 0", 30, 36),
        ("mss 88", 65_535, 88),
    ] {
        let mut lab = lab();
        let listener = lab.listen();
        lab.send(&format!("S 0:0(0) win {window} <{options}>"));
        lab.take();
        let stamp = if options.contains("ts") { " <ts 6 0>" } else { "" };
        lab.send(&format!(". 1:0(0) ack 1 win {window}{stamp}"));
        let socket = lab.stack.accept(listener).unwrap();
        assert_eq!(lab.stack.info(lab.now, socket).unwrap().segment_bytes, bytes, "{options}");
        if window > 500 {
            lab.write(socket, 1000);
            assert!(lab.take()[0].starts_with(&format!(". 1:{}({bytes})", bytes + 1)));
        }
    }
}

#[test]
fn nagle_holds_a_second_small_segment_until_the_first_is_acknowledged() {
    // RFC 9293 §3.7.4.
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    assert_eq!(why(&mut lab, socket), Some(Blocked::Application));
    lab.write(socket, 10);
    assert_eq!(lab.take(), ["P. 1:11(10) ack 1"]);
    lab.write(socket, 10);
    lab.write(socket, 10);
    assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Nagle)));
    lab.send(". 1:0(0) ack 11 win 65535");
    assert_eq!(lab.take(), ["P. 11:31(20) ack 1"]);
}

#[test]
fn nagle_does_not_hold_a_whole_message() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 10);
    assert_eq!(lab.take(), ["P. 1:11(10) ack 1"]);
    lab.write(socket, 10);
    lab.write(socket, 5);
    assert_eq!(lab.take(), NOTHING);
    lab.stack.complete(lab.now, socket);
    assert_eq!(lab.take(), ["P. 11:26(15) ack 1"]);
    // That does not cover later writes.
    lab.write(socket, 10);
    assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Nagle)));
    // It does not lift a cork.
    lab.stack.set_option(lab.now, socket, SocketOption::Cork(true));
    lab.stack.complete(lab.now, socket);
    assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Cork)));
}

#[test]
fn behind_a_full_segment_a_small_one_leaves_at_once() {
    // Minshall's variant, as Linux has it.
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 1000);
    lab.write(socket, 10);
    assert_eq!(lab.take(), [". 1:1001(1000) ack 1", "P. 1001:1011(10) ack 1"]);
}

#[test]
fn no_delay_sends_each_write_and_setting_it_sends_what_was_held() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 10);
    lab.take();
    lab.write(socket, 10);
    assert_eq!(lab.take(), NOTHING);
    lab.stack.set_option(lab.now, socket, SocketOption::NoDelay(true));
    assert_eq!(lab.take(), ["P. 11:21(10) ack 1"]);
    lab.write(socket, 5);
    assert_eq!(lab.take(), ["P. 21:26(5) ack 1"]);
}

#[test]
fn a_cork_lets_full_segments_go_and_the_rest_when_it_is_drawn() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.stack.set_option(lab.now, socket, SocketOption::Cork(true));
    lab.write(socket, 10);
    assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Cork)));
    lab.write(socket, 1500);
    assert_eq!(lab.take(), [". 1:1001(1000) ack 1"]);
    lab.stack.set_option(lab.now, socket, SocketOption::Cork(false));
    assert_eq!(lab.take(), ["P. 1001:1511(510) ack 1"]);
}

#[test]
fn a_cork_and_msg_more_hold_for_200_ms_at_most() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write_more(socket, 10);
    assert_eq!(lab.take(), NOTHING);
    lab.wait(150);
    lab.write_more(socket, 10);
    assert_eq!(lab.until_something(), (50.0, vec!["P. 1:21(20) ack 1".to_owned()]));
    lab.send(". 1:0(0) ack 21 win 65535");
    lab.stack.set_option(lab.now, socket, SocketOption::Cork(true));
    lab.write(socket, 10);
    assert_eq!(lab.until_something(), (200.0, vec!["P. 21:31(10) ack 1".to_owned()]));
}

#[test]
fn a_write_without_more_takes_along_what_was_held() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write_more(socket, 10);
    lab.take();
    lab.write(socket, 5);
    assert_eq!(lab.take(), ["P. 1:16(15) ack 1"]);
}

#[test]
fn autocork_joins_small_writes_while_the_device_has_the_last_one() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.stack.set_option(lab.now, socket, SocketOption::NoDelay(true));
    lab.completes = false;
    lab.write(socket, 10);
    assert_eq!(lab.take(), ["P. 1:11(10) ack 1"]);
    // No wake is needed for completions until something waits for one.
    assert!(!lab.stack.awaits_completion());
    for _ in 0..5 {
        lab.write(socket, 10);
        assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Autocork)));
        assert!(lab.stack.awaits_completion());
    }
    // The completion itself sends nothing: held data leaves when a frame is asked for.
    lab.complete();
    assert!(!lab.stack.awaits_completion());
    assert_eq!(lab.take(), ["P. 11:61(50) ack 1"]);
    // A full segment does not wait.
    lab.write(socket, 1000);
    assert_eq!(lab.take(), ["P. 61:1061(1000) ack 1"]);
    let mut plain = Lab::new(Config { autocork: false, ..Config::default() });
    let socket = plain.accepted("mss 1000");
    plain.stack.set_option(plain.now, socket, SocketOption::NoDelay(true));
    plain.completes = false;
    for _ in 0..3 {
        plain.write(socket, 10);
        assert_eq!(plain.take().len(), 1);
    }
}

#[test]
fn autocork_lets_the_end_of_a_write_leave_with_its_beginning() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.completes = false;
    lab.write(socket, 2010);
    let whole = [". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 1", "P. 2001:2011(10) ack 1"];
    assert_eq!(lab.take(), whole);
    // While the device has that, the short end of the next write waits.
    lab.stack.set_option(lab.now, socket, SocketOption::NoDelay(true));
    lab.write(socket, 1010);
    assert_eq!(lab.take(), [". 2011:3011(1000) ack 1"]);
    assert_eq!(why(&mut lab, socket), Some(Blocked::Autocork));
    lab.complete();
    assert_eq!(lab.take(), ["P. 3011:3021(10) ack 1"]);
}

#[test]
fn without_completions_there_is_no_autocork_to_wait_for() {
    let device =
        Capabilities { reports_completions: false, ..Capabilities::plain(Medium::Ip, 1500) };
    let mut lab = Lab::with_device(Config::default(), device);
    let socket = lab.accepted("mss 1000");
    lab.stack.set_option(lab.now, socket, SocketOption::NoDelay(true));
    lab.completes = false;
    for _ in 0..3 {
        lab.write(socket, 10);
        assert_eq!(lab.take().len(), 1);
    }
}

#[test]
fn no_more_than_the_limit_is_in_the_device_and_completions_let_the_next_go() {
    let config = Config { small_queue_bytes: 4 * 1040, pacing: false, ..Config::default() };
    let mut lab = Lab::new(config);
    lab.round_trip = 1;
    let socket = lab.accepted("mss 1000");
    lab.completes = false;
    lab.write(socket, 9000);
    assert_eq!(lab.take().len(), 4);
    assert_eq!(why(&mut lab, socket), Some(Blocked::SmallQueue));
    // ACKs do not help: it is the device that is full.
    lab.send(". 1:0(0) ack 1001 win 65535");
    assert_eq!(lab.take(), NOTHING);
    for n in 4..8 {
        lab.complete_first();
        assert_eq!(lab.take(), [format!(". {}:{}(1000) ack 1", 1 + n * 1000, 1001 + n * 1000)]);
    }
    assert!(lab.stack.counters().throttled > 0);
    // An aborted connection waits for no completion.
    assert!(lab.stack.awaits_completion());
    lab.stack.abort(lab.now, socket);
    lab.stack.close(lab.now, socket);
    lab.take();
    assert_eq!((lab.stack.connection_count(), lab.stack.awaits_completion()), (0, false));
}

#[test]
fn two_segments_may_always_be_in_the_device() {
    let config = Config { small_queue_bytes: 1, pacing: false, ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted("mss 1000");
    lab.completes = false;
    lab.write(socket, 9000);
    assert_eq!(lab.take().len(), 2);
}

#[test]
fn a_train_is_at_most_half_of_the_limit_and_all_together_at_most_the_limit() {
    let device = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    for (small_queue_bytes, expected) in [(8400, vec![4, 4]), (10_000, vec![4, 4, 1])] {
        let config = Config {
            small_queue_bytes,
            initial_window_segments: 40,
            pacing: false,
            ..Config::default()
        };
        let mut lab = Lab::with_device(config, device);
        lab.round_trip = 1;
        let socket = lab.accepted("mss 1000");
        lab.completes = false;
        lab.write(socket, 30_000);
        let sent: Vec<_> =
            lab.take().iter().map(|line| line.matches("(4000)").count() * 3 + 1).collect();
        assert_eq!(sent, expected);
        lab.complete_first();
        assert_eq!(lab.take().len(), 1);
        let train = lab.last.and_then(|transmit| transmit.segmentation).unwrap();
        assert_eq!((train.segment_bytes, train.header_bytes), (1000, 40));
    }
}

#[test]
fn connections_go_on_in_the_order_in_which_their_completions_came() {
    let config = Config { small_queue_bytes: 1, pacing: false, ..Config::default() };
    let mut lab = Lab::new(config);
    let listener = lab.listen();
    lab.completes = false;
    let mut sockets = vec![];
    for port in [1, 2, 3] {
        lab.peer_port = port;
        lab.send("S 0:0(0) win 65535 <mss 1000>");
        lab.take();
        lab.send(". 1:1(0) ack 1 win 65535");
        let socket = lab.stack.accept(listener).unwrap();
        lab.write(socket, 3000);
        assert_eq!(lab.take().len(), 2);
        sockets.push(socket);
    }
    let completions = std::mem::take(&mut lab.in_device);
    for which in [4, 0, 2] {
        lab.stack.handle_completion(lab.now, completions[which]);
    }
    let mut slot = vec![0; 2000];
    let mut order = vec![];
    while let Some(transmit) = lab.stack.poll_transmit(lab.now, &mut slot) {
        order.push(transmit.owner.unwrap());
    }
    let expected: Vec<_> = [2, 0, 1].map(|index: usize| common::owner(sockets[index])).into();
    assert_eq!(order, expected);
}

#[test]
fn a_window_lets_whole_segments_through_and_a_shut_one_is_probed() {
    // RFC 9293 §3.8.6.1 and §3.8.6.2.1.
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 2500);
    lab.take();
    lab.send(". 1:0(0) ack 2501 win 0");
    lab.write(socket, 2000);
    assert_eq!((lab.take(), why(&mut lab, socket)), (vec![], Some(Blocked::Window)));
    let (first, probe) = lab.until_something();
    assert_eq!(probe, [". 2500:2500(0) ack 1"]);
    lab.send(". 1:0(0) ack 2501 win 0");
    let (second, probe) = lab.until_something();
    assert_eq!((probe.len(), (second / first).round()), (1, 2.0));
    // Room for less than a segment is not used; room for a segment is.
    lab.send(". 1:0(0) ack 2501 win 500");
    assert_eq!(lab.take(), NOTHING);
    lab.send(". 1:0(0) ack 2501 win 1500");
    assert_eq!(lab.take(), [". 2501:3501(1000) ack 1"]);
}

#[test]
fn a_window_that_stays_below_a_segment_is_filled_after_a_while() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 1000);
    lab.take();
    lab.send(". 1:0(0) ack 1001 win 300");
    lab.write(socket, 1000);
    assert_eq!(lab.take(), NOTHING);
    let (millis, sent) = lab.until_something();
    assert_eq!(sent, ["P. 1001:1301(300) ack 1"]);
    assert!((200.0..400.0).contains(&millis), "{millis}");
}

#[test]
fn the_congestion_window_lets_ten_segments_go() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 20_000);
    assert_eq!(lab.take().len(), 10);
    assert_eq!(why(&mut lab, socket), Some(Blocked::CongestionWindow));
    lab.send(". 1:0(0) ack 2001 win 65535");
    assert_eq!(lab.take().len(), 4);
}

#[test]
fn what_is_held_by_its_user_leaves_when_he_lets_go() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.stack.hold(lab.now, socket);
    lab.write(socket, 10);
    lab.write(socket, 10);
    assert_eq!(lab.take(), NOTHING);
    assert!(lab.stack.is_held_back(socket));
    assert_eq!(why(&mut lab, socket), Some(Blocked::Held));
    lab.stack.release(lab.now, socket);
    assert_eq!(lab.take(), ["P. 1:21(20) ack 1"]);
}

#[test]
fn paced_segments_leave_at_twice_the_windows_rate_in_slow_start() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1000");
    // The initial window may leave at once.
    lab.write(socket, 60_000);
    assert_eq!(lab.take().len(), 10);
    lab.wait(10);
    lab.send(". 1:0(0) ack 10001 win 65535");
    // Twenty are allowed now, in half a round trip of ten milliseconds.
    let began = lab.now;
    let mut sent = lab.take().len();
    assert!((9..=12).contains(&sent), "{sent} at once");
    assert_eq!(why(&mut lab, socket), Some(Blocked::Pacing));
    while sent < 20 {
        sent += lab.until_something().1.len();
    }
    let took = lab.now.since(began);
    assert!((Duration::from_millis(2)..Duration::from_millis(4)).contains(&took), "{took:?}");
}

#[test]
fn a_device_holds_less_than_a_millisecond_of_what_gets_through() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 9000);
    assert_eq!(lab.take().len(), 9);
    lab.wait(10);
    lab.send(". 1:0(0) ack 9001 win 65535");
    // Nine segments in ten milliseconds are not even two in a millisecond, but two are always
    // allowed.
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().device_limit_bytes, 2080);
    lab.completes = false;
    lab.write(socket, 9000);
    assert_eq!(lab.take().len(), 2);
}

/// Simulates one of thousands of connections, whose turn comes every 30 ms; returns what the device
/// may hold for it, and its last train in segments.
fn one_of_thousands(round_trip: u64, turns: u32) -> (u32, u32) {
    let device = Capabilities { max_train_bytes: 65_000, ..Capabilities::plain(Medium::Ip, 1500) };
    let config = Config { pacing: false, ..Config::default() };
    let mut lab = Lab::with_device(config, device);
    lab.round_trip = round_trip;
    let socket = lab.accepted("mss 1000");
    let mut una = 1;
    for _ in 0..turns {
        let unsent = lab.stack.info(lab.now, socket).unwrap().unsent_bytes;
        lab.write(socket, 20_000 - unsent as usize);
        lab.take_one().unwrap();
        let sent = lab.last.unwrap();
        una += sent.frame_bytes - 40;
        // All has left long before the others have been served.
        lab.complete();
        lab.wait(30);
        lab.send(&format!(". 1:1(0) ack {una} win 65535"));
    }
    let limit = lab.stack.info(lab.now, socket).unwrap().device_limit_bytes;
    (limit, (lab.last.unwrap().frame_bytes - 40) / 1000)
}

#[test]
fn a_device_that_is_always_empty_when_it_is_ones_turn_may_have_more() {
    // The first train leaves before anything is known, and seems to take 30 ms.
    assert_eq!(one_of_thousands(10, 2), (2080, 1));
    assert_eq!(one_of_thousands(10, 40).0, 131_072);
}

#[test]
fn where_a_round_trip_is_short_trains_are_long_however_low_the_rate() {
    let (_, far) = one_of_thousands(10, 40);
    let (_, near) = one_of_thousands(0, 40);
    // Half of the window, and the minimum.
    assert_eq!((near, far), (5, 2));
}

#[test]
fn the_user_is_told_of_room_when_a_third_is_free_and_little_is_unsent() {
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    while lab.stack.poll_event().is_some() {}
    lab.stack.set_option(lab.now, socket, SocketOption::SendBuffer(9000));
    assert_eq!(lab.write(socket, 10_000), 9000);
    lab.take();
    lab.send(". 1:0(0) ack 1001 win 65535");
    assert_eq!(lab.stack.poll_event(), None);
    lab.send(". 1:0(0) ack 4001 win 65535");
    assert!(lab.stack.poll_event().is_some());
    // TCP_NOTSENT_LOWAT.
    lab.send(". 1:0(0) ack 9001 win 0");
    lab.stack.set_option(lab.now, socket, SocketOption::NotSentLowWater(Some(100)));
    lab.write(socket, 100);
    // The train that is begun may still be filled, but the socket is not reported writable.
    assert!(!lab.stack.is_writable(lab.now, socket));
    assert_eq!(lab.write(socket, 50_000), 8900);
}

#[test]
fn who_waits_for_his_low_water_mark_is_told_when_what_he_gave_has_left() {
    // tcp_check_space, after tcp_push_pending_frames.
    let mut lab = lab();
    let socket = lab.accepted("mss 1000");
    lab.stack.set_option(lab.now, socket, SocketOption::NotSentLowWater(Some(4000)));
    assert_eq!(lab.write(socket, 100_000), 32_000);
    assert_eq!(lab.take().len(), 10);
    while lab.stack.poll_event().is_some() {}
    lab.wait(10);
    lab.send(". 1:0(0) ack 10001 win 65535");
    assert_eq!(lab.stack.poll_event(), None, "22 segments were not sent");
    assert_eq!(lab.take().len(), 20);
    let event = lab.stack.poll_event();
    assert_eq!(event, Some(Event::Socket(socket, Ready::WRITABLE)));
    assert_eq!(lab.stack.poll_event(), None);
}

#[test]
fn a_low_water_that_is_taken_back_is_the_stacks_own_again() {
    // tcp_notsent_lowat(): zero, a socket's initial value, stands for the host's value.
    let config = Config { not_sent_low_water: Some(100), pacing: false, ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted("mss 1000");
    lab.send(". 1:0(0) ack 1 win 0");
    lab.write(socket, 100);
    let mut with = |water| {
        lab.stack.set_option(lab.now, socket, SocketOption::NotSentLowWater(water));
        lab.stack.is_writable(lab.now, socket)
    };
    assert_eq!([Some(200), None, Some(u32::MAX), None].map(&mut with), [true, false, true, false]);
}

#[test]
fn a_peer_that_does_not_read_takes_as_much_off_its_writers_hands_as_from_linux() {
    // tcp_sndbuf_expand: for 1000 octets 2048 + 256, twice, for each segment of the largest window.
    let of = |segments: usize| segments * 2 * (2048 + 256);
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    let info = |lab: &mut Lab| lab.stack.info(lab.now, socket).unwrap();
    // The minimum, however small the window.
    assert_eq!(lab.write(socket, 1 << 20), 65_536);
    for _ in 0..30 {
        lab.take();
        let sent = info(&mut lab).bytes_sent;
        lab.send(&format!(". 1:1(0) ack {} win 65535", sent + 1));
    }
    let largest = info(&mut lab).window_segments as usize;
    let shut = info(&mut lab).bytes_sent + 1;
    lab.send(&format!(". 1:1(0) ack {shut} win 0"));
    let mut written = 0;
    while lab.stack.is_writable(lab.now, socket) {
        written += lab.write(socket, 1 << 20);
    }
    assert!(largest > 50 && written == of(largest), "{largest}, {written}");
    // Idleness shrinks the window, and not the buffer.
    lab.send(&format!(". 1:1(0) ack {shut} win 65535"));
    while info(&mut lab).bytes_sent < shut + written as u64 - 1 {
        lab.take();
        let sent = info(&mut lab).bytes_sent;
        lab.send(&format!(". 1:1(0) ack {} win 65535", sent + 1));
    }
    let largest = info(&mut lab).window_segments as usize;
    lab.wait(60_000);
    lab.write(socket, 1000);
    assert_eq!(lab.take().len(), 1);
    let window = info(&mut lab).window_segments as usize;
    assert!(window <= 10 && lab.write(socket, 1 << 20) == of(largest) - 1000, "{window}");
}

#[test]
fn who_says_more_with_a_full_buffer_that_is_shorter_than_a_segment_does_not_wait() {
    let mut lab = Lab::with_device(Config::default(), Capabilities::plain(Medium::Ip, 9000));
    let socket = lab.accepted("mss 8960");
    lab.stack.set_option(lab.now, socket, SocketOption::SendBuffer(5000));
    assert_eq!(lab.stack.send(lab.now, socket, &[0; 1000], true), Ok(1000));
    assert_eq!(lab.take(), NOTHING);
    assert_eq!(lab.stack.send(lab.now, socket, &[0; 8000], true), Ok(4000));
    assert_eq!(lab.take(), ["P. 1:5001(5000) ack 1"]);
    // The next write does not fill the buffer, and is held.
    lab.send(". 1:1(0) ack 5001 win 65535");
    assert_eq!(lab.stack.send(lab.now, socket, &[0; 4999], true), Ok(4999));
    assert_eq!(lab.take(), NOTHING);
}

#[test]
fn a_train_ends_with_psh_and_segments_inside_a_write_do_not() {
    let device = Capabilities {
        max_train_bytes: 65_535,
        reports_completions: false,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    let config = Config { pacing: false, least_train_segments: 99, ..Config::default() };
    let mut lab = Lab::with_device(config, device);
    let socket = lab.accepted("mss 1000,sackOK");
    lab.write(socket, 20_000);
    // Never more than half of the window at once: ACKs must come while something is left.
    assert_eq!(lab.take(), ["P. 1:5001(5000) ack 1", "P. 5001:10001(5000) ack 1"]);
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    lab.write(socket, 2500);
    assert_eq!(
        lab.take(),
        [". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 1", "P. 2001:2501(500) ack 1"]
    );
}

#[test]
fn a_long_write_says_psh_after_every_half_of_the_largest_window() {
    // tcp_sendmsg_locked: so that a receiver can deliver data before its window is full.
    let mut lab = lab();
    let socket = lab.accepted("mss 1000,sackOK");
    lab.write(socket, 60_000);
    let mut sent = lab.take();
    for una in (1..=60).map(|segment| segment * 1000 + 1) {
        lab.wait(1);
        lab.send(&format!(". 1:1(0) ack {una} win 65535"));
        sent.extend(lab.take());
    }
    assert_eq!(sent.len(), 60);
    sent.retain(|segment| segment.starts_with('P'));
    // The first piece has 32 segments, and takes as many more as leave meanwhile: the window's ten.
    assert_eq!(sent, ["P. 41001:42001(1000) ack 1", "P. 59001:60001(1000) ack 1"]);
}

#[test]
fn no_segment_has_octets_of_two_records() {
    // MSG_EOR: the segment that it ends waits for nothing that follows, and is not joined with it
    // on retransmission.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    for _ in 0..2 {
        lab.write(socket, 300);
        lab.stack.end_record(socket);
    }
    lab.write(socket, 2000);
    let records = ["P. 1:301(300) ack 1", "P. 301:601(300) ack 1"];
    let rest = [". 601:1601(1000) ack 1", "P. 1601:2601(1000) ack 1"];
    assert_eq!(lab.take(), [records, rest].concat());
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 601:2601>");
    let (_, again) = lab.until_something();
    assert_eq!(again, records[..1]);
}

#[test]
fn the_first_segments_after_idleness_keep_to_the_window_of_a_beginning() {
    // RFC 5681 §4.1: what the old window lets out is a burst into a path of unknown state.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    for round in 0..3 {
        lab.write(socket, 20_000);
        lab.take();
        lab.wait(10);
        for _ in 0..2 {
            let sent = lab.stack.info(lab.now, socket).unwrap().bytes_sent;
            lab.send(&format!(". 1:1(0) ack {} win 65535", sent + 1));
            lab.take();
        }
        assert!(lab.stack.info(lab.now, socket).unwrap().window_segments > 10, "{round}");
    }
    let sent = lab.stack.info(lab.now, socket).unwrap().bytes_sent;
    lab.send(&format!(". 1:1(0) ack {} win 65535", sent + 1));
    lab.wait(5000);
    lab.write(socket, 30_000);
    assert_eq!(lab.take().len(), 10);
}

#[test]
fn what_an_ack_lets_out_does_not_wait_for_the_more_that_was_promised() {
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    lab.write_more(socket, 1050);
    assert_eq!(lab.take(), [". 1:1001(1000) ack 1"]);
    lab.wait(10);
    lab.send(". 1:1(0) ack 1001 win 65535");
    // No PSH: the user has not finished.
    assert_eq!(lab.take(), [". 1001:1051(50) ack 1"]);
}

#[test]
fn below_the_low_water_mark_a_train_is_filled_and_no_more() {
    let config = Config { pacing: false, not_sent_low_water: Some(4000), ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted("mss 1000,sackOK");
    // At most half of the peer's window, in whole segments.
    assert_eq!(lab.write(socket, 50_000), 32_000);
    assert_eq!(lab.take().len(), 10);
    assert_eq!(lab.write(socket, 50_000), 10_000);
    assert!(!lab.stack.is_writable(lab.now, socket));
}

#[test]
fn time_is_told_by_what_it_was_spent_on() {
    // tcpi_busy_time, tcpi_rwnd_limited.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1000,sackOK");
    lab.write(socket, 1000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:1(0) ack 1001 win 0");
    lab.wait(50);
    lab.write(socket, 1000);
    assert_eq!(lab.take().len(), 0);
    lab.wait(100);
    lab.send(". 1:1(0) ack 1001 win 65535");
    assert_eq!(lab.take().len(), 1);
    lab.wait(20);
    lab.send(". 1:1(0) ack 2001 win 65535");
    lab.wait(500);
    let info = lab.stack.info(lab.now, socket).unwrap();
    let millis = [info.busy, info.window_limited, info.buffer_limited].map(|one| one.as_millis());
    assert_eq!(millis, [130, 100, 0]);
}
