//! `uncork ack client`: connects, reads for some seconds, and reports how much it received.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{self, Pid};
use serde_json::json;
use socket2::{SockRef, Socket};

use crate::arguments::{Client, Switch};
use crate::error::Error;
use crate::output::{say, say_json};
use crate::signals::{Request, Signals};
use crate::sockets::{self, awaited, ready, wait};

/// From the first read to `--talk`: well over the 40 ms within which what is sent would count as an
/// answer, which turns quick ACKs off (`tcp_event_data_sent`, net/ipv4/tcp_output.c).
const BEFORE_TALKING: Duration = Duration::from_millis(60);

/// Runs the client.
pub(crate) fn run(options: &Client) -> Result<i32, Error> {
    if let Some(cpu) = options.cpu {
        let mut set = CpuSet::new();
        set.set(cpu)
            .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
            .map_err(|cause| Error::Cpu { cpu, cause })?;
    }
    let signals = Signals::take().map_err(Error::call("block signals"))?;
    let begun = Instant::now();
    let socket = connect(options)?;
    let mut reader = Reader {
        options,
        signals,
        socket: TcpStream::from(socket),
        buffer: vec![0; options.buffer],
        begun,
        until: begun + options.time,
        reads: 0,
        bytes: 0,
    };
    let receive_buffer =
        |reader: &Reader<'_>| SockRef::from(&reader.socket).recv_buffer_size().ok();
    let first = receive_buffer(&reader);
    let ending = reader.read_on()?;
    let last = receive_buffer(&reader);
    reader.summary(ending, first, last)?;
    Ok(0)
}

fn connect(options: &Client) -> Result<Socket, Error> {
    let (host, port) = (&options.host, options.port);
    let addresses = sockets::resolve(host, port)?;
    let connected = sockets::first(&addresses, |address| {
        let socket = sockets::tcp_socket(address)?;
        // Before connecting: the window offered in the handshake depends on it.
        if let Some(bytes) = options.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = options.low_mark {
            sockets::set_receive_low_mark(&socket, i32::try_from(bytes).unwrap_or(i32::MAX))?;
        }
        socket.connect_timeout(&address.into(), options.time)?;
        socket.set_nonblocking(true)?;
        // What --talk and --ask send must leave at once, each byte as a segment.
        socket.set_tcp_nodelay(options.talk > 0 || options.ask)?;
        Ok(socket)
    });
    connected.map_err(|cause| Error::Connect { host: host.clone(), port, cause })
}

/// Why the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Time,
    Server,
    Signal,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Ending::Time => "the time",
            Ending::Server => "the server",
            Ending::Signal => "a signal",
        }
    }
}

struct Reader<'a> {
    options: &'a Client,
    signals: Signals,
    socket: TcpStream,
    buffer: Vec<u8>,
    begun: Instant,
    until: Instant,
    reads: u64,
    bytes: u64,
}

