//! The client, for programs and instances.

mod listening;
mod ports;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};
use uncork_driver::{af_packet, af_xdp};
use uncork_high::{high, higher};
use uncork_stack::{FastOpenKeys, Snapshot};

use self::ports::Asked;
use crate::channel::{self, Datagram};
use crate::{Answer, Device, Ends, Error, Octets, Place, Question, Reply, Request, Table, VERSION};

/// How long an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How many times as long it is waited for where a connection would be lost otherwise.
pub const INSISTENCE: u32 = 5;
/// How many askers may wait for a report on the stack. Any more are dropped.
const ASKERS: usize = 16;

/// A connection to the guardian. It belongs to this process alone: after a fork the child drops it, and makes one of its
/// own if it wants one.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    devices: Vec<Device>,
    attaches: bool,
    has_queues: bool,
    table: Table,
    unasked: Unasked,
    /// Number of the last question.
    last: u32,
}

impl Client {
    /// Connects to the guardian at a place (the value of [`VARIABLE`](crate::VARIABLE)).
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn connect(place: &str) -> Result<Self, Error> {
        let place: Place = place.parse()?;
        let token = place.token().to_owned();
        Self::introduce(&place, Request::Hello { version: VERSION, token })
    }

    /// The same for an instance, a process with a stack that programs attach to. `token` is the one that the guardian has
    /// made for this instance.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn serve(place: &str, token: &str) -> Result<Self, Error> {
        let token = token.to_owned();
        Self::introduce(&place.parse()?, Request::Serve { version: VERSION, token })
    }

    fn introduce(place: &Place, request: Request) -> Result<Self, Error> {
        let socket = connect_to(place.name())?;
        ask(socket.as_fd(), &Question { id: 0, request }, None)?;
        let mut unasked = Unasked::default();
        let heard = hear(socket.as_fd(), 0, &mut unasked)?;
        let (Reply::Welcome { devices, attaches, queues }, Some(memory)) = heard else {
            return Err(Error::Language);
        };
        let table = Table::map(memory).map_err(Error::system("map the table of connections"))?;
        Ok(Self { socket, devices, attaches, has_queues: queues, table, unasked, last: 0 })
    }

    /// Tells whether this program's stack is to be an instance's ([`Client::attach`]); then it may have none of its own.
    #[must_use]
    pub fn attaches(&self) -> bool {
        self.attaches
    }

    /// Attaches this program to an instance: the one with this number, or the one with the fewest programs. Returns the
    /// instance's number, and one end of a socket pair (SOCK_SEQPACKET) whose other end the instance has. Call it again only when
    /// the instance is gone, and with it all that the program had there; after [`Error::Slow`], on a new connection.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is no such instance, or another error.
    pub fn attach(&mut self, wanted: Option<u32>) -> Result<(u32, OwnedFd), Error> {
        let id = self.say_at_any_rate(Request::Attach { wanted }, None)?;
        match self.hear(id)? {
            (Reply::Attached { instance }, Some(socket)) => Ok((instance, socket)),
            _ => Err(Error::Language),
        }
    }

    /// From an instance: lets an attached program give this connection to the kernel ([`Client::take_over`]).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another.
    pub fn give(
        &mut self,
        program: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.done(Request::Give { program, local, remote }, None)
    }

    /// Returns the next message to an instance about the programs attached to it, in the order in which they were sent.
    /// Messages arrive as for [`Client::next_passed`].
    pub fn next_word(&mut self) -> Option<Word> {
        self.unasked.words.pop_front()
    }

    /// Tells whether an unasked message of the guardian's waits to be fetched. It may have arrived together with an answer:
    /// then the descriptor is not readable for it, and a thread that sleeps on the descriptor is not woken.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let Unasked {
            passed,
            askers,
            words,
            queues,
            kernels,
            queue: _,
            leave: _,
            reserving: _,
            closed: _,
            over: _,
            late: _,
            disowned: _,
            unanswered: _,
        } = &self.unasked;
        let has_come = !(passed.is_empty() && askers.is_empty() && words.is_empty());
        has_come || !(queues.is_empty() && kernels.is_empty())
    }

    /// Tells whether the guardian is about to end, and waits for this program to leave: by dropping this, once nothing of its own
    /// is on the stack any more.
    #[must_use]
    pub fn is_to_be_left(&self) -> bool {
        self.unasked.leave
    }

    /// Returns the devices that a stack may use, as they were when the guardian began.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Opens a packet socket on a device, by its index. The socket receives what this process owns, now or later.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn open(&mut self, device: i32) -> Result<af_packet::Handed, Error> {
        let id = self.say_at_any_rate(Request::Open { device }, None)?;
        let opened = self.hear(id);
        // Making rings takes time, during which the guardian answers others: it is not held up.
        self.unasked.unanswered = self.unasked.unanswered.filter(|question| *question != id);
        match opened? {
            (Reply::Opened { socket: description }, Some(socket)) => {
                Ok(af_packet::Handed { socket, description })
            }
            _ => Err(Error::Language),
        }
    }

    /// Reports that this process has closed all devices that it opened, as nothing is on its stack. It may open them again.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn has_closed(&mut self) -> Result<(), Error> {
        self.done_or_said(Request::Closed, None)
    }

    /// Tells whether queues of the devices may come ([`Client::next_queue`]).
    #[must_use]
    pub fn has_queues(&self) -> bool {
        self.has_queues
    }

    /// Returns the next queue of an opened device, with the device's index: from now on this process's packets on that queue go
    /// to this AF_XDP socket, and no longer to the packet socket. Queues arrive as for [`Client::next_passed`].
    pub fn next_queue(&mut self) -> Option<(i32, af_xdp::Handed)> {
        self.unasked.queues.pop_front()
    }

    /// Returns the next stream on which to report on the stack. Streams arrive as for [`Client::next_passed`].
    pub fn next_asker(&mut self) -> Option<OwnedFd> {
        self.unasked.askers.pop_front().map(high)
    }

    /// Claims a connection that the stack is about to open; call it before the SYN leaves.
    /// `bound` is the kernel's socket that is bound to the local end, which reserves the port.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, such as a connection of the kernel's between the same ends; or
    /// another.
    pub fn own_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        bound: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let request = Request::OwnConnection { local, remote };
        self.done_or_undone(request.clone(), bound)?;
        // It is claimed once, however often it was asked for.
        self.unasked.late.retain(|(_, late)| *late != request);
        self.unasked.over.retain(|ends| *ends != (local, remote));
        Ok(())
    }

    /// Reports that such a connection is over, TIME-WAIT included.
    ///
    /// # Errors
    ///
    /// [`Error`] says what failed.
    pub fn disown_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.done(Request::DisownConnection { local, remote }, None)
    }

    /// Hands a connection of the stack over to the kernel (`uncork-handover`), and returns its socket: its queues hold everything
    /// except what was not sent yet. `queues` has their contents, if any. The stack no longer has the connection, and a caller
    /// that gives up loses it, so this waits [`INSISTENCE`] times as long as other calls.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another.
    pub fn take_over(
        &mut self,
        snapshot: &Snapshot,
        queues: Option<OwnedFd>,
        inet6: bool,
    ) -> Result<OwnedFd, Error> {
        let request = Request::TakeOver { snapshot: snapshot.clone(), inet6 };
        let id = self.say_at_any_rate(request, queues.as_ref().map(|memory| memory.as_fd()))?;
        // The new socket may need this descriptor number.
        drop(queues);
        let mut heard = self.hear(id);
        for _ in 1..INSISTENCE {
            if !matches!(heard, Err(Error::Slow(_))) {
                break;
            }
            heard = self.hear(id);
        }
        match heard? {
            (Reply::Taken, Some(socket)) => Ok(socket),
            _ => Err(Error::Language),
        }
    }

    /// Returns the keys of TCP Fast Open cookies: the same for all processes of this user.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the host has none, or another.
    pub fn fast_open_keys(&mut self) -> Result<FastOpenKeys, Error> {
        match self.request(Request::FastOpenKeys, None)? {
            (Reply::FastOpenKeys { keys }, None) => Ok(keys),
            _ => Err(Error::Language),
        }
    }

    /// Hands the kernel a segment from the peer that arrived at the stack while the kernel was taking the connection over.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another: then the peer has to retransmit the segment. The same goes for segments
    /// longer than [`Octets::MOST`].
    pub fn bring(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        segment: &[u8],
        socket: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let segment = Octets::new(segment).ok_or(Error::Language)?;
        self.done(Request::Bring { local, remote, segment }, Some(socket))
    }

    /// Returns the table in which the stack records its connections. The guardian resets them when this process dies, and
    /// lets the stack keep them when a port is shared or disowned.
    #[must_use]
    pub fn connections(&self) -> &Table {
        &self.table
    }

    /// Receives what the guardian has sent unasked; call it when the descriptor is readable.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the guardian's process has ended, and with it all that it had attached.
    pub fn check(&mut self) -> Result<(), Error> {
        loop {
            match receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok((answer, descriptor)) => self.unasked.keep(answer, descriptor),
                Err(Error::Slow(_)) => break,
                Err(error) => return Err(error),
            }
        }
        // What the guardian does not take now is sent another time; that it is gone is found then, too.
        let _ = self.say_what_is_over(SendFlags::DONTWAIT);
        Ok(())
    }

    fn done(&mut self, request: Request, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        is_done(self.request(request, descriptor))
    }

    /// Makes a request that must not be skipped when the guardian is slow: it is sent then, without waiting.
    fn done_or_said(
        &mut self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Error> {
        match self.unasked.unanswered {
            Some(_) => self.say_at_any_rate(request, descriptor).map(drop),
            None => self.done(request, descriptor),
        }
    }

    /// Makes a request that the caller goes without after [`Error::Slow`]: if it is granted late, that is undone.
    fn done_or_undone(
        &mut self,
        request: Request,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let id = self.say(request.clone(), Some(descriptor))?;
        let heard = self.hear(id);
        if matches!(heard, Err(Error::Slow(_))) {
            self.unasked.late.push((id, request));
        }
        is_done(heard)
    }

    fn request(
        &mut self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), Error> {
        let id = self.say(request, descriptor)?;
        self.hear(id)
    }

    /// Waits for the answer to a question. Unasked messages before it wake nobody any more, so replies to them go out now.
    fn hear(&mut self, id: u32) -> Result<(Reply, Option<OwnedFd>), Error> {
        let heard = hear(self.socket.as_fd(), id, &mut self.unasked);
        if matches!(heard, Err(Error::Slow(_))) {
            self.unasked.unanswered.get_or_insert(id);
        } else {
            self.unasked.unanswered = None;
        }
        let _ = self.say_what_is_over(SendFlags::DONTWAIT);
        heard
    }

    /// Sends a question, and returns its number. Once the guardian was slow, callers are told so at once until it has answered,
    /// instead of after [`PATIENCE`] each time.
    fn say(&mut self, request: Request, descriptor: Option<BorrowedFd<'_>>) -> Result<u32, Error> {
        if self.unasked.unanswered.is_some() {
            self.check()?;
        }
        match self.unasked.unanswered {
            Some(_) => Err(Error::Slow(PATIENCE)),
            None => self.say_at_any_rate(request, descriptor),
        }
    }

    fn say_at_any_rate(
        &mut self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<u32, Error> {
        // The very thing that is asked for may be among what is over.
        self.say_what_is_over(SendFlags::empty())?;
        self.last = self.last.wrapping_add(1);
        let question = Question { id: self.last, request };
        ask(self.socket.as_fd(), &question, descriptor)?;
        Ok(question.id)
    }
}

/// Readable when the guardian is gone or has sent something: call [`Client::check`].
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks the guardian at a place to have a program report on its stack, at the other end of a stream. `pids` is
/// the program's process id, in each of its namespaces. Returns why it has fewer queues of the devices than it should, a
/// sentence each.
///
/// # Errors
///
/// [`Error::Refused`] if it has nothing on the stack, or another.
pub fn look(place: &Place, pids: Vec<u32>, tell: BorrowedFd<'_>) -> Result<Vec<String>, Error> {
    let socket = connect_to(place.name())?;
    let request = Request::Look { version: VERSION, token: place.token().to_owned(), pids };
    ask(socket.as_fd(), &Question { id: 0, request }, Some(tell))?;
    match hear(socket.as_fd(), 0, &mut Unasked::default())? {
        (Reply::Looked { missing }, _) => Ok(missing),
        _ => Err(Error::Language),
    }
}

fn connect_to(name: &str) -> Result<OwnedFd, Error> {
    let setting_up = "make a socket to the guardian";
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(Error::system(setting_up))?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE))
            .map_err(Error::system(setting_up))?;
    }
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|_| Error::Place)?;
    // When a process is killed the kernel closes the descriptors with the highest numbers first, and a packet socket
    // takes it some ten milliseconds: the guardian is to notice the end before that.
    let socket = higher(socket);
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED) => return Err(Error::Gone),
        Err(Errno::AGAIN) => return Err(Error::Slow(PATIENCE)),
        Err(error) => return Err(Error::system("connect to the guardian")(error)),
    }
    // A process that took over the name of a dead guardian would learn the token, and could pass us descriptors.
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|error| Error::system(setting_up)(Errno::from_raw_os_error(error as i32)))?;
    if peer.uid() != 0 && peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Stranger(peer.uid()));
    }
    Ok(socket)
}

