//! The stack in virtual time, behind the socket calls that packetdrill makes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use nix::errno::Errno;
use uncork_packet::{Capabilities, Instant, Medium};
use uncork_packetdrill::world::{Link, Settings, Shared, World};
use uncork_stack::QuickAckCounting;

use crate::conversation::{HOST, PEER, PORT, peer_port};
use crate::host::{Answer, Host, HostError, Sent, Tolerance};
use crate::language::{Call, Choice, Setup, Side};

/// Octets of the largest packet on the link.
const MTU: u16 = 1500;
/// Timers of the stack are exact; scripts write milliseconds.
const EXACT: Duration = Duration::from_millis(1);
/// Name of the listener, among the sockets that have letters.
const LISTENER: char = '!';

/// A host with this project's stack.
#[derive(Debug)]
pub struct Ours {
    world: Shared,
    began: Instant,
    sockets: BTreeMap<char, RawFd>,
}

impl Ours {
    /// Sets up a host for a script.
    ///
    /// # Errors
    ///
    /// If the script needs a setting that the stack does not have.
    pub fn new(setup: &Setup) -> Result<Self, HostError> {
        let mut settings = Settings::default();
        let asked = RefCell::new(BTreeSet::new());
        settings.set_all(&|name| {
            asked.borrow_mut().insert(name.to_owned());
            let mut all = setup.sysctls.iter();
            all.find(|(known, _)| known == name).map(|(_, value)| value.clone())
        });
        let asked = asked.into_inner();
        if let Some((name, _)) = setup.sysctls.iter().find(|(name, _)| !asked.contains(name)) {
            return Err(HostError::Lacking(format!("the stack has no setting {name}")));
        }
        // Each segment is a packet of its own, as with the TUN device.
        settings.device = Capabilities {
            reports_completions: setup.link.is_some(),
            ..Capabilities::plain(Medium::Ip, MTU)
        };
        settings.link = setup.link.map(|(rate, bucket_bytes)| Link { rate, bucket_bytes });
        if setup.old_quick_acks {
            settings.config.quick_ack_counting = QuickAckCounting::EverySegmentSent;
        }
        let address = format!("{HOST}/24").parse();
        let address = address.map_err(|_| HostError::Place(format!("{HOST}/24 is no address")))?;
        let world = Shared::new(vec![address], Some(settings));
        let began = world.now();
        Ok(Self { world, began, sockets: BTreeMap::new() })
    }

    /// Returns the socket of this name.
    fn socket(&self, name: char) -> Result<RawFd, HostError> {
        let found = self.sockets.get(&name).copied();
        found.ok_or_else(|| HostError::Lacking(format!("there is no socket {name}")))
    }

    fn open(&mut self, name: char) -> Result<RawFd, Errno> {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        let fd = self.world.call(|world| world.socket(libc::AF_INET, kind))?;
        if let Some(before) = self.sockets.insert(name, fd) {
            let _ = self.world.call(|world| world.close(before));
        }
        Ok(fd)
    }

    fn listen(&mut self, backlog: i32) -> Result<(), Errno> {
        let fd = self.open(LISTENER)?;
        self.world.call(|world| {
            world.bind(fd, Some(SocketAddr::new(HOST.into(), PORT)))?;
            world.listen(fd, backlog)
        })
    }

    fn connect(&mut self, name: char) -> Result<(), Errno> {
        let fd = self.open(name)?;
        let to = SocketAddr::new(PEER.into(), peer_port(name));
        self.world.call(|world| world.begin_connect(fd, Some(to)))
    }

    fn accept(&mut self, listener: RawFd, name: char) -> Result<(), Errno> {
        let (fd, _) = self.world.call(|world| world.accept(listener))?;
        self.sockets.insert(name, fd);
        Ok(())
    }

    fn close(&mut self, name: char) -> Result<Result<(), Errno>, HostError> {
        let fd = self.socket(name)?;
        self.sockets.remove(&name);
        Ok(self.world.call(|world| world.close(fd)))
    }
}

