//! The kernel's sockets, all non-blocking.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::info;
use crate::conversation::{HOST, PEER, PORT, peer_port};
use crate::host::{Answer, HostError};
use crate::language::{Call, Choice};

/// The sockets by name.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    listener: Option<Socket>,
    named: BTreeMap<char, Socket>,
}

fn open() -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::IPV4, kind, Some(Protocol::TCP))?;
    // A namespace inherits the machine's congestion control, and may not choose another default for
    // its sockets.
    socket.set_tcp_congestion(b"cubic")?;
    Ok(socket)
}

impl Sockets {
    fn named(&self, name: char) -> Result<&Socket, HostError> {
        let found = self.named.get(&name);
        found.ok_or_else(|| HostError::Lacking(format!("there is no socket {name}")))
    }

    fn listen(&mut self, backlog: i32) -> io::Result<()> {
        let socket = open()?;
        socket.bind(&SocketAddr::new(HOST.into(), PORT).into())?;
        socket.listen(backlog)?;
        self.listener = Some(socket);
        Ok(())
    }

    fn connect(&mut self, name: char) -> io::Result<()> {
        let socket = open()?;
        let done = socket.connect(&SocketAddr::new(PEER.into(), peer_port(name)).into());
        self.named.insert(name, socket);
        done
    }

    fn accept(&mut self, name: char) -> io::Result<()> {
        let listener = self.listener.as_ref().ok_or(Errno::EINVAL)?;
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        self.named.insert(name, socket);
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        call: &Call,
        data: &[u8],
    ) -> Result<io::Result<Answer>, HostError> {
        let done = match *call {
            Call::Listen { backlog } => self.listen(backlog),
            Call::CloseListener => {
                self.listener = None;
                Ok(())
            }
            Call::Accept(name) => self.accept(name),
            Call::Connect(name) => self.connect(name),
            Call::Send { socket, flags, .. } => {
                let flags = flags | libc::MSG_NOSIGNAL;
                return Ok(self.named(socket)?.send_with_flags(data, flags).map(Answer::Done));
            }
            Call::Recv { socket, bytes } => {
                let mut into = vec![0; bytes];
                let received = { self.named(socket)? }.read(&mut into);
                return Ok(received.map(|count| {
                    into.truncate(count);
                    Answer::Read(into)
                }));
            }
            Call::Shutdown(name, how) => {
                let how = match how {
                    libc::SHUT_RD => Shutdown::Read,
                    libc::SHUT_WR => Shutdown::Write,
                    _ => Shutdown::Both,
                };
                self.named(name)?.shutdown(how)
            }
            Call::Close(name) => {
                let _ = self.named(name)?;
                self.named.remove(&name);
                Ok(())
            }
            Call::Error(name) => match self.named(name)?.take_error() {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(error),
            },
            Call::Info(name, field) => {
                let tell = |local: socket2::SockAddr| {
                    let local = local.as_socket().ok_or(Errno::ENOTCONN)?;
                    info::of(&local, peer_port(name))
                };
                let told = self.named(name)?.local_addr().and_then(tell);
                let told = match told {
                    Ok(told) => told,
                    Err(error) => return Ok(Err(error)),
                };
                let missing = || HostError::Lacking(format!("there is no {}", field.name));
                return field.read(&told).map(|value| Ok(Answer::Done(value))).ok_or_else(missing);
            }
            Call::Set(name, choice) => set(self.named(name)?, choice),
        };
        Ok(done.map(|()| Answer::Done(0)))
    }
}

fn set(socket: &Socket, choice: Choice) -> io::Result<()> {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    match choice {
        Choice::NoDelay(on) => socket.set_tcp_nodelay(on),
        Choice::Cork(on) => socket.set_tcp_cork(on),
        Choice::QuickAck(on) => socket.set_tcp_quickack(on),
        Choice::KeepAlive(idle, interval, probes) => {
            let wanted = TcpKeepalive::new()
                .with_time(seconds(idle))
                .with_interval(seconds(interval))
                .with_retries(probes);
            // Sets all three, and SO_KEEPALIVE first.
            socket.set_tcp_keepalive(&wanted)
        }
        Choice::UserTimeout(time) => socket.set_tcp_user_timeout(Some(time)),
        Choice::Linger(seconds) => socket.set_linger(Some(Duration::from_secs(seconds.into()))),
        Choice::ReceiveBuffer(bytes) => {
            socket.set_recv_buffer_size(usize::try_from(bytes).unwrap_or(usize::MAX))
        }
    }
}
