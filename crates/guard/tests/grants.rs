//! What a program may have, what it may not and why, and which process then gets which packets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use uncork_driver::af_packet::Port;
use uncork_guard::{Error, devices};
use uncork_guardian::{Client, Error as Refusal, Place, look};
use uncork_netns::testing::{alone, is_skipped};
use uncork_stack::FastOpenKeys;

use crate::common::{
    LONG, Link, OUR_V6, OURS, SHORT, THEIRS, acknowledge, end, hosts, knock, knock_from, listen,
    open, refusal, seen,
};

const PORT: u16 = 7200;

#[test]
fn a_port_is_the_stacks_while_it_is_owned_and_its_owner_lives() {
    if is_skipped("a_port_is_the_stacks_while_it_is_owned_and_its_owner_lives") {
        return;
    }
    let link = Link::new("own", &[]);
    let any = listen(&link, end("::", PORT));
    let mut client = link.client();
    let device = &client.devices()[0];
    assert_eq!((device.name.as_str(), device.mtu), ("eth0", 1500));
    assert!(
        device
            .addresses
            .iter()
            .any(|address| address.ip == end(OURS, 0).ip() && address.prefix == 24)
    );
    let mut port = open(&mut client);
    assert_eq!(Some(client.devices()[0].mac), port.mac());
    assert_eq!(knock(&link, end(OURS, PORT)), Ok(()));
    // Owned twice, disowned once.
    client.own(end("::", PORT), any.as_fd()).unwrap();
    client.own(end("::", PORT), any.as_fd()).unwrap();
    client.disown(end("::", PORT)).unwrap();
    for ip in [OURS, OUR_V6] {
        assert_eq!(knock(&link, end(ip, PORT)), Err(ErrorKind::TimedOut), "{ip}");
    }
    assert!(!seen(std::slice::from_mut(&mut port), SHORT)[0].is_empty());
    // By loopback the port stays the kernel's.
    let to = end("127.0.0.1", PORT);
    link.ours.within(move || Ok(TcpStream::connect_timeout(&to, LONG)?)).unwrap();
    client.disown(end("::", PORT)).unwrap();
    assert_eq!(knock(&link, end(OURS, PORT)), Ok(()));
    assert_eq!(refusal(client.disown(end("::", PORT))), "[::]:7200 was not owned");
    // Ends without disowning it.
    client.own(end("::", PORT), any.as_fd()).unwrap();
    assert_eq!(knock(&link, end(OURS, PORT)), Err(ErrorKind::TimedOut));
    drop(client);
    let until = Instant::now() + LONG;
    while knock(&link, end(OURS, PORT)) != Ok(()) {
        assert!(Instant::now() < until, "the port is not given back");
    }
}

#[test]
fn a_connection_that_the_stack_opens_is_its_own_until_it_is_over() {
    if is_skipped("a_connection_that_the_stack_opens_is_its_own_until_it_is_over") {
        return;
    }
    let link = Link::new("open", &[]);
    let mut client = link.client();
    let mut port = open(&mut client);
    let (local, remote) = (end(OURS, 40_000), end(THEIRS, 4000));
    let bound = link.ours.within(move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&local.into())?;
        Ok(socket)
    });
    let bound = bound.unwrap();
    client.own_connection(local, remote, bound.as_fd()).unwrap();
    // A SYN comes from there, which the kernel would answer with a reset.
    knock_from(&link, &[4000, 4001], local);
    assert_eq!(seen(std::slice::from_mut(&mut port), SHORT)[0], [4000]);
    client.disown_connection(local, remote).unwrap();
    knock_from(&link, &[4000], local);
    assert_eq!(seen(std::slice::from_mut(&mut port), SHORT)[0], [] as [u16; 0]);
    let again = refusal(client.disown_connection(local, remote));
    assert!(again.starts_with("no connection from 10.93.0.1:40000"), "{again}");
    // A connection that the kernel has stays the kernel's.
    let there = link.theirs.within(move || Ok(TcpListener::bind(end(THEIRS, 0))?)).unwrap();
    let remote = there.local_addr().unwrap();
    bound.connect(&remote.into()).unwrap();
    let again = refusal(client.own_connection(local, remote, bound.as_fd()));
    assert!(again.starts_with("the kernel has a connection from 10.93.0.1:40000"), "{again}");
}