/// Returns the arguments of setsockopt(2): level, name, value.
fn options(choice: Choice) -> Vec<(i32, i32, Vec<u8>)> {
    let int = |value: u32| value.to_ne_bytes().to_vec();
    let tcp = |name: i32, value: u32| (libc::SOL_TCP, name, int(value));
    match choice {
        Choice::NoDelay(on) => vec![tcp(libc::TCP_NODELAY, on.into())],
        Choice::Cork(on) => vec![tcp(libc::TCP_CORK, on.into())],
        Choice::QuickAck(on) => vec![tcp(libc::TCP_QUICKACK, on.into())],
        Choice::KeepAlive(idle, interval, probes) => vec![
            tcp(libc::TCP_KEEPIDLE, idle),
            tcp(libc::TCP_KEEPINTVL, interval),
            tcp(libc::TCP_KEEPCNT, probes),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, int(1)),
        ],
        Choice::UserTimeout(time) => {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            vec![tcp(libc::TCP_USER_TIMEOUT, millis)]
        }
        Choice::Linger(seconds) => {
            let linger = [int(1), int(seconds.into())].concat();
            vec![(libc::SOL_SOCKET, libc::SO_LINGER, linger)]
        }
        Choice::ReceiveBuffer(bytes) => vec![(libc::SOL_SOCKET, libc::SO_RCVBUF, int(bytes))],
    }
}

fn set(world: &mut World, fd: RawFd, choice: Choice) -> Result<(), Errno> {
    options(choice)
        .into_iter()
        .try_for_each(|(level, name, value)| world.set_option(fd, level, name, &value))
}

/// Returns SO_ERROR as the failure that it stands for.
fn error(world: &mut World, fd: RawFd) -> Result<(), Errno> {
    let value = world.option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    let number = value.first_chunk().map_or(0, |octets| i32::from_ne_bytes(*octets));
    if number == 0 { Ok(()) } else { Err(Errno::from_raw(number)) }
}

impl Host for Ours {
    fn side(&self) -> Side {
        Side::Ours
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance { early: EXACT, late: EXACT, at_once: Duration::ZERO, part: u32::MAX }
    }

    fn now(&self) -> Duration {
        self.world.now().since(self.began)
    }

    fn sleep_until(&mut self, at: Duration) -> Result<(), HostError> {
        self.world.sleep(at.saturating_sub(self.now()));
        Ok(())
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError> {
        self.world.arrive(packet);
        Ok(())
    }

    fn next(&mut self, until: Duration) -> Result<Option<Sent>, HostError> {
        let sent = self.world.sent_until(self.began + until);
        Ok(sent.map(|sent| Sent { at: sent.at.since(self.began), bytes: sent.bytes }))
    }

    fn call(&mut self, call: &Call, data: &[u8]) -> Result<Answer, HostError> {
        let done = match *call {
            Call::Listen { backlog } => self.listen(backlog),
            Call::CloseListener => self.close(LISTENER)?,
            Call::Accept(name) => {
                let listener = self.socket(LISTENER)?;
                self.accept(listener, name)
            }
            Call::Connect(name) => self.connect(name),
            Call::Send { socket, flags, .. } => {
                let fd = self.socket(socket)?;
                let sent = self.world.call(|world| world.send(fd, data, flags));
                return Ok(sent.map_or_else(Answer::Failed, Answer::Done));
            }
            Call::Recv { socket, bytes } => {
                let fd = self.socket(socket)?;
                let mut into = vec![0; bytes];
                let received = self.world.call(|world| world.recv(fd, &mut into, 0));
                return Ok(received.map_or_else(Answer::Failed, |count| {
                    into.truncate(count);
                    Answer::Read(into)
                }));
            }
            Call::Shutdown(name, how) => {
                let fd = self.socket(name)?;
                self.world.call(|world| world.shutdown(fd, how))
            }
            Call::Close(name) => self.close(name)?,
            Call::Error(name) => {
                let fd = self.socket(name)?;
                self.world.call(|world| error(world, fd))
            }
            Call::Info(name, field) => {
                let fd = self.socket(name)?;
                let told = self.world.call(|world| world.option(fd, libc::SOL_TCP, libc::TCP_INFO));
                let missing = || HostError::Lacking(format!("there is no {}", field.name));
                return match told {
                    Ok(told) => field.read(&told).map(Answer::Done).ok_or_else(missing),
                    Err(errno) => Ok(Answer::Failed(errno)),
                };
            }
            Call::Set(name, choice) => {
                let fd = self.socket(name)?;
                self.world.call(|world| set(world, fd, choice))
            }
        };
        Ok(done.map_or_else(Answer::Failed, |()| Answer::Done(0)))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // The table leaves open descriptors to packetdrill, which is absent here.
        for &fd in self.sockets.values() {
            let _ = self.world.call(|world| world.close(fd));
        }
    }
}
