//! The answering side.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io};

use uncork_driver::Driver;
use uncork_engine::{Interest, Watch};
use uncork_stack::{Instant, SocketId, Stack};
use uncork_stat::{Connection, End, Running};

use super::make_directory;

/// Most clients that are answered at once; those that do not read their answers hold nobody else up.
const ASKERS: usize = 16;
/// Octets that are prepared ahead of their being read.
const AHEAD_BYTES: usize = 64 << 10;

/// Whether the path is a socket at which nobody listens. Anything else there belongs to somebody.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let tried = UnixStream::connect(path).err().map(|error| error.kind());
    Ok(tried == Some(ErrorKind::ConnectionRefused))
}

/// Answers queries over a Unix socket, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Responder {
    listener: UnixListener,
    path: PathBuf,
    does: String,
    device: String,
    addresses: Vec<SocketAddr>,
    begun: Instant,
    /// The device's last count.
    frames_lost: Option<u64>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    stream: UnixStream,
    left: std::vec::IntoIter<SocketId>,
    lines: Vec<u8>,
    gone: usize,
    /// Whether the last line is among `lines`.
    last: bool,
}

impl Responder {
    /// Listens at `path`. A socket that a killed process has left there is replaced.
    pub(crate) fn open(
        path: &Path,
        does: String,
        device: String,
        addresses: Vec<SocketAddr>,
        begun: Instant,
    ) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|_| path.starts_with(super::directory())) {
            make_directory(directory)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                if !is_abandoned(path)? {
                    return Err(error);
                }
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        listener.set_nonblocking(true)?;
        let answers = Vec::new();
        let path = path.to_owned();
        let frames_lost = None;
        Ok(Self { listener, path, does, device, addresses, begun, frames_lost, answers })
    }

    /// Reads the device's count of frames that found no room, which only it has.
    pub(crate) fn meet(&mut self, driver: &mut dyn Driver) {
        self.frames_lost = driver.lost();
    }

    /// Adds the descriptors to wait for, under keys from `first_key` on, which must be the largest.
    pub(crate) fn watched<'a>(&'a self, first_key: u64, all: &mut Vec<Watch<'a>>) {
        let listener =
            Watch { fd: self.listener.as_fd(), interest: Interest::Read, key: first_key };
        all.push(listener);
        all.extend((first_key + 1..).zip(&self.answers).map(|(key, answer)| Watch {
            fd: answer.stream.as_fd(),
            interest: Interest::Write,
            key,
        }));
    }

    /// Continues with a ready descriptor, whose key is counted from the first.
    pub(crate) fn on_watched(&mut self, stack: &mut Stack, now: Instant, place: u64) {
        let Some(place) = place.checked_sub(1) else {
            self.accept(stack, now);
            return;
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(answer) = self.answers.get_mut(place) {
            answer.go_on(stack, now);
        }
    }

    /// Forgets completed answers: once a turn, as keys must stay the same meanwhile.
    pub(crate) fn forget_done(&mut self) {
        self.answers.retain(|answer| !answer.is_done());
    }

    fn accept(&mut self, stack: &mut Stack, now: Instant) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.answers.len() >= ASKERS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut answer = Answer {
                stream,
                left: stack.sockets().collect::<Vec<_>>().into_iter(),
                lines: Vec::new(),
                gone: 0,
                last: false,
            };
            uncork_stat::put(&mut answer.lines, &self.about(stack, now));
            answer.go_on(stack, now);
            self.answers.push(answer);
        }
    }

    fn about(&self, stack: &Stack, now: Instant) -> Running {
        Running {
            pid: std::process::id(),
            does: self.does.clone(),
            device: self.device.clone(),
            without: Vec::new(),
            addresses: self.addresses.clone(),
            age_ms: u64::try_from(now.since(self.begun).as_millis()).unwrap_or(u64::MAX),
            counts: stack.counters().into(),
            frames_lost: self.frames_lost,
            by_queue: None,
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Answer {
    fn is_done(&self) -> bool {
        self.last && self.gone == self.lines.len()
    }

    fn give_up(&mut self) {
        self.last = true;
        self.gone = self.lines.len();
    }

    fn go_on(&mut self, stack: &mut Stack, now: Instant) {
        loop {
            if self.gone == self.lines.len() && !self.last {
                self.lines.clear();
                self.gone = 0;
            }
            self.make_lines(stack, now);
            match self.stream.write(&self.lines[self.gone..]) {
                Ok(0) => return self.give_up(),
                Ok(bytes) => self.gone += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client is gone.
                Err(_) => return self.give_up(),
            }
            if self.is_done() {
                return;
            }
        }
    }

    fn make_lines(&mut self, stack: &mut Stack, now: Instant) {
        while !self.last && self.lines.len() < AHEAD_BYTES {
            match self.left.next() {
                // The connection may have ended by now.
                Some(socket) => {
                    if let Some(info) = stack.info(now, socket) {
                        uncork_stat::put(&mut self.lines, &Connection::from(&info));
                    }
                }
                None => {
                    uncork_stat::put(&mut self.lines, &End::new());
                    self.last = true;
                }
            }
        }
    }
}