fn reserve(
    client: &mut Client,
    (from, remote): (IpAddr, SocketAddr),
    wanted: u16,
    socket: &Socket,
) -> Result<Vec<u16>, Refusal> {
    let asked = client.reserve(from, remote, wanted, socket.as_fd())?;
    client.reserved(asked)
}

#[test]
fn reserved_ports_are_the_programs_until_they_are_over() {
    if is_skipped("reserved_ports_are_the_programs_until_they_are_over") {
        return;
    }
    let link = Link::new("reserve", &[]);
    let mut client = link.client();
    let mut port = open(&mut client);
    let (from, remote) = (end(OURS, 0).ip(), end(THEIRS, 4000));
    let tcp = || Ok(Socket::new(Domain::IPV4, Type::STREAM, None)?);
    let socket = link.ours.within(tcp).unwrap();
    let ports = reserve(&mut client, (from, remote), 3, &socket).unwrap();
    assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 3);
    let takes = |port: u16| {
        let bound = link.ours.within(move || Ok(TcpListener::bind(end(OURS, port))?));
        bound.is_ok()
    };
    for local in &ports {
        assert!(!takes(*local), "{local} is not reserved");
        knock_from(&link, &[4000, 4001], end(OURS, *local));
        assert_eq!(seen(std::slice::from_mut(&mut port), SHORT)[0], [4000]);
    }
    // In TIME-WAIT the port is free, but the connection is not.
    let ends = |at: usize| (end(OURS, ports[at]), remote);
    client.over(&[ends(0)], &[ends(1)]).unwrap();
    client.settle().unwrap();
    assert_eq!(ports.iter().map(|port| takes(*port)).collect::<Vec<_>>(), [true, true, false]);
    for (at, theirs) in [(0, &[4000][..]), (1, &[]), (2, &[4000])] {
        knock_from(&link, &[4000], ends(at).0);
        assert_eq!(seen(std::slice::from_mut(&mut port), SHORT)[0], *theirs);
    }
    // No more are given at a time, and none for a socket of another namespace.
    let early = client.reserve(from, end(THEIRS, 4002), 2, socket.as_fd()).unwrap();
    let many = reserve(&mut client, (from, remote), 1000, &socket).unwrap();
    assert_eq!(many.len(), 64);
    // The answer that came while another was waited for.
    assert_eq!(client.reserved(early).unwrap().len(), 2);
    let elsewhere = link.theirs.within(tcp).unwrap();
    let refused = refusal(reserve(&mut client, (from, remote), 1, &elsewhere));
    assert!(refused.contains("of this network namespace"), "{refused}");
    let refused = refusal(reserve(&mut client, (remote.ip(), remote), 1, &socket));
    assert!(refused.ends_with("is on none of the stack's devices"), "{refused}");
    // Ends without a word: all are the kernel's again.
    drop(client);
    let until = Instant::now() + LONG;
    while !many.iter().all(|port| takes(*port)) {
        assert!(Instant::now() < until, "ports are not given back");
    }
}

