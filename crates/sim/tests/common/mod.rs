//! Helpers that the scenarios share.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use std::sync::LazyLock;
use std::time::Duration;

use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{Instant, ListenerId, RecvError, SendError, SocketId};

pub const PORT: u16 = 80;

/// Makes a pair with these conditions and opens a connection.
pub fn connected(setup: &Setup) -> (Pair, SocketId, SocketId, ListenerId) {
    let mut pair = Pair::new(setup);
    let listener = pair.listen(PORT);
    let (client, server) = pair.connect(listener, PORT);
    (pair, client, server, listener)
}

/// Returns conditions with this delay in each direction.
pub fn delayed(millis: u64) -> Setup {
    Setup::both(Conditions { delay: Duration::from_millis(millis), ..Conditions::default() })
}

/// A prime, so that no place in the stream looks like another one a segment away.
const PERIOD: usize = 65_521;

/// Returns byte `n` of a stream that is the same every time.
pub fn pattern(n: usize) -> u8 {
    let n = n % PERIOD;
    (n ^ (n >> 8)) as u8
}

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| (0..2 * PERIOD).map(pattern).collect());

/// Returns a piece of the stream, at most a period long.
pub fn bytes(from: usize, count: usize) -> &'static [u8] {
    let from = from % PERIOD;
    &PATTERN[from..from + count.min(PERIOD)]
}

/// Fails unless `seen` is the stream from there on.
pub fn check(from: usize, seen: &[u8]) {
    let mut at = from;
    for piece in seen.chunks(PERIOD) {
        assert!(
            piece == bytes(at, piece.len()),
            "something is wrong in {at}..{}",
            at + piece.len()
        );
        at += piece.len();
    }
}

/// Sends `total` bytes of the pattern from one host to the other, checks them, and returns the time
/// until the last was read.
pub fn transfer(
    pair: &mut Pair,
    from: (usize, SocketId),
    to: (usize, SocketId),
    total: usize,
    patience: Duration,
) -> Option<Duration> {
    let began = pair.now;
    let (mut sent, mut read) = (0, 0);
    let mut buffer = vec![0; 65_536];
    let deadline = pair.now + patience;
    let done = pair.run_while(deadline, |pair| {
        let now = pair.now;
        while sent < total {
            let chunk = bytes(sent, total - sent);
            match pair.hosts[from.0].stack.send(now, from.1, chunk, false) {
                Ok(taken) => sent += taken,
                Err(SendError::WouldBlock) => break,
                Err(error) => panic!("sending failed after {sent}: {error}"),
            }
        }
        loop {
            match pair.hosts[to.0].stack.recv(now, to.1, &mut buffer) {
                Ok(0) => panic!("the end after {read}"),
                Ok(count) => {
                    check(read, &buffer[..count]);
                    read += count;
                }
                Err(RecvError::WouldBlock) => break,
                Err(error) => panic!("receiving failed after {read}: {error}"),
            }
        }
        read < total
    });
    done.then(|| pair.now.since(began))
}

/// Formats a frame as a line, much as packetdrill does.
pub fn describe(now: Instant, from: usize, frame: &[u8]) -> String {
    use uncork_wire::link::LinkType;
    let Ok(segment) = uncork_wire::read_frame(LinkType::Raw, frame, frame.len()) else {
        return format!("{now:>12?} {} ?", ["->", "<-"][from]);
    };
    format!(
        "{now:>12?} {} {} seq {} len {} ack {:?} win {} sack {:?}",
        ["->", "<-"][from],
        segment.flags,
        segment.seq.0,
        segment.payload_bytes,
        segment.ack.map(|ack| ack.0),
        segment.window,
        segment.sack,
    )
}
