//! Our side: an echo server and a client on an engine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use uncork_engine::{Engine, Instant, Program};
use uncork_stack::{ConnectionError, Event, ListenerId, RecvError, SendError, SocketId, Stack};

use crate::kernel::PATIENCE;
use crate::link::{Conditions, Link};
use crate::{Stop, octet, octets};

pub(crate) const PORT: u16 = 8000;
/// Connections that a client has open at once.
pub(crate) const AT_ONCE: usize = 50;
/// How often the end of the test is checked.
const LOOK: Duration = Duration::from_millis(5);
const BUFFER_BYTES: usize = 1 << 18;

/// Describes the state of the stack when something does not end.
fn state(stack: &mut Stack, now: Instant) -> String {
    let sockets: Vec<_> = stack.sockets().collect();
    let infos: Vec<_> =
        sockets.into_iter().filter_map(|one| stack.info(now, one)).take(3).collect();
    format!("{:#?} {infos:#?}", stack.counters())
}

/// What is still to be echoed on a connection, and whether the peer has ended.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    over: bool,
}

struct Echo<'a> {
    listener: ListenerId,
    open: HashMap<SocketId, Pending>,
    served: usize,
    stop: &'a Stop,
    now: Instant,
    began: Option<Instant>,
    left: usize,
}

impl Echo<'_> {
    fn serve(&mut self, stack: &mut Stack, now: Instant, socket: SocketId) {
        let Some(pending) = self.open.get_mut(&socket) else { return };
        let mut taken = [0; 1 << 14];
        // Events are edge-triggered: go on for as long as either direction moves.
        let mut moves = true;
        while std::mem::take(&mut moves) {
            if !pending.over && pending.bytes.len() < BUFFER_BYTES {
                match stack.recv(now, socket, &mut taken) {
                    Ok(0) => pending.over = true,
                    Ok(bytes) => {
                        pending.bytes.extend_from_slice(&taken[..bytes]);
                        moves = true;
                    }
                    Err(RecvError::WouldBlock) => {}
                    Err(error) => unreachable!("the connection has failed: {error}"),
                }
            }
            match stack.send(now, socket, &pending.bytes, false) {
                Ok(bytes) => {
                    moves |= bytes > 0;
                    pending.bytes.drain(..bytes);
                }
                Err(SendError::WouldBlock) => {}
                Err(error) => unreachable!("the connection has failed: {error}"),
            }
        }
        if pending.over && pending.bytes.is_empty() {
            stack.close(now, socket);
            self.open.remove(&socket);
            self.served += 1;
        }
    }
}

impl Program for Echo<'_> {
    fn on_event(&mut self, stack: &mut Stack, now: Instant, event: Event) {
        match event {
            Event::Incoming(_) => {
                while let Some(socket) = stack.accept(self.listener) {
                    self.open.insert(socket, Pending::default());
                    self.serve(stack, now, socket);
                }
            }
            Event::Socket(socket, _) => self.serve(stack, now, socket),
            Event::Udp(..) | Event::Neighbour(_) => {}
        }
    }

    fn on_turn(&mut self, stack: &mut Stack, now: Instant) {
        self.now = now;
        self.left = stack.connection_count();
        let began = *self.began.get_or_insert(now);
        assert!(now.since(began) < 2 * PATIENCE, "the client does not end: {}", state(stack, now));
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.now + LOOK)
    }

    /// Whether the client has ended, and the last ACKs of its connections have arrived.
    fn is_over(&self) -> bool {
        self.stop.is_set() && self.left == 0
    }
}

/// Echoes until it is stopped; returns how many connections there were, and how many are left.
pub(crate) fn serve(link: &Link, conditions: &Conditions, stop: &Stop) -> (usize, usize) {
    let port = link.port(conditions);
    let mut stack = link.stack(&port);
    let at = SocketAddr::new(link.our_address(), PORT);
    let listener = stack.listen(at, 1024).unwrap();
    let mut engine = Engine::new(port, stack);
    let now = engine.now();
    let mut echo =
        Echo { listener, open: HashMap::new(), served: 0, stop, now, began: None, left: 0 };
    engine.run(&mut echo).unwrap();
    (echo.served, engine.stack().connection_count())
}

