//! Semantics of the socket calls. `EAGAIN` means "not yet": a blocking call is retried.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use nix::errno::Errno;
use uncork_sockets::Asked;
use uncork_sockets::errno::{of_connect, of_connection, of_listen, of_recv, of_send};
use uncork_stack::{FastConnect, FastOpenListen, Shutdown, SocketId, SocketOption, State};

use crate::table::{Address, Fast, Kind, Socket, Stage};
use crate::world::World;

/// Returns an address as the stack has it: IPv4-mapped IPv6 becomes IPv4 (RFC 4291 §2.5.5.2).
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl World {
    /// socket(2).
    ///
    /// # Errors
    ///
    /// The errors of socket(2).
    pub fn socket(&mut self, domain: i32, kind: i32) -> Result<RawFd, Errno> {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let _ = self.stack();
        let socket = Socket {
            stage: Stage::New { bound: None },
            non_blocking: kind & libc::SOCK_NONBLOCK != 0,
            deferred: false,
            asked: Asked::default(),
            fast: Fast::default(),
            ipv6: domain == libc::AF_INET6,
        };
        self.table.add(Kind::Socket(Box::new(socket)))
    }

    /// bind(2).
    ///
    /// # Errors
    ///
    /// The errors of bind(2).
    pub fn bind(&mut self, fd: RawFd, address: Option<SocketAddr>) -> Result<(), Errno> {
        let address = plain(address.ok_or(Errno::EAFNOSUPPORT)?);
        let socket = self.table.socket(fd)?;
        let Stage::New { bound } = &mut socket.stage else { return Err(Errno::EINVAL) };
        if bound.replace(address).is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// listen(2).
    ///
    /// # Errors
    ///
    /// The errors of listen(2).
    pub fn listen(&mut self, fd: RawFd, backlog: i32) -> Result<(), Errno> {
        let socket = self.table.socket(fd)?;
        let local = match socket.stage {
            Stage::New { bound: Some(bound) } => bound,
            Stage::New { bound: None } => SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
            Stage::Listening { .. } => return Ok(()),
            Stage::Connecting { .. } | Stage::Open { .. } => return Err(Errno::EINVAL),
        };
        let options = socket.asked.options().to_vec();
        let backlog = u32::try_from(backlog).unwrap_or(0);
        self.follow();
        let id = self.stack().listen(local, backlog).map_err(of_listen)?;
        for option in options {
            self.stack().set_listener_option(id, option);
        }
        self.table.socket(fd)?.stage = Stage::Listening { id };
        self.tell_fast_listener(fd)
    }

    /// Applies Fast Open settings to a listener that exists already.
    pub(crate) fn tell_fast_listener(&mut self, fd: RawFd) -> Result<(), Errno> {
        let socket = self.table.socket(fd)?;
        let Stage::Listening { id } = socket.stage else { return Ok(()) };
        let listen = FastOpenListen {
            pending: socket.fast.pending,
            cookie_not_required: socket.fast.without_cookie,
        };
        let keys = socket.fast.keys;
        let stack = self.stack();
        stack.set_listener_fast_open(id, listen);
        if let Some(keys) = keys {
            stack.set_fast_open_keys(Some(id), keys);
        }
        Ok(())
    }

    /// accept(2): returns the descriptor, and the peer's address.
    ///
    /// # Errors
    ///
    /// The errors of accept(2).
    pub fn accept(&mut self, fd: RawFd) -> Result<(RawFd, SocketAddr), Errno> {
        let socket = self.table.socket(fd)?;
        let Stage::Listening { id } = socket.stage else { return Err(Errno::EINVAL) };
        let (asked, fast, ipv6) = (socket.asked.clone(), socket.fast.clone(), socket.ipv6);
        let connection = self.stack().accept(id).ok_or(Errno::EAGAIN)?;
        let remote = self.remote(connection).ok_or(Errno::ECONNABORTED)?;
        let stage = Stage::Open { id: connection };
        let socket = Socket { stage, non_blocking: false, deferred: false, asked, fast, ipv6 };
        let accepted = self.table.add(Kind::Socket(Box::new(socket)))?;
        Ok((accepted, if ipv6 { mapped(remote) } else { remote }))
    }

    fn remote(&mut self, id: SocketId) -> Option<SocketAddr> {
        let now = self.now;
        self.stack().info(now, id).map(|info| info.remote)
    }

    /// Begins connect(2); `EINPROGRESS` if [`World::finish_connect`] is to follow.
    ///
    /// # Errors
    ///
    /// The errors of connect(2).
    pub fn begin_connect(&mut self, fd: RawFd, address: Option<SocketAddr>) -> Result<(), Errno> {
        let fast = self.table.socket(fd)?.fast.connect;
        match self.begin(fd, address, fast) {
            // With Fast Open switched off it is an ordinary connection (TCP_FASTOPEN_CONNECT).
            Err(Errno::EOPNOTSUPP) if fast => self.begin(fd, address, false),
            result => result,
        }
    }

    /// Begins a connection. With `fast` the SYN may carry data: then this sends nothing, and the next send continues.
    pub(crate) fn begin(&mut self, fd: RawFd, address: Address, fast: bool) -> Result<(), Errno> {
        let now = self.now;
        let socket = self.table.socket(fd)?;
        let Some(remote) = address.map(plain) else { return self.disconnect(fd) };
        let bound = match socket.stage {
            Stage::New { bound } => bound,
            Stage::Connecting { .. } => {
                if socket.deferred {
                    return Err(Errno::EISCONN);
                }
                let done = self.finish_connect(fd);
                return done
                    .map_err(|error| if error == Errno::EAGAIN { Errno::EALREADY } else { error });
            }
            Stage::Open { .. } | Stage::Listening { .. } => return Err(Errno::EISCONN),
        };
        let options = socket.asked.options().to_vec();
        let without_cookie = socket.fast.without_cookie;
        self.follow();
        let begun = if fast {
            self.follow_fast_open();
            self.stack().connect_fast(now, bound, remote, without_cookie)
        } else {
            self.stack().connect(now, bound, remote).map(FastConnect::Begun)
        };
        let begun = begun.map_err(of_connect)?;
        let id = begun.socket();
        for option in options {
            self.stack().set_option(now, id, option);
        }
        let socket = self.table.socket(fd)?;
        socket.stage = Stage::Connecting { id };
        socket.deferred = matches!(begun, FastConnect::Deferred(_));
        if socket.deferred { Ok(()) } else { Err(Errno::EINPROGRESS) }
    }

    /// Completes connect(2): returns its result.
    ///
    /// # Errors
    ///
    /// The errors of connect(2).
    pub fn finish_connect(&mut self, fd: RawFd) -> Result<(), Errno> {
        let now = self.now;
        let Stage::Connecting { id } = self.table.socket(fd)?.stage else { return Ok(()) };
        let state = self.stack().info(now, id).map_or(State::Closed, |info| info.state);
        match state {
            State::SynSent | State::SynReceived => Err(Errno::EAGAIN),
            State::Closed => {
                let error = self.stack().take_error(id).map_or(Errno::ECONNABORTED, of_connection);
                self.stack().close(now, id);
                self.table.socket(fd)?.stage = Stage::New { bound: None };
                Err(error)
            }
            _ => {
                self.table.socket(fd)?.stage = Stage::Open { id };
                Ok(())
            }
        }
    }

    /// connect(2) with AF_UNSPEC: aborts the connection, and the socket is as new.
    fn disconnect(&mut self, fd: RawFd) -> Result<(), Errno> {
        let now = self.now;
        if let Ok(id) = self.connection(fd) {
            self.stack().abort(now, id);
            self.stack().close(now, id);
        }
        self.table.socket(fd)?.stage = Stage::New { bound: None };
        Ok(())
    }

    /// Returns the connection of a descriptor, established or being opened.
    pub(crate) fn connection(&mut self, fd: RawFd) -> Result<SocketId, Errno> {
        match self.table.socket(fd)?.stage {
            Stage::Connecting { id } | Stage::Open { id } => Ok(id),
            Stage::New { .. } | Stage::Listening { .. } => Err(Errno::ENOTCONN),
        }
    }

    /// send(2), as much as there is room for.
    ///
    /// # Errors
    ///
    /// The errors of send(2).
    pub fn send(&mut self, fd: RawFd, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        let known = libc::MSG_DONTWAIT
            | libc::MSG_NOSIGNAL
            | libc::MSG_MORE
            | libc::MSG_EOR
            | libc::MSG_ZEROCOPY;
        if flags & !known != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = self.now;
        let id = self.connection(fd).map_err(|error| match error {
            Errno::ENOTCONN => Errno::EPIPE,
            other => other,
        })?;
        let connecting =
            self.stack().info(now, id).is_some_and(|info| info.state == State::SynSent);
        if connecting && !std::mem::take(&mut self.table.socket(fd)?.deferred) {
            return Err(Errno::EAGAIN);
        }
        let sent = self.stack().send(now, id, bytes, flags & libc::MSG_MORE != 0);
        let sent = sent.map_err(of_send)?;
        if flags & libc::MSG_EOR != 0 && sent == bytes.len() {
            self.stack().end_record(id);
        }
        Ok(sent)
    }

    /// Notes that a write waits for room on the connection.
    pub(crate) fn note_writer(&mut self, fd: RawFd) -> Result<(), Errno> {
        let now = self.now;
        let id = self.connection(fd)?;
        self.stack().set_option(now, id, SocketOption::WriterWaits(true));
        Ok(())
    }

    /// Sends a SYN that waits for data, without any.
    pub(crate) fn launch(&mut self, fd: RawFd) -> Result<(), Errno> {
        let now = self.now;
        let id = self.connection(fd)?;
        self.table.socket(fd)?.deferred = false;
        self.stack().launch(now, id);
        Ok(())
    }

    /// recv(2).
    ///
    /// # Errors
    ///
    /// The errors of recv(2).
    pub fn recv(&mut self, fd: RawFd, into: &mut [u8], flags: i32) -> Result<usize, Errno> {
        if flags & !(libc::MSG_DONTWAIT | libc::MSG_PEEK) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = self.now;
        let id = self.connection(fd)?;
        let stack = self.stack();
        let look = flags & libc::MSG_PEEK != 0;
        let received = if look { stack.peek(now, id, into) } else { stack.recv(now, id, into) };
        received.map_err(of_recv)
    }

    /// shutdown(2).
    ///
    /// # Errors
    ///
    /// The errors of shutdown(2).
    pub fn shutdown(&mut self, fd: RawFd, how: i32) -> Result<(), Errno> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        };
        let now = self.now;
        let id = self.connection(fd)?;
        let info = self.stack().info(now, id).ok_or(Errno::ENOTCONN)?;
        if matches!(info.state, State::Closed | State::TimeWait) {
            return Err(Errno::ENOTCONN);
        }
        self.stack().shutdown(now, id, how);
        Ok(())
    }

    /// close(2).
    ///
    /// # Errors
    ///
    /// The errors of close(2).
    pub fn close(&mut self, fd: RawFd) -> Result<(), Errno> {
        let now = self.now;
        self.table.forget(fd);
        let Kind::Socket(socket) = self.table.remove(fd)? else { return Ok(()) };
        match socket.stage {
            Stage::Connecting { id } | Stage::Open { id } => self.stack().close(now, id),
            Stage::Listening { id } => self.stack().close_listener(now, id),
            Stage::New { .. } => {}
        }
        Ok(())
    }

    /// FIONREAD, SIOCOUTQ and SIOCOUTQNSD (tcp(7)).
    pub(crate) fn ioctl(&mut self, fd: RawFd, request: u64) -> Result<i32, Errno> {
        /// linux/sockios.h.
        const SIOCOUTQNSD: u64 = 0x894b;
        let now = self.now;
        let id = self.connection(fd)?;
        let stack = self.stack();
        let readable = stack.readable_bytes(id);
        let info = stack.info(now, id);
        let bytes = match request {
            libc::FIONREAD => readable,
            libc::TIOCOUTQ => info.map_or(0, |info| info.queued_bytes),
            SIOCOUTQNSD => info.map_or(0, |info| info.unsent_bytes),
            _ => return Err(Errno::ENOTTY),
        };
        Ok(i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    /// F_GETFL and F_SETFL; `set` is `None` for the former.
    pub(crate) fn status_flags(&mut self, fd: RawFd, set: Option<i32>) -> Result<i32, Errno> {
        let socket = self.table.socket(fd)?;
        if let Some(flags) = set {
            socket.non_blocking = flags & libc::O_NONBLOCK != 0;
            return Ok(0);
        }
        Ok(libc::O_RDWR | if socket.non_blocking { libc::O_NONBLOCK } else { 0 })
    }

    /// Whether a call with these flags may block.
    pub(crate) fn waits(&mut self, fd: RawFd, flags: i32) -> Result<bool, Errno> {
        Ok(!self.table.socket(fd)?.non_blocking && flags & libc::MSG_DONTWAIT == 0)
    }

    /// Returns a descriptor's readiness as POLLIN and related bits, which equal EPOLLIN's (tcp_poll).
    pub(crate) fn readiness(&mut self, fd: RawFd) -> Result<i16, Errno> {
        let now = self.now;
        let id = match self.table.socket(fd)?.stage {
            Stage::New { .. } => return Ok(libc::POLLOUT | libc::POLLHUP),
            Stage::Listening { id } => {
                let waiting = self.stack().accept_waiting(id) > 0;
                return Ok(if waiting { libc::POLLIN | libc::POLLRDNORM } else { 0 });
            }
            Stage::Connecting { id } | Stage::Open { id } => id,
        };
        let stack = self.stack();
        let Some(info) = stack.info(now, id) else { return Ok(libc::POLLHUP) };
        let socket = self.table.socket(fd)?;
        if socket.deferred && info.state == State::SynSent {
            return Ok(libc::POLLOUT | libc::POLLWRNORM);
        }
        // A socket that was accepted in SYN-RECEIVED uses Fast Open.
        let opening = matches!(socket.stage, Stage::Connecting { .. });
        if opening && matches!(info.state, State::SynSent | State::SynReceived) {
            return Ok(0);
        }
        let stack = self.stack();
        let mut ready = 0;
        if stack.is_readable(id) {
            ready |= libc::POLLIN | libc::POLLRDNORM;
        }
        if stack.is_writable(now, id) {
            ready |= libc::POLLOUT | libc::POLLWRNORM;
        }
        let peer_closed =
            [State::CloseWait, State::LastAck, State::Closing, State::TimeWait, State::Closed];
        if peer_closed.contains(&info.state) {
            ready |= libc::POLLRDHUP;
        }
        if matches!(info.state, State::LastAck | State::Closing | State::TimeWait | State::Closed) {
            ready |= libc::POLLHUP;
        }
        if stack.has_error(id) {
            ready |= libc::POLLERR;
        }
        Ok(ready)
    }
}

/// Returns an IPv4 address as an IPv6 socket reports it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}
