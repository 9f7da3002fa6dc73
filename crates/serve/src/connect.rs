//! One connection of our own between standard input and standard output.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use uncork_driver::Driver;
use uncork_engine::{Interest, Program, Watch};
use uncork_stack::{
    ConnectionError, Event, Instant, Ready, RecvError, SendError, Shutdown, SocketId, Stack,
};

use crate::signals::Signals;
use crate::stat::Responder;

/// Octets that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Octets that a writable pipe or terminal takes without blocking us (pipe(7), PIPE_BUF).
const PIPE_BYTES: usize = 4096;
/// How long the peer may take to acknowledge our last octets, after it has sent its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keys of watched descriptors.
const SIGNALS: u64 = 0;
const INPUT: u64 = 1;
const OUTPUT: u64 = 2;
const RESPONDER: u64 = 3;

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer has sent its FIN.
    ByPeer,
    /// A signal has asked for the end.
    BySignal,
    /// Nobody reads the output any more.
    OutputClosed,
    /// Received data cannot be written to the output: the errno.
    OutputFailed(i32),
    /// The input cannot be read: the errno.
    InputFailed(i32),
    /// The connection has failed.
    Failed(ConnectionError),
}

/// Octets in transit from one side to the other.
#[derive(Debug, Default)]
struct Passing {
    bytes: Vec<u8>,
    gone: usize,
}

impl Passing {
    fn is_empty(&self) -> bool {
        self.gone == self.bytes.len()
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }
}

/// The connection, and the descriptors that it joins.
#[derive(Debug)]
pub(crate) struct Dialogue {
    socket: SocketId,
    signals: Signals,
    responder: Responder,
    input: File,
    output: File,
    output_bytes: usize,
    to_peer: Passing,
    from_peer: Passing,
    connected: bool,
    input_ended: bool,
    told_end: bool,
    ended: Option<Ended>,
    /// After the end: when the connection is given up.
    deadline: Option<Instant>,
    grace: Duration,
    quiet: bool,
}

impl Dialogue {
    pub(crate) fn new(
        socket: SocketId,
        (input, output): (OwnedFd, OwnedFd),
        signals: Signals,
        responder: Responder,
        grace: Duration,
    ) -> io::Result<Self> {
        let output = File::from(output);
        // A file takes everything at once, other outputs perhaps not.
        let output_bytes = if output.metadata()?.is_file() { CHUNK_BYTES } else { PIPE_BYTES };
        Ok(Self {
            socket,
            signals,
            responder,
            input: input.into(),
            output,
            output_bytes,
            to_peer: Passing::default(),
            from_peer: Passing::default(),
            connected: false,
            input_ended: false,
            told_end: false,
            ended: None,
            deadline: None,
            grace,
            quiet: false,
        })
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    fn end(&mut self, stack: &mut Stack, now: Instant, how: Ended, patience: Duration) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(how);
        self.deadline = Some(now + patience);
        if !self.told_end {
            self.told_end = true;
            stack.shutdown(now, self.socket, Shutdown::Write);
        }
        // Nobody wants data that still arrive: they are dropped, and not answered with a reset at once.
        self.drop_incoming(stack, now);
    }

    fn drop_incoming(&mut self, stack: &mut Stack, now: Instant) {
        let mut nowhere = [0; 4096];
        while matches!(stack.recv(now, self.socket, &mut nowhere), Ok(bytes) if bytes > 0) {}
        if !stack.is_readable(self.socket) {
            return;
        }
        // The end of the data: the socket's id is no longer needed.
        stack.close(now, self.socket);
    }

    fn receive(&mut self, stack: &mut Stack, now: Instant) {
        if !self.from_peer.is_empty() || self.ended.is_some() {
            return;
        }
        self.from_peer.bytes.resize(CHUNK_BYTES, 0);
        self.from_peer.gone = 0;
        let received = stack.recv(now, self.socket, &mut self.from_peer.bytes);
        self.from_peer.bytes.truncate(*received.as_ref().unwrap_or(&0));
        match received {
            Ok(0) => self.end(stack, now, Ended::ByPeer, PATIENCE),
            Ok(_) | Err(RecvError::WouldBlock) => {}
            Err(RecvError::Failed(error)) => self.fail(now, error),
            Err(RecvError::NoSocket) => self.fail(now, ConnectionError::Aborted),
        }
    }