#[test]
fn who_comes_from_where_the_kernel_is_in_time_wait_comes_to_the_stack() {
    if is_skipped("who_comes_from_where_the_kernel_is_in_time_wait_comes_to_the_stack") {
        return;
    }
    let link = Link::new("waits", &[]);
    let local = end(OURS, PORT);
    let listener = listen(&link, local);
    let connect = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&end(THEIRS, 4000).into())?;
        socket.connect(&local.into())?;
        Ok(socket)
    };
    let meet = || (link.theirs.within(connect).unwrap(), listener.accept().unwrap().0);
    // The side that closes first is in TIME-WAIT, before the port is owned …
    let (theirs, ours) = meet();
    drop(ours);
    drop(theirs);
    let mut client = link.client();
    let mut port = open(&mut client);
    client.own(local, listener.as_fd()).unwrap();
    let mut comes = || {
        knock_from(&link, &[4000], local);
        seen(std::slice::from_mut(&mut port), SHORT)[0].contains(&4000)
    };
    assert!(comes());
    // … or while it is.
    client.disown(local).unwrap();
    let (theirs, ours) = meet();
    client.own(local, listener.as_fd()).unwrap();
    assert!(!comes(), "as long as it lives it is the kernel's");
    drop(ours);
    drop(theirs);
    // A SYN that comes too early revives the TIME-WAIT entry.
    thread::sleep(Duration::from_secs(4));
    assert!(comes(), "it is the kernel's when it is over, too");
}

#[test]
fn the_kernels_old_connections_stay_the_kernels() {
    if is_skipped("the_kernels_old_connections_stay_the_kernels") {
        return;
    }
    let link = Link::new("old", &[]);
    let any = listen(&link, end("::", PORT));
    let mut streams = Vec::new();
    for ip in [OURS, OUR_V6] {
        let to = end(ip, PORT);
        let connect = move || Ok(TcpStream::connect_timeout(&to, LONG)?);
        streams.push((link.theirs.within(connect).unwrap(), any.accept().unwrap().0));
    }
    let mut talk = || {
        for (theirs, ours) in &mut streams {
            for stream in [&*theirs, &*ours] {
                stream.set_read_timeout(Some(SHORT)).unwrap();
            }
            theirs.write_all(b"ping").unwrap();
            ours.read_exact(&mut [0; 4]).unwrap();
            ours.write_all(b"pong").unwrap();
            theirs.read_exact(&mut [0; 4]).unwrap();
        }
    };
    let mut client = link.client();
    client.own(end("::", PORT), any.as_fd()).unwrap();
    talk();
    assert_eq!(knock(&link, end(OURS, PORT)), Err(ErrorKind::TimedOut));
    // Also after the guardian has looked whether they are over.
    thread::sleep(Duration::from_secs(3));
    talk();
}

#[test]
fn connections_stay_with_their_process_when_another_joins_or_leaves_its_port() {
    if is_skipped("connections_stay_with_their_process_when_another_joins_or_leaves_its_port") {
        return;
    }
    let link = Link::new("members", &[]);
    let listener = listen(&link, end(OURS, PORT));
    let local = listener.local_addr().unwrap();
    let remotes: Vec<u16> = (5000..5060).collect();
    let (mut first, mut second) = (link.client(), link.client());
    let mut ports = [open(&mut first), open(&mut second)];
    first.own(local, listener.as_fd()).unwrap();
    let entries: Vec<_> = remotes[..30]
        .iter()
        .map(|remote| first.connections().enter(local, end(THEIRS, *remote)).unwrap())
        .collect();
    // Entries for what was never granted have no effect.
    let foreign = (end(OURS, 22), end(THEIRS, 5000));
    let _ = first.connections().enter(foreign.0, foreign.1).unwrap();
    second.own(local, listener.as_fd()).unwrap();
    knock_from(&link, &remotes, local);
    let [of_first, of_second] = seen(&mut ports, SHORT).try_into().unwrap();
    assert!(remotes[..30].iter().all(|remote| of_first.contains(remote)), "{of_second:?}");
    assert!(of_second.len() >= 5, "nothing is shared: {of_second:?}");
    assert!(of_first.iter().all(|remote| !of_second.contains(remote)));
    assert_eq!(knock(&link, foreign.0), Err(ErrorKind::ConnectionRefused));
    // The first no longer owns the port, but its connections are its own until they are over.
    first.disown(local).unwrap();
    knock_from(&link, &remotes, local);
    let [of_first, of_second] = seen(&mut ports, SHORT).try_into().unwrap();
    let mut stayed = of_first.clone();
    stayed.sort_unstable();
    stayed.dedup();
    assert_eq!(stayed, remotes[..30]);
    assert!(remotes[30..].iter().all(|remote| of_second.contains(remote)));
    entries.into_iter().for_each(|entry| first.connections().remove(entry));
    let until = Instant::now() + LONG;
    loop {
        knock_from(&link, &remotes[..1], local);
        let [of_first, of_second] = seen(&mut ports, SHORT).try_into().unwrap();
        if of_first.is_empty() && !of_second.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "connections that are over are still the first's");
    }
}

