//! The same conversations on kernel sockets, for comparison: one thread, epoll(7), and no system call
//! that a careful server would not make.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, SockRef, Socket, Type};
use uncork_driver::clock::{Clock, clock};
use uncork_stack::Instant;

use crate::error::Error;
use crate::server::{LINGER, SCRATCH_BYTES};
use crate::signals::Signals;
use crate::stream::{Stop, Stream};
use crate::talk::{Service, Site, Standing, Talk};

/// Backlog, the same as that of the stack's own servers.
pub(crate) const BACKLOG: u32 = 1024;
/// Events that are fetched at once.
const EVENTS: usize = 256;
const SIGNALS: u64 = u64::MAX;

/// A connection on a kernel socket.
struct OnKernel<'a> {
    stream: &'a TcpStream,
    /// Whether the last read was shorter than the buffer: the next one would return nothing.
    drained: bool,
}

impl Stream for OnKernel<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop> {
        if self.drained {
            return Err(Stop::WouldBlock);
        }
        let received = recv(self.stream.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT);
        let bytes = received.map_err(|error| match error {
            nix::Error::EAGAIN => Stop::WouldBlock,
            _ => Stop::Failed,
        })?;
        self.drained = bytes > 0 && bytes < into.len();
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8], more: bool) -> Result<usize, Stop> {
        let more = if more { libc::MSG_MORE } else { 0 };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
        let sent = SockRef::from(self.stream).send_with_flags(bytes, flags);
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Stop::WouldBlock,
            _ => Stop::Failed,
        })
    }

    fn end_writing(&mut self) {
        // The connection may be gone already, as the next read will show.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

struct Served {
    stream: TcpStream,
    talk: Talk,
    watched: EpollFlags,
}

/// A server on kernel sockets.
pub(crate) struct KernelServer {
    site: Site,
    set: Epoll,
    listeners: Vec<TcpListener>,
    /// Indexed by descriptor.
    served: Vec<Option<Served>>,
    lingering: VecDeque<(Instant, usize)>,
    scratch: Box<[u8]>,
    signals: Signals,
    clock: Clock,
    grace: Duration,
    deadline: Option<Instant>,
}

impl KernelServer {
    pub(crate) fn open(
        service: Service,
        addresses: &[IpAddr],
        port: u16,
        signals: Signals,
        grace: Duration,
    ) -> Result<Self, Error> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| Error::system("make an epoll set")(error.into()))?;
        let add =
            |fd: BorrowedFd<'_>, data| set.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, data));
        let mut listeners = Vec::new();
        for &address in addresses {
            let listener = listen(SocketAddr::new(address, port))
                .map_err(|error| Error::KernelListen { address, port, error })?;
            add(listener.as_fd(), u64::try_from(listener.as_raw_fd()).unwrap_or(SIGNALS))
                .map_err(|error| Error::system("watch a socket")(error.into()))?;
            listeners.push(listener);
        }
        add(signals.fd(), SIGNALS)
            .map_err(|error| Error::system("watch for signals")(error.into()))?;
        Ok(Self {
            site: Site::new(service),
            set,
            listeners,
            served: Vec::new(),
            lingering: VecDeque::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            signals,
            clock: clock(),
            grace,
            deadline: None,
        })
    }

    /// Serves until it is asked to end and has shut down.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let now = (self.clock)();
            let count = match self.set.wait(&mut events, self.timeout(now)) {
                Ok(count) => count,
                Err(nix::Error::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            let now = (self.clock)();
            self.site.keep_time(now);
            for event in &events[..count] {
                self.on_event(now, event.data());
            }
            while let Some(&(due, place)) = self.lingering.front() {
                if due > now {
                    break;
                }
                self.lingering.pop_front();
                // Another connection may have the descriptor by now.
                if self.served[place].as_ref().is_some_and(|served| served.talk.lingers()) {
                    self.served[place] = None;
                }
            }
            if self.has_ended(now) {
                return Ok(());
            }
        }
    }

    fn timeout(&self, now: Instant) -> EpollTimeout {
        let due = [self.lingering.front().map(|&(due, _)| due), self.deadline];
        match due.into_iter().flatten().min() {
            // Rounded up to the milliseconds of epoll_wait(2).
            Some(due) => EpollTimeout::try_from(due.since(now) + Duration::from_micros(999))
                .unwrap_or(EpollTimeout::MAX),
            None => EpollTimeout::NONE,
        }
    }

    fn on_event(&mut self, now: Instant, data: u64) {
        if data == SIGNALS {
            let count = self.signals.fetch();
            let again = count > 1 || self.deadline.is_some();
            if count > 0 && self.deadline.is_none() {
                self.begin_to_end(now);
            }
            if count > 0 && again {
                self.deadline = Some(now);
            }
            return;
        }
        let fd = usize::try_from(data).unwrap_or(usize::MAX);
        let is_it = |listener: &TcpListener| usize::try_from(listener.as_raw_fd()) == Ok(fd);
        match self.listeners.iter().position(is_it) {
            Some(place) => self.accept(now, place),
            None => self.drive(now, fd),
        }
    }

    fn accept(&mut self, now: Instant, listener: usize) {
        // Another process may have accepted it, it may be gone again, or there may be no more
        // descriptors, which the next turn shows.
        while let Ok((stream, _)) = self.listeners[listener].accept() {
            let Ok(fd) = usize::try_from(stream.as_raw_fd()) else { continue };
            let watched = EpollFlags::EPOLLIN;
            let event = EpollEvent::new(watched, fd as u64);
            if stream.set_nodelay(true).is_err() || self.set.add(&stream, event).is_err() {
                continue;
            }
            if self.served.len() <= fd {
                self.served.resize_with(fd + 1, || None);
            }
            let talk = Talk::new(self.site.service());
            self.served[fd] = Some(Served { stream, talk, watched });
            self.drive(now, fd);
        }
    }

    fn drive(&mut self, now: Instant, place: usize) {
        let Some(Some(served)) = self.served.get_mut(place) else { return };
        let lingered = served.talk.lingers();
        let mut stream = OnKernel { stream: &served.stream, drained: false };
        match served.talk.drive(&self.site, &mut stream, &mut self.scratch) {
            // Closing removes it from the set, too.
            Standing::Over => self.served[place] = None,
            Standing::Waits { reads, writes } => {
                let mut watched = EpollFlags::empty();
                watched.set(EpollFlags::EPOLLIN, reads);
                watched.set(EpollFlags::EPOLLOUT, writes);
                if watched != served.watched {
                    served.watched = watched;
                    let mut event = EpollEvent::new(watched, place as u64);
                    // It is in the set, so this cannot fail.
                    let _ = self.set.modify(&served.stream, &mut event);
                }
                if served.talk.lingers() && !lingered {
                    self.lingering.push_back((now + LINGER, place));
                }
            }
        }
    }

    fn begin_to_end(&mut self, now: Instant) {
        self.listeners.clear();
        self.deadline = Some(now + self.grace);
        for place in 0..self.served.len() {
            if let Some(served) = &mut self.served[place] {
                served.talk.finish();
                self.drive(now, place);
            }
        }
    }

    fn has_ended(&mut self, now: Instant) -> bool {
        let Some(deadline) = self.deadline else { return false };
        if deadline > now {
            return self.served.iter().all(Option::is_none);
        }
        for served in self.served.drain(..).flatten() {
            // With this, closing resets the connection (socket(7), SO_LINGER).
            let _ = SockRef::from(&served.stream).set_linger(Some(Duration::ZERO));
        }
        true
    }
}

fn listen(local: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        Socket::new(Domain::for_address(local), Type::STREAM.cloexec().nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&local.into())?;
    socket.listen(i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}
