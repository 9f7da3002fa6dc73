//! One address, one port, and several that have parts of it: the kernel and more than one stack.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use uncork_bpf::owned::{Engine, Error, Ours, Owned, Protocol, Settings, Sharing, Whence};
use uncork_driver::Driver as _;
use uncork_driver::af_packet::Port;

use crate::common::engines::{Engines, attach, engine};
use crate::common::{KERNELS, LONG, Link, OURS, skipped};

const PORT: u16 = 7000;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((OURS, port))
}

/// Opens a port for each of the engines on our end, whose kernel has an address.
fn open(label: &str, engines: u32) -> (Link, Owned, Vec<Port>) {
    let link = Link::new(label).with_address();
    link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    let settings = Settings { ethernet: true, neighbours: false };
    let owned = link.ours.within(move || Ok(Owned::load(settings)?)).unwrap();
    let (mut opens, mut ports) = (Engines::default(), Vec::new());
    for number in 1..=engines {
        let (_, handed) = opens.open(&link.ours, &owned, engine(number), number);
        ports.push(Port::adopt(handed).unwrap());
    }
    let owned = attach(&link.ours, owned, ports[0].index());
    (link, owned, ports)
}

/// Shares the port among these engines from now on, for every remote.
fn share(
    owned: &Owned,
    protocol: Protocol,
    engines: &[Engine],
    sharing: Sharing,
) -> Result<(), Error> {
    owned.share(protocol, at(PORT), Whence::Anywhere, engines, sharing)
}

/// Receives `wanted` datagrams; returns for each port how many came from each remote port.
fn came(ports: &mut [Port], wanted: usize) -> Vec<BTreeMap<u16, usize>> {
    let mut came = vec![BTreeMap::new(); ports.len()];
    let end = Instant::now() + LONG;
    let mut sum = 0;
    while sum < wanted {
        for (port, came) in ports.iter_mut().zip(&mut came) {
            let each = &mut |frame: uncork_packet::Received<'_>| {
                let from = u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]);
                *came.entry(from).or_default() += 1;
                sum += 1;
            };
            port.receive(64, each).unwrap();
        }
        assert!(Instant::now() < end, "{sum} of {wanted} datagrams came");
    }
    came
}

#[test]
fn what_the_kernel_had_before_stays_the_kernels() {
    if skipped("what_the_kernel_had_before_stays_the_kernels") {
        return;
    }
    let (link, owned, _ports) = open("keep", 1);
    let listener = link.ours.within(|| Ok(TcpListener::bind(at(PORT))?)).unwrap();
    let connect = || Ok(TcpStream::connect(at(PORT))?);
    let mut client = link.kernels.within(connect).unwrap();
    let (mut server, remote) = listener.accept().unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut talk = || -> std::io::Result<()> {
        client.write_all(b"ping")?;
        server.read_exact(&mut [0; 4])?;
        server.write_all(b"pong")?;
        client.read_exact(&mut [0; 4])
    };
    talk().unwrap();
    owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    owned.keep(Protocol::Tcp, at(PORT), remote).unwrap();
    talk().unwrap();
    let connect = || {
        let connect = TcpStream::connect_timeout(&at(PORT), Duration::from_millis(200));
        Ok(connect.unwrap_err().kind())
    };
    let kind = link.kernels.within(connect).unwrap();
    assert_eq!(kind, std::io::ErrorKind::TimedOut, "new ones are the stack's");
    // Otherwise this test could not fail.
    owned.disown(Ours::Connection(Protocol::Tcp, at(PORT), remote)).unwrap();
    talk().unwrap_err();
}

