//! The process of one connection: writes, sleeps, and reads what its kernel reports of the ACKs.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd;
use socket2::{SockRef, Socket};

use super::report::Report;
use crate::arguments::Server;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::signals::{Request, Signals};
use crate::sockets::{self, Known, awaited, ready, wait};
use crate::stamps;

/// Serves the connection on standard input until one side ends it.
pub(super) fn run(options: &Server, number: &str) -> Result<i32, Error> {
    // First of all, so that the server cannot end unnoticed before this is in force.
    let parent = unistd::getppid();
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(Error::call("follow the server"))?;
    let signals = Signals::take().map_err(Error::call("block signals"))?;
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = TcpStream::from(socket.map_err(Error::call("take the connection"))?);
    let peer = match socket.peer_addr() {
        Ok(peer) => peer,
        // The client disconnected before it was served: a port scan, or a change of mind.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(0),
        Err(_) => return Err(Error::NotAConnection),
    };
    if unistd::getppid() != parent {
        return Ok(0);
    }
    prepare(&SockRef::from(&socket), options)?;
    stamps::enable(&socket).map_err(Error::call("ask the kernel for time stamps"))?;
    let known = sockets::known(&socket).map_err(Error::call("ask for the round trip"))?;
    let report = Report::begin(options, number, peer, known.shortest_round_trip)?;
    let mut connection = Connection {
        options,
        socket,
        signals,
        report,
        ledger: Ledger::default(),
        came_in: 0,
        asked: 0,
        pause_until: None,
    };
    let why = match options.reply {
        Some(buffers) => connection.answer_on(buffers)?,
        None => connection.write_on()?,
    };
    connection.finish(known, why)?;
    Ok(0)
}

fn prepare(socket: &Socket, options: &Server) -> Result<(), Error> {
    socket.set_nonblocking(true).map_err(Error::call("prepare the connection"))?;
    if options.nodelay {
        socket.set_tcp_nodelay(true).map_err(Error::call("set TCP_NODELAY"))?;
    }
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes).map_err(Error::call("set SO_SNDBUF"))?;
    }
    Ok(())
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The client closed it.
    Client,
    /// The server was asked to end.
    Signal,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Ending::Client => "the client",
            Ending::Signal => "a signal",
        }
    }
}

struct Connection<'a> {
    options: &'a Server,
    socket: TcpStream,
    signals: Signals,
    report: Report<'a>,
    ledger: Ledger,
    /// Segments with data received from the client.
    came_in: u32,
    /// Unanswered requests, as bytes received.
    asked: usize,
    pause_until: Option<Instant>,
}