impl Reader<'_> {
    fn read_on(&mut self) -> Result<Ending, Error> {
        loop {
            if self.options.ask {
                self.say(b"?")?;
            }
            if let Some(ending) = self.fill()? {
                return Ok(ending);
            }
            if self.options.talk > 0 && self.reads == 1 {
                if let Some(ending) = self.rest(BEFORE_TALKING)? {
                    return Ok(ending);
                }
                self.talk()?;
            }
            if let Some(ending) = self.rest(self.options.sleep)? {
                return Ok(ending);
            }
        }
    }

    /// Reads until the buffer is full; with -L, once.
    fn fill(&mut self) -> Result<Option<Ending>, Error> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            let quick_before = self.before_read()?;
            if let Some(ending) = self.wait(self.until, PollFlags::POLLIN)? {
                return Ok(Some(ending));
            }
            let bytes = match unistd::read(&self.socket, &mut self.buffer[filled..]) {
                Ok(0) => return Ok(Some(Ending::Server)),
                Ok(bytes) => bytes,
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(Errno::ECONNRESET | Errno::EPIPE) => return Ok(Some(Ending::Server)),
                Err(errno) => return Err(Error::Broken(errno.into())),
            };
            self.reads += 1;
            self.bytes += bytes as u64;
            filled += bytes;
            self.tell(bytes, quick_before)?;
            if self.options.low_mark.is_some() {
                break;
            }
        }
        Ok(None)
    }

    fn before_read(&self) -> Result<Option<bool>, Error> {
        if let Some(switch) = self.options.quickack {
            SockRef::from(&self.socket)
                .set_tcp_quickack(switch == Switch::On)
                .map_err(Error::call("set TCP_QUICKACK"))?;
        }
        self.quickack()
    }

    /// Returns TCP_QUICKACK, if it is to be traced.
    fn quickack(&self) -> Result<Option<bool>, Error> {
        if !self.options.trace_quickack {
            return Ok(None);
        }
        let asked = SockRef::from(&self.socket).tcp_quickack();
        asked.map(Some).map_err(Error::call("ask for TCP_QUICKACK"))
    }

    /// Prints what was asked for about a read.
    fn tell(&self, bytes: usize, before: Option<bool>) -> Result<(), Error> {
        let after = self.quickack()?;
        let at = self.begun.elapsed().as_secs_f64();
        let number = self.reads;
        if self.options.debug {
            eprint_line(format_args!("{at:.6} read {number}: {bytes} bytes"));
        }
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        if self.options.json {
            return say_json(&json!({
                "event": "read", "number": number, "bytes": bytes, "at_s": at,
                "quickack_before": before, "quickack_after": after,
            }));
        }
        let (before, after) = (u8::from(before), u8::from(after));
        say(format_args!(
            "{at:.6} read {number}: {bytes} bytes, TCP_QUICKACK {before} before, {after} after"
        ))
    }

    /// Sends the segments of --talk, one at a time.
    fn talk(&mut self) -> Result<(), Error> {
        (0..self.options.talk).try_for_each(|_| self.say(b"t"))
    }

    /// Sends one byte, as a segment.
    fn say(&self, byte: &[u8; 1]) -> Result<(), Error> {
        match unistd::write(&self.socket, byte) {
            // A server that is gone is noticed by the next read.
            Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
            Err(errno) => Err(Error::Broken(errno.into())),
        }
    }

    fn rest(&self, time: Duration) -> Result<Option<Ending>, Error> {
        if time.is_zero() { Ok(None) } else { self.wait_for(time) }
    }

    fn wait_for(&self, time: Duration) -> Result<Option<Ending>, Error> {
        let wake = Instant::now() + time;
        let ending = self.wait(wake.min(self.until), PollFlags::empty())?;
        // The end of a rest is not the end of the run.
        Ok(ending.filter(|ending| *ending != Ending::Time || wake >= self.until))
    }

    /// Waits for the socket, if any of its events is wanted, until then at the latest.
    fn wait(&self, until: Instant, events: PollFlags) -> Result<Option<Ending>, Error> {
        loop {
            let mut fds =
                [awaited(&self.signals, PollFlags::POLLIN), awaited(&self.socket, events)];
            // While it rests, events of the connection must not wake it: it would no longer rest.
            // The next read will see them.
            let watched = if events.is_empty() { 1 } else { 2 };
            wait(&mut fds[..watched], Some(until)).map_err(Error::call("wait"))?;
            let signalled = !ready(&fds[0]).is_empty();
            let came = watched == 2 && !ready(&fds[1]).is_empty();
            if signalled {
                let requests = self.signals.requests().map_err(Error::call("read signals"))?;
                if requests.contains(&Request::End) {
                    return Ok(Some(Ending::Signal));
                }
            }
            if Instant::now() >= until {
                return Ok(Some(Ending::Time));
            }
            if came {
                return Ok(None);
            }
        }
    }

    fn summary(
        &self,
        ending: Ending,
        first: Option<usize>,
        last: Option<usize>,
    ) -> Result<(), Error> {
        let elapsed = self.begun.elapsed().as_secs_f64();
        let rate = self.bytes as f64 / elapsed / f64::from(1 << 20);
        if self.options.json {
            return say_json(&json!({
                "event": "summary", "version": 1, "ended_by": ending.name(), "reads": self.reads,
                "bytes": self.bytes, "seconds": elapsed,
                "receive_buffer_first": first, "receive_buffer_last": last,
            }));
        }
        let size = |bytes: Option<usize>| bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        say(format_args!(
            "client: ended by {} after {elapsed:.3} s: {} bytes in {} reads, {rate:.3} MB/s, \
             SO_RCVBUF {} at first, {} at the end",
            ending.name(),
            self.bytes,
            self.reads,
            size(first),
            size(last)
        ))
    }
}

/// Writes a line for -d. A closed standard error is ignored.
fn eprint_line(line: impl std::fmt::Display) {
    use io::Write as _;
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