fn ask(
    socket: BorrowedFd<'_>,
    question: &Question,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(), Error> {
    channel::send(socket, question, descriptor, SendFlags::empty())
        .map_err(|error| failure("ask the guardian", error))
}

/// Messages to an instance about the programs attached to it, each identified by its number.
#[derive(Debug)]
pub enum Word {
    /// A program has been attached.
    Guest {
        /// The program's number, which no other program ever gets.
        program: u32,
        /// Its process id, as the guardian sees it.
        pid: Option<u32>,
        /// Its user id, as the guardian sees it.
        uid: Option<u32>,
        /// This instance's end of a socket pair, of which the program has the other.
        socket: OwnedFd,
    },
    /// New connections to this port are for this program, or others that have it. A port may be granted several times.
    Granted {
        /// The program.
        program: u32,
        /// The port, of one address or of all.
        local: SocketAddr,
    },
    /// This program no longer has this port. Existing connections stay.
    Revoked {
        /// The program.
        program: u32,
        /// The port, as it was granted.
        local: SocketAddr,
    },
    /// This program is about to open this connection: [`Client::disown_connection`] when it is over, even if the program
    /// never opens it.
    GrantedConnection {
        /// The program.
        program: u32,
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
    /// This program has not opened this connection, and will not, although it may have announced before that it would.
    RevokedConnection {
        /// The program.
        program: u32,
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
    },
}

/// What has come unasked, and what is still to be sent because of it.
#[derive(Debug, Default)]
struct Unasked {
    /// Connections to be accepted, each with its local end.
    passed: VecDeque<(SocketAddr, OwnedFd)>,
    /// Streams on which the program is to report on its stack.
    askers: VecDeque<OwnedFd>,
    /// Messages to an instance about its programs.
    words: VecDeque<Word>,
    /// AF_XDP sockets, each with the index of its device.
    queues: VecDeque<(i32, af_xdp::Handed)>,
    /// An AF_XDP socket whose frames have not come yet.
    queue: Option<(i32, af_xdp::Description, OwnedFd)>,
    /// Ports that are the kernel's though they are owned.
    kernels: VecDeque<SocketAddr>,
    leave: bool,
    /// Questions for ports whose answers have not been fetched yet.
    reserving: Vec<Asked>,
    /// Connections from such ports that are to be reported as closed, and as over.
    closed: Vec<Ends>,
    over: Vec<Ends>,
    /// Questions for ports and connections that callers have given up on, and the ports that were granted all the same.
    late: Vec<(u32, Request)>,
    disowned: Vec<SocketAddr>,
    /// A question that was waited for in vain and has not been answered yet: the guardian is held up.
    unanswered: Option<u32>,
}

impl Unasked {
    /// Stores a message that no caller waits for. An answer is too late now, unless it is one to a question for ports.
    fn keep(&mut self, answer: Answer, descriptor: Option<OwnedFd>) {
        if !answer.reply.is_unasked() && self.unanswered == Some(answer.id) {
            self.unanswered = None;
        }
        let reserving = self.reserving.iter().position(|asked| asked.id == answer.id);
        if !answer.reply.is_unasked()
            && let Some(at) = reserving
        {
            return self.keep_ports(at, answer.reply);
        }
        let late = self.late.iter().position(|(id, _)| *id == answer.id);
        if !answer.reply.is_unasked()
            && let Some(at) = late
        {
            let (_, request) = self.late.swap_remove(at);
            match (request, answer.reply) {
                (Request::Own { local } | Request::OwnKernels { local }, Reply::Done) => {
                    self.disowned.push(local);
                }
                (Request::OwnConnection { local, remote }, Reply::Done) => {
                    self.over.push((local, remote));
                }
                _ => {}
            }
            return;
        }
        match (answer.reply, descriptor) {
            (Reply::Passed { local }, Some(socket)) => self.passed.push_back((local, socket)),
            (Reply::Asked, Some(stream)) if self.askers.len() < ASKERS => {
                self.askers.push_back(stream);
            }
            (Reply::Queue { device, socket: description }, Some(socket)) => {
                self.queue = Some((device, description, socket));
            }
            (Reply::Frames, Some(frames)) => {
                if let Some((device, description, socket)) = self.queue.take() {
                    let handed = af_xdp::Handed { socket, frames, description };
                    self.queues.push_back((device, handed));
                }
            }
            (Reply::Kernels { local }, _) => self.kernels.push_back(local),
            (Reply::Leave, _) => self.leave = true,
            (Reply::GrantedPorts { program, from, remote, ports }, _) => {
                self.words.extend(ports.into_iter().map(|port| {
                    let local = SocketAddr::new(from, port);
                    Word::GrantedConnection { program, local, remote }
                }));
            }
            (reply, descriptor) => self.words.extend(word(reply, descriptor)),
        }
    }
}

fn word(reply: Reply, descriptor: Option<OwnedFd>) -> Option<Word> {
    Some(match (reply, descriptor) {
        (Reply::Guest { program, pid, uid }, Some(socket)) => {
            Word::Guest { program, pid, uid, socket }
        }
        (Reply::Granted { program, local }, _) => Word::Granted { program, local },
        (Reply::Revoked { program, local }, _) => Word::Revoked { program, local },
        (Reply::GrantedConnection { program, local, remote }, _) => {
            Word::GrantedConnection { program, local, remote }
        }
        (Reply::RevokedConnection { program, local, remote }, _) => {
            Word::RevokedConnection { program, local, remote }
        }
        _ => return None,
    })
}

fn is_done(heard: Result<(Reply, Option<OwnedFd>), Error>) -> Result<(), Error> {
    match heard? {
        (Reply::Done, _) => Ok(()),
        _ => Err(Error::Language),
    }
}

/// Waits for the answer to a question. Answers to earlier ones, which have come too late, are not returned.
fn hear(
    socket: BorrowedFd<'_>,
    id: u32,
    unasked: &mut Unasked,
) -> Result<(Reply, Option<OwnedFd>), Error> {
    let asked = Instant::now();
    loop {
        match receive(socket, RecvFlags::empty()) {
            Ok((Answer { reply: Reply::Refused { why }, id: its }, _)) if its == id => {
                return Err(Error::Refused(why));
            }
            Ok((answer, descriptor)) if answer.id == id && !answer.reply.is_unasked() => {
                return Ok((answer.reply, descriptor));
            }
            Ok((answer, descriptor)) => unasked.keep(answer, descriptor),
            // Interrupted by a signal to the program.
            Err(Error::System { error, .. }) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if asked.elapsed() >= PATIENCE {
            return Err(Error::Slow(PATIENCE));
        }
    }
}

fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<(Answer, Option<OwnedFd>), Error> {
    let hearing = |error| failure("hear the guardian", error);
    let Datagram { bytes, descriptor, .. } = channel::receive(socket, flags).map_err(hearing)?;
    if bytes.is_empty() {
        return Err(Error::Gone);
    }
    let answer = serde_json::from_slice(&bytes).map_err(|_| Error::Language)?;
    Ok((answer, descriptor))
}

fn failure(doing: &'static str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Gone,
        io::ErrorKind::WouldBlock => Error::Slow(PATIENCE),
        _ => Error::System { doing, error },
    }
}