#[test]
fn who_leaves_a_port_as_the_last_ends_the_handshakes_that_it_has_begun() {
    if is_skipped("who_leaves_a_port_as_the_last_ends_the_handshakes_that_it_has_begun") {
        return;
    }
    let link = Link::new("last", &[]);
    let listener = listen(&link, end(OURS, PORT));
    let local = listener.local_addr().unwrap();
    let mut client = link.client();
    let mut ports = [open(&mut client)];
    let mut are_seen = || seen(&mut ports, SHORT).concat();
    client.own(local, listener.as_fd()).unwrap();
    let remotes = [5000, 5001];
    knock_from(&link, &remotes, local);
    // They are in its ring, and in no table.
    client.disown(local).unwrap();
    remotes.iter().for_each(|remote| acknowledge(&link, *remote, local));
    let begun = are_seen();
    assert!(remotes.iter().all(|remote| begun.iter().filter(|one| *one == remote).count() == 2));
    // New connections are the kernel's, from whichever end; and the first keeps nothing that it had
    // before.
    knock_from(&link, &remotes[..1], local);
    acknowledge(&link, remotes[0], local);
    assert_eq!(knock(&link, local), Ok(()));
    assert_eq!(are_seen(), [0; 0]);
    // In the end all are the kernel's.
    let until = Instant::now() + LONG;
    loop {
        acknowledge(&link, remotes[1], local);
        if are_seen().is_empty() {
            return;
        }
        assert!(Instant::now() < until, "an old connection is still steered to who has left");
    }
}

/// A process that has a device open, and owns a port.
struct Process {
    client: Client,
    listener: TcpListener,
    socket: OwnedFd,
}

impl Process {
    fn begin(link: &Link, at: SocketAddr) -> (Self, Port) {
        let (mut client, listener) = (link.client(), listen(link, at));
        let handed = client.open(client.devices()[0].index).unwrap();
        let socket = handed.socket.try_clone().unwrap();
        client.own(at, listener.as_fd()).unwrap();
        (Self { client, listener, socket }, Port::adopt(handed).unwrap())
    }

