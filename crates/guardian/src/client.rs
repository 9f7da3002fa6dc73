//! The program's half.

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

/// How long the guardian is waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How many times as long it is waited for where nobody else could go on with what it was asked for.
pub const INSISTENCE: u32 = 5;
/// Who may wait to be told what the stack does. More hear nothing.
const ASKERS: usize = 16;

/// A connection to the guardian. It is this process's alone: after a fork the child makes one of its own, if it
/// wants one, and drops this.
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
    /// [`Error`] says which.
    pub fn connect(place: &str) -> Result<Self, Error> {
        let place: Place = place.parse()?;
        let token = place.token().to_owned();
        Self::introduce(&place, Request::Hello { version: VERSION, token })
    }

    /// The same for an instance: a process with a stack that programs attach to. `token` is that of this instance,
    /// which the guardian has made for it.
    ///
    /// # Errors
    ///
    /// [`Error`] says which.
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

    /// Whether this program's stack is to be an instance's ([`Client::attach`]), and it may have none of its own.
    #[must_use]
    pub fn attaches(&self) -> bool {
        self.attaches
    }

    /// Attaches this program to an instance: that of this number, or the one with the fewest programs. Gives its
    /// number, and one end of a pair of sockets (SOCK_SEQPACKET) whose other end it has. Again only when the
    /// instance is gone, and with it all that the program had there; after [`Error::Slow`] by a new connection.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there is none, or another.
    pub fn attach(&mut self, wanted: Option<u32>) -> Result<(u32, OwnedFd), Error> {
        let id = self.say_at_any_rate(Request::Attach { wanted }, None)?;
        match self.hear(id)? {
            (Reply::Attached { instance }, Some(socket)) => Ok((instance, socket)),
            _ => Err(Error::Language),
        }
    }

    /// Of an instance: a program that is attached to it may give this connection to the kernel
    /// ([`Client::take_over`]).
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

    /// Of an instance: what the guardian has said of the programs that are attached to it, in the order in which it was
    /// said. It comes as [`Client::next_passed`] does.
    pub fn next_word(&mut self) -> Option<Word> {
        self.unasked.words.pop_front()
    }

    /// Whether something that the guardian has said unasked waits to be fetched. It may have come in the middle of an
    /// answer: the descriptor is not readable for it then, and who sleeps on that is not woken.
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

    /// Whether the guardian is about to end, and waits for this program to leave it: by dropping this, when nothing of its own
    /// is on the stack any more.
    #[must_use]
    pub fn is_to_be_left(&self) -> bool {
        self.unasked.leave
    }

    /// What a stack may use, as it was when the guardian began.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Opens a packet socket on a device, by its number. What it receives is what this process owns, now or
    /// later.
    ///
    /// # Errors
    ///
    /// [`Error`] says which.
    pub fn open(&mut self, device: i32) -> Result<af_packet::Handed, Error> {
        let id = self.say_at_any_rate(Request::Open { device }, None)?;
        let opened = self.hear(id);
        // Rings take their time, in which others are answered.
        self.unasked.unanswered = self.unasked.unanswered.filter(|question| *question != id);
        match opened? {
            (Reply::Opened { socket: description }, Some(socket)) => {
                Ok(af_packet::Handed { socket, description })
            }
            _ => Err(Error::Language),
        }
    }

    /// This process has closed all that it has opened so, as nothing is on its stack. It may open it again.
    ///
    /// # Errors
    ///
    /// [`Error`] says which.
    pub fn has_closed(&mut self) -> Result<(), Error> {
        self.done_or_said(Request::Closed, None)
    }

    /// Whether queues of the devices may come ([`Client::next_queue`]).
    #[must_use]
    pub fn has_queues(&self) -> bool {
        self.has_queues
    }

    /// A queue of a device that was opened, and that device's number: what comes by the queue and is this process's
    /// comes to this socket of AF_XDP and no more to the packet socket. They come as [`Client::next_passed`] does.
    pub fn next_queue(&mut self) -> Option<(i32, af_xdp::Handed)> {
        self.unasked.queues.pop_front()
    }

    /// The end of a stream where somebody wants to be told what the stack does. They come as those do.
    pub fn next_asker(&mut self) -> Option<OwnedFd> {
        self.unasked.askers.pop_front().map(high)
    }

    /// From now on this connection is the stack's, which is about to open it: ask before the SYN leaves.
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
        // It is owned once, however often it was asked for.
        self.unasked.late.retain(|(_, late)| *late != request);
        self.unasked.over.retain(|ends| *ends != (local, remote));
        Ok(())
    }

    /// It is over, TIME-WAIT included.
    ///
    /// # Errors
    ///
    /// [`Error`] says which.
    pub fn disown_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        self.done(Request::DisownConnection { local, remote }, None)
    }

    /// Gives a connection that was the stack's to the kernel (`uncork-handover`), whose socket this gives: all is in its queues but
    /// what was not sent yet. `queues` has what is to be there, if something is. The stack has the connection no more, and it is
    /// lost with who gives up, so this waits [`INSISTENCE`] times as long as the rest.
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
        // The socket may need its number.
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

    /// What cookies of TCP Fast Open are to be made with: the same for all processes of this user.
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

    /// The last one, for a segment of the peer's that came to the stack in between. The guardian takes it to the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason, or another: then the peer has to send it again. So it is with segments of more than
    /// [`Octets::MOST`].
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

    /// Where the stack writes down which connections it has, for the guardian to reset when this process dies
    /// and to leave with it when a port is shared or disowned.
    #[must_use]
    pub fn connections(&self) -> &Table {
        &self.table
    }

    /// Takes in what the guardian has said unasked, when the descriptor is readable.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`]: its process has ended, and with it all that it had attached.
    pub fn check(&mut self) -> Result<(), Error> {
        loop {
            match receive(self.socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok((answer, descriptor)) => self.unasked.keep(answer, descriptor),
                Err(Error::Slow(_)) => break,
                Err(error) => return Err(error),
            }
        }
        // What it does not take now it takes another time; that it is gone is found then, too.
        let _ = self.say_what_is_over(SendFlags::DONTWAIT);
        Ok(())
    }

    fn done(&mut self, request: Request, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        is_done(self.request(request, descriptor))
    }

    /// What is not to be left out because the guardian is slow: then it is said, and not waited for.
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

    /// Who is told [`Error::Slow`] does without: should it be done all the same, it is undone when that is heard of.
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

    /// The answer to a question. What has come in the middle of it wakes nobody any more, so what is to be said of that is said now.
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

    /// Asks, and gives the number of the question. Who was told once that the guardian is slow is told so at once until it has
    /// answered, and not after [`PATIENCE`] each time.
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
        // What it asks for may be among what is over.
        self.say_what_is_over(SendFlags::empty())?;
        self.last = self.last.wrapping_add(1);
        let question = Question { id: self.last, request };
        ask(self.socket.as_fd(), &question, descriptor)?;
        Ok(question.id)
    }
}