/// Progress of a connection.
#[derive(Default)]
struct Talk {
    sent: usize,
    got: usize,
    shut: bool,
}

struct Client {
    to: SocketAddr,
    /// Number of connections not begun yet.
    waiting: usize,
    bytes: usize,
    open: HashMap<SocketId, Talk>,
    now: Instant,
    began: Option<Instant>,
    left: usize,
}

impl Client {
    fn go_on(&mut self, stack: &mut Stack, now: Instant, socket: SocketId) {
        let bytes = self.bytes;
        let Some(talk) = self.open.get_mut(&socket) else { return };
        while talk.sent < bytes {
            let most = (bytes - talk.sent).min(1 << 14);
            match stack.send(now, socket, &octets(talk.sent, most), false) {
                Ok(sent) => talk.sent += sent,
                Err(SendError::WouldBlock) => break,
                // Three requests for a hardware address were lost, or the answers to them.
                Err(SendError::Failed(ConnectionError::Unreachable)) => {
                    stack.close(now, socket);
                    self.open.remove(&socket);
                    self.waiting += 1;
                    return;
                }
                Err(error) => unreachable!("the connection has failed: {error}"),
            }
        }
        if talk.sent == bytes && !talk.shut {
            talk.shut = true;
            stack.shutdown(now, socket, uncork_stack::Shutdown::Write);
        }
        let mut buffer = [0; 1 << 14];
        loop {
            match stack.recv(now, socket, &mut buffer) {
                Ok(0) => {
                    assert_eq!(talk.got, bytes, "not everything came back");
                    stack.close(now, socket);
                    self.open.remove(&socket);
                    return;
                }
                Ok(got) => {
                    let wrong = (0..got).find(|&at| buffer[at] != octet(talk.got + at));
                    assert_eq!(wrong, None, "another octet came back behind {}", talk.got);
                    talk.got += got;
                }
                Err(RecvError::WouldBlock) => return,
                Err(RecvError::Failed(ConnectionError::Unreachable)) => {
                    stack.close(now, socket);
                    self.open.remove(&socket);
                    self.waiting += 1;
                    return;
                }
                Err(error) => unreachable!("the connection has failed: {error}"),
            }
        }
    }
}

impl Program for Client {
    fn on_event(&mut self, stack: &mut Stack, now: Instant, event: Event) {
        if let Event::Socket(socket, _) = event {
            self.go_on(stack, now, socket);
        }
    }

    fn on_turn(&mut self, stack: &mut Stack, now: Instant) {
        self.now = now;
        let began = *self.began.get_or_insert(now);
        assert!(now.since(began) < 2 * PATIENCE, "connections do not end: {}", state(stack, now));
        while self.waiting > 0 && self.open.len() < AT_ONCE {
            self.waiting -= 1;
            let socket = stack.connect(now, None, self.to).unwrap();
            self.open.insert(socket, Talk::default());
        }
        self.left = stack.connection_count();
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.now + LOOK)
    }

    fn is_over(&self) -> bool {
        self.waiting == 0 && self.left == 0
    }
}

/// Sends on `connections` and compares what comes back; returns how many are left at the end.
pub(crate) fn connect(
    link: &Link,
    conditions: &Conditions,
    connections: usize,
    bytes: usize,
) -> usize {
    let port = link.port(conditions);
    let stack = link.stack(&port);
    let to = SocketAddr::new(link.kernels_address(), PORT);
    let mut engine = Engine::new(port, stack);
    let now = engine.now();
    let open = HashMap::new();
    let mut client = Client { to, waiting: connections, bytes, open, now, began: None, left: 0 };
    engine.run(&mut client).unwrap();
    engine.stack().connection_count()
}