    fn fail(&mut self, now: Instant, error: ConnectionError) {
        self.ended = Some(Ended::Failed(error));
        self.deadline = Some(now);
    }

    fn send(&mut self, stack: &mut Stack, now: Instant) {
        while !self.to_peer.is_empty() && self.ended.is_none() {
            match stack.send(now, self.socket, self.to_peer.left(), false) {
                Ok(bytes) => self.to_peer.gone += bytes,
                Err(SendError::WouldBlock) => return,
                Err(SendError::Failed(error)) => return self.fail(now, error),
                Err(SendError::Closed | SendError::NoSocket) => {
                    return self.fail(now, ConnectionError::Aborted);
                }
            }
        }
        if self.input_ended && self.to_peer.is_empty() && !self.told_end {
            self.told_end = true;
            stack.shutdown(now, self.socket, Shutdown::Write);
        }
    }

    fn read_input(&mut self, stack: &mut Stack, now: Instant) {
        self.to_peer.bytes.resize(CHUNK_BYTES, 0);
        self.to_peer.gone = 0;
        let read = self.input.read(&mut self.to_peer.bytes);
        self.to_peer.bytes.truncate(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(bytes) => self.input_ended = bytes == 0,
            Err(error) if is_later(&error) => {}
            Err(error) => {
                self.input_ended = true;
                self.end(stack, now, Ended::InputFailed(number(&error)), self.grace);
            }
        }
    }

    fn write_output(&mut self, stack: &mut Stack, now: Instant) {
        let left = self.from_peer.left();
        match self.output.write(&left[..left.len().min(self.output_bytes)]) {
            Ok(bytes) => self.from_peer.gone += bytes,
            Err(error) if is_later(&error) => {}
            Err(error) => {
                self.from_peer = Passing::default();
                let how = match error.kind() {
                    io::ErrorKind::BrokenPipe => Ended::OutputClosed,
                    _ => Ended::OutputFailed(number(&error)),
                };
                self.end(stack, now, how, self.grace);
            }
        }
    }
}

/// Whether the operation is to be retried.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_default()
}

impl Program for Dialogue {
    fn on_event(&mut self, _: &mut Stack, _: Instant, event: Event) {
        if let Event::Socket(socket, ready) = event {
            self.connected |= socket == self.socket && ready.has(Ready::CONNECTED);
        }
    }

    fn on_turn(&mut self, stack: &mut Stack, now: Instant) {
        self.responder.forget_done();
        self.receive(stack, now);
        self.send(stack, now);
        let Some(deadline) = self.deadline.filter(|_| !self.quiet) else { return };
        self.drop_incoming(stack, now);
        if now >= deadline {
            stack.abort_all(now);
            self.quiet = true;
        } else {
            self.quiet = stack.is_quiet();
        }
    }

    fn watched(&self) -> Vec<Watch<'_>> {
        let mut watched =
            vec![Watch { fd: self.signals.fd(), interest: Interest::Read, key: SIGNALS }];
        // Input from before the connection is open would be lost if it never opens.
        if self.connected && !self.input_ended && self.to_peer.is_empty() && self.ended.is_none() {
            watched.push(Watch { fd: self.input.as_fd(), interest: Interest::Read, key: INPUT });
        }
        if !self.from_peer.is_empty() {
            watched.push(Watch { fd: self.output.as_fd(), interest: Interest::Write, key: OUTPUT });
        }
        self.responder.watched(RESPONDER, &mut watched);
        watched
    }

    fn meet(&mut self, driver: &mut dyn Driver, key: u64) {
        if key >= RESPONDER {
            self.responder.meet(driver);
        }
    }

    fn on_watched(&mut self, stack: &mut Stack, now: Instant, key: u64) -> io::Result<()> {
        match key {
            SIGNALS => {
                let count = self.signals.fetch();
                let again = count > 1 || self.ended.is_some();
                if count > 0 {
                    self.from_peer = Passing::default();
                    self.end(stack, now, Ended::BySignal, self.grace);
                }
                // A second signal means that the user does not want to wait.
                if count > 0 && again {
                    self.deadline = Some(now);
                }
            }
            INPUT => self.read_input(stack, now),
            OUTPUT => self.write_output(stack, now),
            key => self.responder.on_watched(stack, now, key - RESPONDER),
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.quiet)
    }

    fn is_over(&self) -> bool {
        self.quiet && self.from_peer.is_empty()
    }
}
