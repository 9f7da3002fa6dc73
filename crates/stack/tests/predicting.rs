//! Segments that header prediction has to leave to the general path: all that differ a little from
//! what continues a conversation. The outcome is the same with the short path and without.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use uncork_stack::{Config, RecvError, State};

use crate::common::Lab;

/// What the peer, the user and the counters can see of a connection.
#[derive(Debug, PartialEq)]
struct Seen {
    answers: Vec<Vec<String>>,
    read: Result<usize, RecvError>,
    state: State,
    info: String,
    segments_in: u64,
}

/// Plays a request, its answer, and then these segments; returns how many of all were predicted.
fn hear(segments: &[&str], short_ways: bool) -> (Seen, u64) {
    let receive_buffer_bytes = (4096, 4096);
    let config = Config { short_ways, receive_buffer_bytes, ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted("mss 1460,sackOK,ts 100 0");
    lab.send("P. 1:0(100) ack 1 win 65535 <ts 201 0>");
    assert_eq!(lab.read(socket), Ok(100));
    lab.write(socket, 50);
    lab.take();
    lab.wait(5);
    lab.send("P. 101:0(100) ack 51 win 65535 <ts 206 1>");
    assert_eq!(lab.read(socket), Ok(100));
    lab.take();
    let answers = segments.iter().map(|segment| {
        lab.send(segment);
        lab.take()
    });
    let answers = answers.collect();
    lab.wait(300);
    let seen = Seen {
        answers,
        read: lab.read(socket),
        state: lab.state(socket),
        info: format!("{:?}", lab.stack.info(lab.now, socket)),
        segments_in: lab.stack.counters().segments_in,
    };
    (seen, lab.stack.counters().predicted)
}

#[test]
fn what_is_unusual_goes_the_general_way() {
    // Each with how many of its own segments are predicted, besides the two before.
    let all: [(&[&str], u64); 14] = [
        (&["P. 201:0(100) ack 51 win 65535 <ts 207 1>"], 1),
        // More than there is room for, of which a part fits; and one octet too many.
        (
            &[
                "P. 201:0(1000) ack 51 win 65535 <ts 207 1>",
                "P. 1201:0(1000) ack 51 win 65535 <ts 207 1>",
                "P. 2201:0(1000) ack 51 win 65535 <ts 207 1>",
                "P. 3201:0(1000) ack 51 win 65535 <ts 207 1>",
                "P. 4201:0(1000) ack 51 win 65535 <ts 207 1>",
            ],
            4,
        ),
        (
            &[
                "P. 201:0(1400) ack 51 win 65535 <ts 207 1>",
                "P. 1601:0(1400) ack 51 win 65535 <ts 207 1>",
                "P. 3001:0(1297) ack 51 win 65535 <ts 207 1>",
            ],
            2,
        ),
        // A duplicate, out of order, with an old timestamp.
        (&["P. 101:0(100) ack 51 win 65535 <ts 207 1>"], 0),
        (&["P. 301:0(100) ack 51 win 65535 <ts 207 1>"], 0),
        (&["P. 201:0(100) ack 51 win 65535 <ts 150 1>"], 0),
        // An old ACK, and an ACK of data never sent.
        (&["P. 201:0(100) ack 1 win 65535 <ts 207 1>"], 0),
        (&["P. 201:0(100) ack 5000 win 65535 <ts 207 1>"], 0),
        (&["P. 201:0(100) ack 51 win 1000 <ts 207 1>"], 0),
        (&["P. 201:0(100) ack 51 win 65535"], 0),
        (&["FP. 201:0(100) ack 51 win 65535 <ts 207 1>"], 0),
        (&["R. 201:0(0) ack 51 win 65535 <ts 207 1>"], 0),
        (&["S. 201:0(0) ack 51 win 65535 <ts 207 1>"], 0),
        // Says nothing new.
        (&[". 201:0(0) ack 51 win 65535 <ts 207 1>"], 0),
    ];
    let (_, before) = hear(&[], true);
    assert!(before > 0, "nothing is predicted at all");
    for (segments, predicted) in all {
        let (short, counted) = hear(segments, true);
        let (general, none) = hear(segments, false);
        assert_eq!(short, general, "{segments:?}");
        assert_eq!((counted - before, none), (predicted, 0), "{segments:?}");
    }
}

#[test]
fn a_request_is_what_comes_with_the_acknowledgment_of_an_answer() {
    for (stamps, short_ways) in [(true, true), (true, false), (false, true)] {
        let config = Config { short_ways, ..Config::default() };
        let mut lab = Lab::new(config);
        let socket =
            lab.accepted(if stamps { "mss 1460,sackOK,ts 100 0" } else { "mss 1460,sackOK" });
        let hear = |lab: &mut Lab, what: &str, echo: u32| {
            lab.wait(5);
            let stamps =
                if stamps { format!(" <ts {} {echo}>", 200 + echo) } else { String::new() };
            lab.send(&format!("{what} win 65535{stamps}"));
            let _ = lab.read(socket);
            let requests = lab.stack.take_requests();
            (requests.number(), requests.wait().map(|wait| wait.as_millis()))
        };
        assert_eq!(hear(&mut lab, "P. 1:0(100) ack 1", 0), (0, None), "nothing was answered yet");
        lab.write(socket, 50);
        lab.take();
        assert_eq!(
            hear(&mut lab, "P. 101:0(100) ack 51", 5),
            (1, Some(5)),
            "{stamps} {short_ways}"
        );
        lab.write(socket, 50);
        lab.take();
        assert_eq!(hear(&mut lab, ". 201:0(0) ack 101", 10), (0, None), "an acknowledgment alone");
        assert_eq!(hear(&mut lab, "P. 201:0(100) ack 101", 10), (0, None), "data alone");
    }
}

#[test]
fn a_loss_ends_the_short_ways_for_a_while_only() {
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1012,sackOK,ts 100 0");
    lab.write(socket, 5000);
    assert_eq!(lab.take().len(), 5);
    lab.wait(10);
    for right in [2001, 3001, 4001] {
        lab.send(&format!(". 1:1(0) ack 1 win 65535 <ts 210 1,sack 1001:{right}>"));
    }
    lab.take();
    lab.wait(10);
    lab.send(". 1:1(0) ack 5001 win 65535 <ts 220 20>");
    assert_eq!(lab.stack.counters().retransmitted, 1);
    let mut ours = 5001;
    let mut peers = 1;
    let before = lab.stack.counters().predicted;
    for n in 0..5 {
        lab.wait(10);
        lab.send(&format!("P. {peers}:0(100) ack {ours} win 65535 <ts {} 30>", 230 + n));
        assert_eq!(lab.read(socket), Ok(100));
        lab.write(socket, 50);
        lab.take();
        (peers, ours) = (peers + 100, ours + 50);
    }
    assert!(lab.stack.counters().predicted > before, "nothing is predicted any more");
}