impl Connection<'_> {
    fn write_on(&mut self) -> Result<Ending, Error> {
        let buffer = vec![b'u'; self.options.buffer];
        let begun = Instant::now();
        loop {
            if let Some(ending) = self.write(&buffer)? {
                return Ok(ending);
            }
            let slept = Instant::now() + self.options.sleep;
            let in_rate = self.options.rate.map(|rate| {
                begun + Duration::from_secs_f64(self.ledger.written_bytes() as f64 / rate as f64)
            });
            let next = in_rate.map_or(slept, |in_rate| slept.max(in_rate));
            if let Some(ending) = self.listen_until(next)? {
                return Ok(ending);
            }
        }
    }

    /// Answers each received byte with `buffers` buffers.
    fn answer_on(&mut self, buffers: u32) -> Result<Ending, Error> {
        let buffer = vec![b'u'; self.options.buffer];
        loop {
            while self.asked == 0 {
                if let Some(ending) = self.listen(None, PollFlags::empty())? {
                    return Ok(ending);
                }
            }
            // A pause, if one was requested.
            if let Some(ending) = self.listen_until(Instant::now())? {
                return Ok(ending);
            }
            self.asked -= 1;
            for _ in 0..buffers {
                if let Some(ending) = self.write(&buffer)? {
                    return Ok(ending);
                }
            }
        }
    }

    /// Writes one buffer. If the send buffer is full it takes several calls, as in a blocking write.
    fn write(&mut self, mut buffer: &[u8]) -> Result<Option<Ending>, Error> {
        if self.options.quickack {
            SockRef::from(&self.socket)
                .set_tcp_quickack(true)
                .map_err(Error::call("set TCP_QUICKACK"))?;
        }
        while !buffer.is_empty() {
            let at = now();
            match unistd::write(&self.socket, buffer) {
                Ok(written) => {
                    self.ledger.wrote(written, at);
                    buffer = &buffer[written..];
                    // The error queue is small: without a sleep between writes it would overflow.
                    self.take_stamps()?;
                }
                Err(Errno::EAGAIN) => {
                    if let Some(ending) = self.listen(None, PollFlags::POLLOUT)? {
                        return Ok(Some(ending));
                    }
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return ended(errno.into()).map(Some),
            }
        }
        Ok(None)
    }

    /// Handles events until the time has come, and the pause is over.
    fn listen_until(&mut self, next: Instant) -> Result<Option<Ending>, Error> {
        loop {
            let until = self.pause_until.map_or(next, |pause| pause.max(next));
            let over = Instant::now() >= until;
            // Even if there is no time to wait: signals and stamps must not pile up.
            if let Some(ending) = self.listen(Some(until), PollFlags::empty())? {
                return Ok(Some(ending));
            }
            if over && self.pause_until.is_none_or(|pause| pause <= until) {
                self.pause_until = None;
                return Ok(None);
            }
        }
    }

    /// Waits once.
    fn listen(&mut self, until: Option<Instant>, also: PollFlags) -> Result<Option<Ending>, Error> {
        let mut fds = [
            awaited(&self.signals, PollFlags::POLLIN),
            awaited(&self.socket, PollFlags::POLLIN | also),
        ];
        wait(&mut fds, until).map_err(Error::call("wait"))?;
        let (signalled, happened) = (!ready(&fds[0]).is_empty(), ready(&fds[1]));
        if signalled {
            for request in self.signals.requests().map_err(Error::call("read signals"))? {
                match request {
                    Request::End => return Ok(Some(Ending::Signal)),
                    Request::Pause => {
                        self.pause_until = Some(Instant::now() + self.options.pause);
                    }
                    Request::Child => {}
                }
            }
        }
        // Stamps are announced as an error, as errors are: only the queue tells which it was.
        if happened.contains(PollFlags::POLLERR) && self.take_stamps()? == 0 {
            let error = SockRef::from(&self.socket).take_error();
            if let Some(cause) = error.map_err(Error::call("ask for the error"))? {
                return ended(cause).map(Some);
            }
        }
        if happened.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) {
            return self.take_data();
        }
        Ok(None)
    }

    /// Reads the stamps that have come and returns their number.
    fn take_stamps(&mut self) -> Result<usize, Error> {
        let mut taken = 0;
        while let Some(stamp) =
            stamps::next(&self.socket).map_err(Error::call("read time stamps"))?
        {
            taken += 1;
            for segment in self.ledger.stamped(stamp) {
                self.report.segment(&segment, self.came_in)?;
            }
        }
        Ok(taken)
    }

    /// Reads the client's data, of which only the number of segments and, if it asks, of bytes is of
    /// interest.
    fn take_data(&mut self) -> Result<Option<Ending>, Error> {
        // What was acknowledged before this data came belongs before it.
        self.take_stamps()?;
        let mut buffer = [0; 4096];
        loop {
            match unistd::read(&self.socket, &mut buffer) {
                Ok(0) => return Ok(Some(Ending::Client)),
                Ok(bytes) => self.asked += bytes,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return ended(errno.into()).map(Some),
            }
        }
        if let Ok(known) = sockets::known(&self.socket) {
            self.came_in = known.data_segments_in;
        }
        Ok(None)
    }

    fn finish(mut self, before: Known, why: Ending) -> Result<(), Error> {
        self.take_stamps()?;
        let after = sockets::known(&self.socket).unwrap_or(before);
        // The minimum only gets more accurate with time; a reset connection has forgotten it.
        let shortest_round_trip = match after.shortest_round_trip {
            Duration::ZERO => before.shortest_round_trip,
            after => after.min(before.shortest_round_trip),
        };
        let known = Known { shortest_round_trip, ..after };
        let open = self.ledger.unacknowledged();
        self.report.end(self.ledger.written_bytes(), open, known, why.name())
    }
}

/// Returns how an error ends the connection: a client that is gone is no failure.
fn ended(cause: io::Error) -> Result<Ending, Error> {
    match cause.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Ending::Client),
        _ => Err(Error::Broken(cause)),
    }
}

/// Returns the time on the clock that the kernel's stamps use.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
