//! A program dies, and its peers hear of it: the kernel resets the connection, as it would have
//! done had it been its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use uncork_guard::{Guard, Plan, devices, heir};
use uncork_guardian::Client;
use uncork_netns::testing::is_skipped;
use uncork_wire::checksum::Sum;
use uncork_wire::tcp::{self, CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{SeqNumber, ipv4};

use crate::common::{LONG, Link, OUR_V6, OURS, THEIRS, end};

const PORT: u16 = 7100;
/// Time within which a peer has to hear of it.
const SOON: Duration = Duration::from_millis(100);

/// Plays a program that has a connection of its stack's until it is killed. No one at our end
/// answers for the peer's connection: the kernel's is removed silently (TCP_REPAIR, tcp(7)).
fn have_a_connection(part: &str) {
    let mut client = Client::connect(&std::env::var("UNCORK_STACK").unwrap()).unwrap();
    let listener = listen();
    println!("\nlistens");
    let (stream, remote) = listener.accept().unwrap();
    let local = stream.local_addr().unwrap();
    setsockopt(&stream, sockopt::TcpRepair, &1).unwrap();
    drop(stream);
    client.own(listener.local_addr().unwrap(), listener.as_fd()).unwrap();
    let _entry = (part != "silent").then(|| client.connections().enter(local, remote).unwrap());
    // A child that does not know of it also holds the connection to the guardian.
    let mut child = (part == "forked").then(|| {
        let shared = client.as_fd().try_clone_to_owned().unwrap();
        Command::new("sleep").arg("5").stdin(shared).spawn().unwrap()
    });
    println!("has one");
    let _ = std::io::stdin().read(&mut [0]);
    if let Some(child) = &mut child {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Listens on all addresses, with SO_REUSEPORT.
fn listen() -> TcpListener {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_only_v6(false).unwrap();
    socket.bind(&end("::", PORT).into()).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}

struct Program {
    child: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Program {
    fn start(link: &Link, test: &str, part: &str) -> Self {
        let mut child = link.play(test, part).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Self { child, said };
        program.hear("listens");
        program
    }

    fn hear(&mut self, wanted: &str) {
        assert!(self.said.any(|line| line.unwrap() == wanted), "it ended before it {wanted}");
    }
}

fn connect(link: &Link, to: SocketAddr) -> TcpStream {
    let stream = link.theirs.within(move || Ok(TcpStream::connect_timeout(&to, LONG)?)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

/// Returns the peer's error after the program was killed, and how long it took.
fn hear_of_death(stream: TcpStream, mut program: Program) -> (ErrorKind, Duration) {
    hear_of_deaths(stream, &mut [&mut program.child])
}

/// Like [`hear_of_death`], after several were killed, in this order.
fn hear_of_deaths(mut stream: TcpStream, victims: &mut [&mut Child]) -> (ErrorKind, Duration) {
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "too early");
    stream.set_nonblocking(false).unwrap();
    let killed = Instant::now();
    // By SIGKILL.
    victims.iter_mut().for_each(|victim| victim.kill().unwrap());
    let kind = stream.read(&mut [0]).unwrap_err().kind();
    let took = killed.elapsed();
    for victim in victims {
        victim.wait().unwrap();
    }
    (kind, took)
}

/// Checks that the peer is reset each time, and soon in one of a few attempts, as the machine may
/// be busy.
fn soon(mut attempt: impl FnMut() -> (ErrorKind, Duration)) {
    const TRIES: usize = 5;
    let mut all = Vec::new();
    while !all.iter().any(|took| *took < SOON) {
        assert!(all.len() < TRIES, "{all:?}");
        let (kind, took) = attempt();
        assert_eq!(kind, ErrorKind::ConnectionReset, "after {took:?}");
        all.push(took);
    }
    println!("{all:?}");
}

#[test]
fn the_peers_of_a_killed_program_are_reset_at_once() {
    const TEST: &str = "death::the_peers_of_a_killed_program_are_reset_at_once";
    if let Ok(part) = std::env::var("UNCORK_TEST_PART") {
        return have_a_connection(&part);
    }
    if is_skipped(TEST) {
        return;
    }
    let link = Link::new("death", &[]);
    for (part, ip) in [("four", OURS), ("six", OUR_V6), ("forked", OURS)] {
        soon(|| {
            let mut program = Program::start(&link, TEST, part);
            let stream = connect(&link, end(ip, PORT));
            program.hear("has one");
            hear_of_death(stream, program)
        });
    }
    // No one knows of a connection that is not in the table, or this test could not fail.
    let mut program = Program::start(&link, TEST, "silent");
    let stream = connect(&link, end(OURS, PORT));
    program.hear("has one");
    assert_eq!(hear_of_death(stream, program).0, ErrorKind::WouldBlock);
    // Nothing is left: the port is the kernel's again.
    let to = end(OURS, PORT);
    let connect = move || Ok(TcpStream::connect_timeout(&to, LONG).unwrap_err().kind());
    assert_eq!(link.theirs.within(connect).unwrap(), ErrorKind::ConnectionRefused);
}

/// Sends the peer two ACKs of which it cannot accept one, as a stack does to probe a closed window
/// or to see whether the peer is still there.
fn ask_for_an_answer(link: &Link, peer: &TcpStream) {
    let ends = [peer.peer_addr().unwrap(), peer.local_addr().unwrap()];
    let [(ours, our_port), (theirs, their_port)] = ends.map(|end| match end.ip() {
        IpAddr::V4(ip) => (ip, end.port()),
        IpAddr::V6(ip) => (ip.to_ipv4_mapped().unwrap(), end.port()),
    });
    let protocol = uncork_wire::Protocol::TCP;
    let bytes = (ipv4::HEADER_BYTES + tcp::HEADER_BYTES) as u16;
    for seq in [7, 7 + (1 << 31)] {
        let mut packet = vec![0; bytes.into()];
        ipv4::Header::whole(protocol, ours, theirs, bytes).emit(&mut packet);
        let mut sum = Sum::default();
        sum.add_pseudo_v4(ours, theirs, protocol.0, tcp::HEADER_BYTES as u32);
        let fields = Fields {
            source_port: our_port,
            destination_port: their_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(0),
            flags: Flags::ACK,
            window: 0,
        };
        let segment = &mut packet[ipv4::HEADER_BYTES..];
        fields.emit_summed(&OptionSet::default(), segment, &mut sum);
        segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
        let raw = move || {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)))?;
            Ok(raw.send_to(&packet, &SocketAddr::from((theirs, 0)).into())?)
        };
        link.ours.within(raw).unwrap();
    }
}

#[test]
fn a_peer_that_has_just_answered_a_probe_is_not_reset() {
    const TEST: &str = "death::a_peer_that_has_just_answered_a_probe_is_not_reset";
    if let Ok(part) = std::env::var("UNCORK_TEST_PART") {
        return have_a_connection(&part);
    }
    if is_skipped(TEST) {
        return;
    }
    let link = Link::new("deathprobed", &[]);
    soon(|| {
        let mut program = Program::start(&link, TEST, "four");
        let stream = connect(&link, end(OURS, PORT));
        program.hear("has one");
        ask_for_an_answer(&link, &stream);
        hear_of_death(stream, program)
    });
}

/// Plays the guardian: it has an heir, and prints where it is to be found.
fn be_the_guardian(test: &'static str) {
    let begin = move |socket: OwnedFd| {
        let mut heir = Command::new(std::env::current_exe()?);
        heir.args(["--exact", test]).env("UNCORK_TEST_PART", "heir").stdin(socket);
        heir.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let program = std::process::id();
    let plan =
        Plan { devices: devices::find(&[]).unwrap(), ports: Vec::new(), queues: None, program };
    let guard = Guard::new(plan).unwrap().with_heir(Box::new(begin));
    println!("\n{}", guard.place().to_variable());
    println!("guards");
    guard.run().unwrap();
}

#[test]
fn the_peers_of_a_program_that_is_killed_with_its_guardian_wait_for_ever() {
    const TEST: &str =
        "death::the_peers_of_a_program_that_is_killed_with_its_guardian_wait_for_ever";
    match std::env::var("UNCORK_TEST_PART").as_deref() {
        Ok("guardian") => return be_the_guardian(TEST),
        Ok("heir") => {
            let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            return heir::inherit(socket).unwrap();
        }
        Ok(part) => return have_a_connection(part),
        Err(_) => {}
    }
    if is_skipped(TEST) {
        return;
    }
    let mut link = Link::new("deathboth", &[]);
    for guardian_first in [false, true] {
        soon(|| {
            let mut guardian = link.play(TEST, "guardian").spawn().unwrap();
            let mut said = BufReader::new(guardian.stdout.take().unwrap()).lines();
            let place = said.by_ref().map(Result::unwrap).find(|line| line.starts_with('@'));
            link.place = place.unwrap();
            let mut program = Program::start(&link, TEST, "six");
            let stream = connect(&link, end(OUR_V6, PORT));
            program.hear("has one");
            let mut victims = [&mut program.child, &mut guardian];
            if guardian_first {
                victims.reverse();
            }
            hear_of_deaths(stream, &mut victims)
        });
    }
}

#[test]
fn whoever_shares_the_port_does_not_get_the_answers_to_the_dead() {
    const TEST: &str = "death::whoever_shares_the_port_does_not_get_the_answers_to_the_dead";
    if let Ok(part) = std::env::var("UNCORK_TEST_PART") {
        return have_a_connection(&part);
    }
    if is_skipped(TEST) {
        return;
    }
    let link = Link::new("deathshared", &[]);
    soon(|| {
        let mut program = Program::start(&link, TEST, "shared");
        let stream = connect(&link, end(OURS, PORT));
        program.hear("has one");
        // Another process, which lives on and then has the whole port to itself.
        let mut other = link.client();
        let listener = link.ours.within(|| Ok(listen())).unwrap();
        other.own(listener.local_addr().unwrap(), listener.as_fd()).unwrap();
        hear_of_death(stream, program)
    });
}

#[test]
fn the_guardian_answers_while_the_connections_of_the_dead_are_looked_after() {
    const CONNECTIONS: u16 = 400;
    const TEST: &str =
        "death::the_guardian_answers_while_the_connections_of_the_dead_are_looked_after";
    if is_skipped(TEST) {
        return;
    }
    let link = Link::new("deathmany", &[]);
    let mut client = link.client();
    for number in 0..CONNECTIONS {
        let (local, remote) = (end(OURS, 20_000 + number), end(THEIRS, PORT));
        let bound = link.ours.within(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&local.into())?;
            Ok(socket)
        });
        client.own_connection(local, remote, bound.unwrap().as_fd()).unwrap();
        let _entry = client.connections().enter(local, remote).unwrap();
    }
    drop(client);
    // A dead process's entries are removed after two seconds; until then all must be looked at.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        drop(link.client());
        assert!(asked.elapsed() < SOON * 4, "it answers after {:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}