#[test]
fn a_shared_port_gives_each_connection_to_one_engine_and_always_the_same() {
    if skipped("a_shared_port_gives_each_connection_to_one_engine_and_always_the_same") {
        return;
    }
    const REMOTES: usize = 60;
    let (link, owned, mut ports) = open("share", 3);
    let udp = Protocol::Udp;
    share(&owned, udp, &[engine(1), engine(2), engine(3)], Sharing::Shared).unwrap();
    let bind = || {
        (0..REMOTES).map(|_| Ok(UdpSocket::bind((KERNELS, 0))?)).collect::<anyhow::Result<Vec<_>>>()
    };
    let sockets = link.kernels.within(bind).unwrap();
    let send = |times: usize| {
        for socket in &sockets {
            for _ in 0..times {
                socket.send_to(b"hello", at(PORT)).unwrap();
            }
        }
    };
    send(3);
    let before = came(&mut ports, 3 * REMOTES);
    for came in &before {
        assert!((5..40).contains(&came.len()), "{before:?}");
        assert!(came.values().all(|count| *count == 3), "divided: {before:?}");
    }
    // Whatever the members, an owned connection stays; nothing else comes to an engine that has
    // gone.
    let stays = *before[0].keys().next().unwrap();
    let remote = SocketAddr::from((KERNELS, stays));
    owned.own_as(engine(1), Ours::Connection(udp, at(PORT), remote)).unwrap();
    share(&owned, udp, &[engine(3), engine(2)], Sharing::Shared).unwrap();
    send(1);
    let after = came(&mut ports, REMOTES);
    assert_eq!(after[0], BTreeMap::from([(stays, 1)]));
    assert_eq!(after[1].len() + after[2].len(), REMOTES - 1);
    assert!(after[1..].iter().all(|came| came.len() > 10), "{after:?}");
    // Without an engine the port is the kernel's.
    share(&owned, udp, &[], Sharing::Shared).unwrap();
    let refused = || {
        let socket = UdpSocket::bind((KERNELS, 0))?;
        socket.connect(at(PORT))?;
        socket.set_read_timeout(Some(LONG))?;
        socket.send(b"is anybody there")?;
        Ok(socket.recv(&mut [0; 9]).unwrap_err().kind())
    };
    let kind = link.kernels.within(refused).unwrap();
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_had_a_ports_connection_when_it_began_has_it_when_the_engines_change() {
    if skipped("who_had_a_ports_connection_when_it_began_has_it_when_the_engines_change") {
        return;
    }
    const REMOTES: usize = 40;
    let (link, owned, mut ports) = open("begun", 3);
    let share = |engines: &[u32], sharing| {
        let engines: Vec<_> = engines.iter().copied().map(engine).collect();
        share(&owned, Protocol::Tcp, &engines, sharing).unwrap();
    };
    share(&[1, 2, 3], Sharing::Shared);
    for number in [2, 3] {
        owned.stand(Protocol::Tcp, at(PORT), engine(number), true).unwrap();
    }
    let link = &link;
    thread::scope(|scope| {
        // There is no answer: each sends its SYN again after a second, and then again.
        for _ in 0..REMOTES {
            let patience = Duration::from_secs(4);
            let connect = move || Ok(TcpStream::connect_timeout(&at(PORT), patience).is_err());
            scope.spawn(move || link.kernels.within(connect).unwrap());
        }
        let first = came(&mut ports, REMOTES);
        share(&[3, 2], Sharing::Changed);
        let second = came(&mut ports, REMOTES);
        assert!(second[0].is_empty(), "who has gone gets no SYN: {second:?}");
        for at in [1, 2] {
            assert!(first[at].len() > 4, "{first:?}");
            let stay = |port: &u16| second[at].contains_key(port);
            assert!(first[at].keys().all(stay), "{first:?} became {second:?}");
        }
        // In the end the engines count that have the port.
        share(&[1, 2, 3], Sharing::Shared);
        assert_eq!(came(&mut ports, REMOTES), first);
    });
}

#[test]
fn a_port_takes_so_many_engines_and_no_more() {
    if skipped("a_port_takes_so_many_engines_and_no_more") {
        return;
    }
    let owned = Owned::load(Settings { ethernet: true, neighbours: false }).unwrap();
    let engines: Vec<_> = (1..=65).map(engine).collect();
    share(&owned, Protocol::Tcp, &engines[..Engine::MOST], Sharing::Shared).unwrap();
    let error = share(&owned, Protocol::Tcp, &engines, Sharing::Shared).unwrap_err();
    assert!(matches!(error, Error::Full), "{error}");
}

#[test]
fn a_stack_has_what_nobody_answers_for_any_more() {
    if skipped("a_stack_has_what_nobody_answers_for_any_more") {
        return;
    }
    let (link, owned, mut ports) = open("orphan", 1);
    let _listener = link.ours.within(|| Ok(TcpListener::bind(at(PORT))?)).unwrap();
    owned.own(Ours::Port(Protocol::Tcp, at(PORT))).unwrap();
    let mut knock = || {
        let short = Duration::from_millis(200);
        let connect = move || Ok(TcpStream::connect_timeout(&at(PORT), short).is_ok());
        let by_kernel = link.kernels.within(connect).unwrap();
        let mut frames = 0;
        ports[0].receive(64, &mut |_| frames += 1).unwrap();
        (by_kernel, frames > 0)
    };
    let (by_kernel, by_stack) = (true, true);
    assert_eq!(knock(), (!by_kernel, by_stack), "nobody has said that he answers for it");
    let ends = || {
        drop(owned.answer_for().unwrap());
        assert_eq!(knock(), (by_kernel, !by_stack), "he has given it back");
        let answering = owned.answer_for().unwrap();
        assert_eq!(knock(), (!by_kernel, by_stack), "he answers for it");
        std::mem::forget(answering);
    };
    // Otherwise the closure's end would be waited for, not the thread's.
    thread::scope(|scope| scope.spawn(ends).join()).unwrap();
    // The filters are as they were.
    assert_eq!(knock(), (by_kernel, !by_stack), "he has ended");
}