/// Readable when the guardian is gone or has said something: [`Client::check`].
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks the guardian at a place to have a program tell, at the other end of a stream, what its stack does. `pids` is
/// the program's process id, in each of its namespaces. Gives why it has fewer queues of the devices than it is to have, a
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
    // takes it some ten milliseconds: the guardian is to hear of the end before that.
    let socket = higher(socket);
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED) => return Err(Error::Gone),
        Err(Errno::AGAIN) => return Err(Error::Slow(PATIENCE)),
        Err(error) => return Err(Error::system("connect to the guardian")(error)),
    }
    // Whoever takes the name of a guardian that is gone would hear the token and pass us descriptors.
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

/// What an instance is told of the programs that are attached to it, each by its number.
#[derive(Debug)]
pub enum Word {
    /// One has come.
    Guest {
        /// Its number: no other has it again.
        program: u32,
        /// Its process id, as the guardian sees it.
        pid: Option<u32>,
        /// The user's number, as the guardian sees it.
        uid: Option<u32>,
        /// This instance's end of a pair of sockets, of which the program has the other.
        socket: OwnedFd,
    },
    /// New connections to this port are for this program, or others that have it. It may have it several times.
    Granted {
        /// The program.
        program: u32,
        /// The port, of one address or all.
        local: SocketAddr,
    },
    /// The opposite. The connections that there are stay.
    Revoked {
        /// The program.
        program: u32,
        /// As it was granted.
        local: SocketAddr,
    },
    /// This program is about to open this connection: [`Client::disown_connection`] when it is over, be it that the
    /// program never comes to it.
    GrantedConnection {
        /// The program.
        program: u32,
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
    /// The opposite, of one that the program has not opened. It may have said before that it does.
    RevokedConnection {
        /// The program.
        program: u32,
        /// Our end.
        local: SocketAddr,
        /// The other.
        remote: SocketAddr,
    },
}

/// What has come unasked.
#[derive(Debug, Default)]
struct Unasked {
    /// Connections to be accepted, each with our end of it.
    passed: VecDeque<(SocketAddr, OwnedFd)>,
    /// Where somebody wants to be told what the stack does.
    askers: VecDeque<OwnedFd>,
    /// What an instance is told of its programs.
    words: VecDeque<Word>,
    /// Sockets of AF_XDP, each with the number of its device.
    queues: VecDeque<(i32, af_xdp::Handed)>,
    /// One whose frames have not come.
    queue: Option<(i32, af_xdp::Description, OwnedFd)>,
    /// Ports that are the kernel's though they are owned.
    kernels: VecDeque<SocketAddr>,
    leave: bool,
    /// Questions for ports that nobody waits for.
    reserving: Vec<Asked>,
    /// What is to be said of connections from such ports.
    closed: Vec<Ends>,
    over: Vec<Ends>,
    /// Questions for ports and connections that nobody waits for any more, and the ports that were granted all the same.
    late: Vec<(u32, Request)>,
    disowned: Vec<SocketAddr>,
    /// A question that was waited for in vain, and is not answered yet: the guardian is held up.
    unanswered: Option<u32>,
}

impl Unasked {
    /// An answer that comes now is too late, unless it is one to a question for ports.
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

/// The answer to a question. Earlier ones, which have come too late, are passed over.
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
            // By a signal of the program's.
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
