//! Options that the kernel does not report (they have no getsockopt): measured by their effect.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use uncork_sockdiag::{Answer, Name, SockDiag};

use crate::place::Place;

const PATIENCE: Duration = Duration::from_secs(5);

/// A connection, and what the kernel reports of its client's end.
struct Observed<'a> {
    place: &'a Place,
    client: TcpStream,
    server: TcpStream,
    kernel: SockDiag,
    name: Name,
}

impl<'a> Observed<'a> {
    fn new(place: &'a Place) -> Self {
        let (client, server, _listener) = place.connection();
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let name = Name::of(client.local_addr().unwrap(), client.peer_addr().unwrap());
        let kernel = place.within(|| SockDiag::open().unwrap());
        Self { place, client, server, kernel, name }
    }

    fn scope(&self) -> String {
        let port = self.client.peer_addr().unwrap().port();
        format!("--netns {} --port {port}", self.place.name)
    }

    /// Sends requests and replies, after which the server expects its ACKs to go with replies.
    fn talk(&mut self, times: u32) {
        let mut byte = [0];
        for _ in 0..times {
            self.client.write_all(b"?").unwrap();
            self.server.read_exact(&mut byte).unwrap();
            self.server.write_all(b"!").unwrap();
            self.client.read_exact(&mut byte).unwrap();
        }
    }

    /// Sends one octet, and measures how long the kernel takes to report the awaited state.
    fn until(&mut self, is_so: impl Fn(&Answer) -> bool) -> Duration {
        self.client.write_all(b".").unwrap();
        let begin = Instant::now();
        while !is_so(&self.kernel.connection(&self.name).unwrap().unwrap()) {
            assert!(begin.elapsed() < PATIENCE, "it does not happen");
            thread::sleep(Duration::from_micros(200));
        }
        begin.elapsed()
    }

    /// Measures how long the server delays the ACK of a segment that it does not answer.
    fn ack_delay(&mut self) -> Duration {
        let mut delays: Vec<Duration> = (0..7)
            .map(|_| {
                self.talk(3);
                let delay = self.until(|client| client.send_queue_bytes == 0);
                self.server.read_exact(&mut [0]).unwrap();
                delay
            })
            .collect();
        delays.sort_unstable();
        delays[3]
    }

    /// Returns the retransmission timeout of TCP_INFO, once it has followed the round trips.
    fn rto(&mut self) -> Duration {
        self.talk(80);
        let client = self.kernel.connection(&self.name).unwrap().unwrap();
        Duration::from_micros(client.info.rto.into())
    }

    /// Measures how long it takes until lost data is retransmitted.
    fn timeout(&mut self) -> Duration {
        self.place.ip("link set lo down");
        let took = self.until(|client| client.info.retransmits > 0);
        self.place.ip("link set lo up");
        self.server.read_exact(&mut [0]).unwrap();
        took
    }
}

#[test]
fn an_ack_is_delayed_no_longer_than_was_asked_for() {
    let Some(place) = Place::make("an_ack_is_delayed_no_longer_than_was_asked_for") else { return };
    let mut observed = Observed::new(&place);
    // Linux waits 40 ms for a reply to carry the ACK.
    let usual = Duration::from_millis(35);
    let before = observed.ack_delay();
    assert!(before > usual, "{before:?} before");
    place.tuned(&format!("--delack-max 12ms {}", observed.scope()), 0);
    let tuned = observed.ack_delay();
    // The delay lasts to the next tick, which may be 10 ms long.
    assert!((8..25).contains(&tuned.as_millis()), "{tuned:?} with 12 ms");
    // A new connection has another port, so it is out of scope and keeps the usual delay.
    let mut new = Observed::new(&place);
    assert!(new.ack_delay() > usual, "it has another port");
    place.tuned("undo --all", 0);
    let after = observed.ack_delay();
    assert!(after > usual, "{after:?} when undone");
}

#[test]
fn new_connections_have_their_acks_and_their_timeout_as_well() {
    let Some(place) = Place::make("new_connections_have_their_acks_and_their_timeout_as_well")
    else {
        return;
    };
    let scope = format!("--new --netns {} --peer 127.0.0.1", place.name);
    place.tuned(&format!("--delack-max 12ms --rto-min 20ms {scope}"), 0);
    let mut observed = Observed::new(&place);
    let (delay, rto) = (observed.ack_delay(), observed.rto());
    assert!((8..25).contains(&delay.as_millis()), "{delay:?}");
    assert!((20..40).contains(&rto.as_millis()), "{rto:?}");
    place.tuned("undo --all", 0);
    let mut observed = Observed::new(&place);
    assert!(observed.ack_delay() > Duration::from_millis(35));
    assert!(observed.rto() >= Duration::from_millis(200));
}

#[test]
fn what_is_lost_is_sent_again_after_the_shorter_timeout() {
    let Some(place) = Place::make("what_is_lost_is_sent_again_after_the_shorter_timeout") else {
        return;
    };
    // Loss probes (RFC 8985) would come before the timeout, and restart it.
    place.shell("echo 0 >/proc/sys/net/ipv4/tcp_early_retrans");
    let mut observed = Observed::new(&place);
    let (rto, timeout) = (observed.rto(), observed.timeout());
    assert!(rto.as_millis() >= 200 && timeout.as_millis() >= 190, "{rto:?}, {timeout:?} before");
    place.tuned(&format!("--rto-min 20ms {}", observed.scope()), 0);
    let (rto, timeout) = (observed.rto(), observed.timeout());
    assert!((20..40).contains(&rto.as_millis()), "{rto:?} with 20 ms");
    assert!((15..80).contains(&timeout.as_millis()), "{timeout:?} with 20 ms");
}