    /// Returns whether the socket is in a fanout group, as its filter cannot be changed then.
    fn is_in_group(&self) -> bool {
        let attached = SockRef::from(&self.socket).attach_filter(&[SockFilter::new(6, 0, 0, 0)]);
        attached.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    fn end(self) {
        drop((self.client, self.listener, self.socket));
    }
}

#[test]
fn sockets_of_several_processes_are_a_group_and_each_gets_its_own_whoever_ends() {
    if is_skipped("sockets_of_several_processes_are_a_group_and_each_gets_its_own_whoever_ends") {
        return;
    }
    let link = Link::new("group", &[]);
    let at = |number: u16| end(OURS, PORT + number);
    let (mut processes, mut ports): (Vec<Process>, Vec<Port>) =
        (0..4).map(|number| Process::begin(&link, at(number))).unzip();
    assert!(processes.iter().all(Process::is_in_group));
    let mut remote = 4000;
    let mut each_gets_its_own = |numbers: &[u16], ports: &mut [Port]| {
        for number in numbers {
            remote += 1;
            knock_from(&link, &[remote], at(*number));
        }
        let first = remote + 1 - numbers.len() as u16;
        let expected: Vec<_> = (first..=remote).map(|remote| vec![remote]).collect();
        assert_eq!(seen(ports, SHORT), expected, "of {numbers:?}");
    };
    each_gets_its_own(&[0, 1, 2, 3], &mut ports);
    // From now on the last socket takes its place, whenever the kernel does that.
    processes.remove(1).end();
    drop(ports.remove(1));
    for _ in 0..3 {
        each_gets_its_own(&[0, 2, 3], &mut ports);
    }
    processes.drain(..2).for_each(Process::end);
    drop(ports.drain(..2));
    each_gets_its_own(&[3], &mut ports);
    processes.drain(..).for_each(Process::end);
    ports.clear();
    // All have left, and the next one begins a new group.
    let (alone, port) = Process::begin(&link, at(9));
    each_gets_its_own(&[9], &mut [port]);
    assert!(alone.is_in_group());
}

#[test]
fn what_waits_to_be_accepted_goes_to_another_who_listens_there() {
    if is_skipped("what_waits_to_be_accepted_goes_to_another_who_listens_there") {
        return;
    }
    let link = Link::new("passed", &[]);
    let listener = listen(&link, end("0.0.0.0", PORT));
    let (any, local) = (end("0.0.0.0", PORT), end(OURS, PORT));
    let mut clients = [link.client(), link.client(), link.client()];
    for client in &mut clients[..2] {
        client.own(any, listener.as_fd()).unwrap();
    }
    let [first, second, third] = &mut clients;
    // A connection of the kernel's, over loopback.
    let mut peer = link.ours.within(move || Ok(TcpStream::connect_timeout(&local, LONG)?)).unwrap();
    let (waiting, _) = listener.accept().unwrap();
    first.disown(any).unwrap();
    first.pass_on(local, waiting.as_fd()).unwrap();
    drop(waiting);
    // It arrives during another question; once, and at no other process.
    second.own(any, listener.as_fd()).unwrap();
    let (at, passed) = second.next_passed().unwrap();
    assert_eq!(at, local);
    peer.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    TcpStream::from(passed).read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    for client in [&mut *first, second, third] {
        client.check().unwrap();
        assert!(client.next_passed().is_none());
    }
    assert_eq!(refusal(third.pass_on(local, peer.as_fd())), "10.93.0.1:7200 was not owned");
    // Only a connection to that port can be passed on.
    let other = link.ours.within(|| Ok(TcpListener::bind(end(OURS, PORT + 1))?)).unwrap();
    let why = "what is to be accepted at 10.93.0.1:7200 has to be a connection to there";
    for socket in [peer.as_fd(), listener.as_fd(), other.as_fd()] {
        assert_eq!(refusal(second.pass_on(local, socket)), why);
    }
    // For a while no process owns the port.
    for _ in 0..2 {
        second.disown(any).unwrap();
    }
    let mut connected = || {
        let peer = link.ours.within(move || Ok(TcpStream::connect_timeout(&local, LONG)?)).unwrap();
        second.pass_on(local, listener.accept().unwrap().0.as_fd()).unwrap();
        peer
    };
    let mut peer = connected();
    third.own(any, listener.as_fd()).unwrap();
    let (_, passed) = third.next_passed().unwrap();
    peer.write_all(b"hello").unwrap();
    TcpStream::from(passed).read_exact(&mut heard).unwrap();
    third.disown(any).unwrap();
    // And in the end there is no listener any more.
    let mut peer = connected();
    peer.set_read_timeout(Some(LONG)).unwrap();
    drop(listener);
    assert_eq!(peer.read(&mut heard).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn who_does_not_know_the_token_gets_nothing_and_is_in_nobodys_way() {
    if is_skipped("who_does_not_know_the_token_gets_nothing_and_is_in_nobodys_way") {
        return;
    }
    let link = Link::new("token", &[]);
    let (name, _) = link.place.split_once(':').unwrap();
    let wrong = format!("{name}:{}", "0".repeat(32));
    let connect = move || Ok(Client::connect(&wrong).unwrap_err().to_string());
    let said = link.ours.within(connect).unwrap();
    assert_eq!(
        said,
        "the guardian serves only programs of its own: the token is not the right one"
    );
    // Many clients that say nothing at all.
    let name = name[1..].to_owned();
    let crowd = link.ours.within(move || {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let mut crowd = Vec::new();
        for _ in 0..300 {
            let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
            connect(&socket, &address)?;
            crowd.push(socket);
        }
        Ok(crowd)
    });
    let crowd = crowd.unwrap();
    assert_eq!(crowd.len(), 300);
    assert_eq!(link.client().devices().len(), 1);
    let place = link.place.clone();
    let gone = link.theirs.within(move || Ok(Client::connect(&place).unwrap_err())).unwrap();
    assert!(matches!(gone, Refusal::Gone), "{gone}");
}

#[test]
fn devices_that_will_not_do_are_told_with_what_would_mend_them() {
    if is_skipped("devices_that_will_not_do_are_told_with_what_would_mend_them") {
        return;
    }
    let _alone = alone();
    let (ours, _theirs) = hosts("devices");
    for kind in ["down", "bare", "link"] {
        ours.ip(&format!("link add {kind}0 type veth peer name {kind}1")).unwrap();
    }
    for device in ["bare0", "bare1"] {
        ours.set(&format!("ipv6/conf/{device}/disable_ipv6"), 1).unwrap();
        ours.ip(&format!("link set {device} up")).unwrap();
    }
    // With addresses that are valid on their own link only.
    for device in ["link0", "link1"] {
        ours.ip(&format!("address add fe80::1/64 dev {device} nodad")).unwrap();
        ours.ip(&format!("link set {device} up")).unwrap();
    }
    let find = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let find = move || {
            let found = devices::find(&names);
            Ok(found.map(|all| all.into_iter().map(|device| device.name).collect::<Vec<_>>()))
        };
        ours.within(find).unwrap()
    };
    assert_eq!(find(&[]).unwrap(), ["eth0"]);
    assert_eq!(find(&["eth0", "link0", "eth0"]).unwrap(), ["eth0", "link0"]);
    for (name, wanted) in [
        (
            "none0",
            "there is no network device none0 here: ip -brief link lists those that there are",
        ),
        ("down0", "the network device down0 is down: ip link set down0 up"),
        (
            "bare0",
            "the network device bare0 has no address: ip address add ADDRESS/PREFIX dev bare0",
        ),
        ("lo", "the network device lo is not an Ethernet one"),
    ] {
        let said = find(&[name]).unwrap_err().to_string();
        assert!(said.starts_with(wanted), "{said}");
    }
    ours.ip("link set eth0 down").unwrap();
    let error = find(&[]).unwrap_err();
    assert!(matches!(error, Error::NoDevices), "{error}");
}

#[test]
fn who_asks_what_a_stack_does_is_passed_on_to_its_program_if_he_knows_the_token() {
    if is_skipped("who_asks_what_a_stack_does_is_passed_on_to_its_program_if_he_knows_the_token") {
        return;
    }
    let link = Link::new("look", &[]);
    let place: Place = link.place.parse().unwrap();
    let name = place.name();
    let stranger: Place = format!("@{name}:{}", "0".repeat(32)).parse().unwrap();
    let (mut asker, told) = UnixStream::pair().unwrap();
    let look_at = |place: Place, pids: Vec<u32>| {
        let told = told.try_clone().unwrap();
        link.ours.within(move || Ok(look(&place, pids, told.as_fd()))).unwrap()
    };
    let nobody = refusal(look_at(place.clone(), vec![1]));
    assert!(nobody.starts_with("no process of the program has waited"), "{nobody}");
    let mut client = link.client();
    let own = std::process::id();
    let other = refusal(look_at(place.clone(), vec![1]));
    assert!(other.ends_with(&format!("these with the same guardian have: {own}")), "{other}");
    let wrong = refusal(look_at(stranger, vec![own]));
    assert!(wrong.ends_with("the token is not the right one"), "{wrong}");
    assert!(client.next_asker().is_none());
    // Also by the number that another namespace has for it; and amid other answers.
    look_at(place, vec![4_000_000, own]).unwrap();
    let _ = client.open(client.devices()[0].index).unwrap();
    let mut stream = UnixStream::from(client.next_asker().unwrap());
    stream.write_all(b"told").unwrap();
    drop((stream, told));
    let mut heard = String::new();
    asker.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "told");
}

#[test]
fn who_connects_from_where_the_dead_had_a_connection_comes_to_the_living() {
    if is_skipped("who_connects_from_where_the_dead_had_a_connection_comes_to_the_living") {
        return;
    }
    let link = Link::new("pinned", &[]);
    let listener = listen(&link, end("::", PORT));
    let (mut dies, mut lives) = (link.client(), link.client());
    let _rings = open(&mut dies);
    let mut port = open(&mut lives);
    let (local, remote) = (end(OURS, PORT), end(THEIRS, 41_000));
    dies.own(end("::", PORT), listener.as_fd()).unwrap();
    let entry = dies.connections().enter(local, remote).unwrap();
    // The first keeps what it has, and that ends when it dies without a word.
    lives.own(end("::", PORT), listener.as_fd()).unwrap();
    dies.connections().remove(entry);
    drop(dies);
    let until = Instant::now() + LONG;
    loop {
        knock_from(&link, &[remote.port()], local);
        if seen(std::slice::from_mut(&mut port), SHORT)[0].contains(&remote.port()) {
            break;
        }
        assert!(Instant::now() < until, "what it sends comes to nobody");
    }
}

#[test]
fn a_segment_is_brought_to_a_connection_of_the_one_who_brings_it_only() {
    if is_skipped("a_segment_is_brought_to_a_connection_of_the_one_who_brings_it_only") {
        return;
    }
    let link = Link::new("bring", &[]);
    let listener = listen(&link, end(OURS, PORT));
    let mut client = link.client();
    let at = end(OURS, PORT);
    let peer = link.theirs.within(move || Ok(TcpStream::connect(at)?)).unwrap();
    let (accepted, remote) = listener.accept().unwrap();
    // It has no effect: the sequence number is far away.
    let segment = [0; 20];
    client.bring(at, remote, &segment, accepted.as_fd()).unwrap();
    let mapped = match remote.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port()),
        other => SocketAddr::new(other, remote.port()),
    };
    client.bring(at, mapped, &segment, accepted.as_fd()).unwrap();
    let other = SocketAddr::new(remote.ip(), remote.port() ^ 1);
    let why = refusal(client.bring(at, other, &segment, accepted.as_fd()));
    assert!(why.contains("has to come from"), "{why}");
    let why = refusal(client.bring(at, remote, &segment, listener.as_fd()));
    assert!(why.contains("has to be a connection"), "{why}");
    let loopback = end("127.0.0.1", PORT);
    let why = refusal(client.bring(loopback, remote, &segment, accepted.as_fd()));
    assert!(why.contains("none of the stack's devices"), "{why}");
    drop(peer);
}

#[test]
fn cookies_that_one_process_gives_another_takes_and_neither_knows_the_hosts_key() {
    const NAME: &str =
        "cookies_that_one_process_gives_another_takes_and_neither_knows_the_hosts_key";
    const KEY: &str = "00112233-44556677-8899aabb-ccddeeff";
    if is_skipped(NAME) {
        return;
    }
    let link = Link::new("cookies", &[]);
    let mut one = link.client();
    // The kernel makes a key for the first listener that wants one.
    assert_eq!(refusal(one.fast_open_keys()), "the host has no key of TCP Fast Open");
    let set = || Ok(std::fs::write("/proc/sys/net/ipv4/tcp_fastopen_key", KEY)?);
    link.ours.within(set).unwrap();
    let keys = one.fast_open_keys().unwrap();
    assert_eq!(link.client().fast_open_keys().unwrap(), keys);
    assert_ne!(FastOpenKeys::of_sysctl(KEY), Some(keys));
}
