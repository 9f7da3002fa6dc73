//! Frames that wait for others, and what takes them in all the same.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::thread::sleep;
use std::time::Duration;

use common::{end, turn};
use uncork_driver::Driver as _;
use uncork_driver::memory::{Port, pair};
use uncork_engine::{Engine, Events, Instant};
use uncork_packet::{Capabilities, Medium};
use uncork_stack::SocketId;

const CONVERSATIONS: usize = 32;
/// Time from an answer to the next request, so that frames wait for a quarter of that.
const PAUSE: Duration = Duration::from_millis(30);
const DELAY: Duration = Duration::from_micros(7500);

/// Sends a message on each of these sockets.
fn say(end: &mut Engine<Port>, sockets: &[SocketId]) {
    let now = end.now();
    for socket in sockets {
        while end.stack().recv(now, *socket, &mut [0; 64]).is_ok_and(|read| read > 0) {}
        assert_eq!(end.stack().send(now, *socket, b"octets", false), Ok(6));
    }
    turn(end);
}

/// Returns a moderating server, its client's sockets, and when it took in the last round's first.
fn busy(longest: Duration) -> (Engine<Port>, Engine<Port>, Vec<SocketId>, Instant) {
    let (one, other) = pair(Capabilities::plain(Medium::Ethernet, 1500), 256);
    let (mut server, mut client) = (end(one, 1), end(other, 2));
    server.moderate(longest);
    let at: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let listener = server.stack().listen(at, 64).unwrap();
    let now = client.now();
    let clients: Vec<_> =
        (0..CONVERSATIONS).map(|_| client.stack().connect(now, None, at).unwrap()).collect();
    let mut servers = Vec::new();
    while servers.len() < CONVERSATIONS {
        turn(&mut client);
        turn(&mut server);
        servers.extend(std::iter::from_fn(|| server.stack().accept(listener)));
    }
    for _ in 0..5 {
        say(&mut client, &clients);
        turn(&mut server);
        say(&mut server, &servers);
        turn(&mut client);
        sleep(PAUSE);
    }
    say(&mut client, &clients[1..]);
    let _ = server.turn_moderated(&mut Events::default()).unwrap();
    let taken = server.turned();
    (server, client, clients, taken)
}

#[test]
fn what_comes_behind_others_waits_for_who_moderates() {
    for _ in 0..20 {
        let (mut server, mut client, clients, taken) = busy(Duration::from_secs(1));
        let before = server.stack().counters().frames_in;
        say(&mut client, &clients[..1]);
        let _ = server.turn_moderated(&mut Events::default()).unwrap();
        let (wakes, _) = server.rest();
        let wakes = wakes.map(|fd| fd.as_raw_fd());
        if server.now().since(taken) >= Duration::from_millis(5) {
            // Another process had the processor.
            continue;
        }
        assert!(server.is_moderating());
        assert_eq!(server.stack().counters().frames_in, before, "it waits");
        let own = server.driver().descriptors();
        assert!(wakes.is_some_and(|fd| !own.contains(&fd)), "a timer wakes, and no frame");
        assert!(server.descriptors().contains(&wakes.unwrap()));
        turn(&mut server);
        assert_eq!(server.stack().counters().frames_in, before + 1, "a whole turn leaves nothing");
        return;
    }
    panic!("never soon enough to see it");
}

#[test]
fn nothing_waits_when_its_time_is_over_or_nobody_moderates() {
    let (mut server, mut client, clients, _) = busy(DELAY);
    let before = server.stack().counters().frames_in;
    say(&mut client, &clients[..1]);
    sleep(DELAY * 2);
    let _ = server.turn_moderated(&mut Events::default()).unwrap();
    assert_eq!(server.stack().counters().frames_in, before + 1);
    let (mut server, mut client, clients, _) = busy(Duration::ZERO);
    let before = server.stack().counters().frames_in;
    say(&mut client, &clients[..1]);
    let _ = server.turn_moderated(&mut Events::default()).unwrap();
    assert!(!server.is_moderating());
    assert_eq!(server.stack().counters().frames_in, before + 1);
}
