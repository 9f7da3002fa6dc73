//! Programs that are attached to instances: what they are granted is their instance's, and in what
//! order the instance is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::collections::HashSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Socket, Type};
use uncork_guardian::{Client, Word};
use uncork_netns::testing::is_skipped;
use uncork_stack::{Snapshot, SnapshotState};

use crate::common::{
    LONG, Link, OURS, SHORT, THEIRS, acknowledge, end, knock, knock_from, open, refusal, seen,
};

const PORT: u16 = 7400;
const UNKNOWN: &str =
    "the guardian serves only programs of its own: the token is not the right one";

fn listen(link: &Link, at: SocketAddr) -> TcpListener {
    let listen = move || {
        let domain = if at.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())?;
        socket.listen(8)?;
        Ok(TcpListener::from(socket))
    };
    link.ours.within(listen).unwrap()
}

/// Makes a kernel's socket that is bound there.
fn bind(link: &Link, at: SocketAddr) -> Socket {
    let bind = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        Ok(socket)
    };
    link.ours.within(bind).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the next word to an instance, as a line, with a new guest's socket.
fn next(instance: &mut Client) -> (String, Option<OwnedFd>) {
    let mut word = None;
    until("nothing is said to the instance", || {
        instance.check().unwrap();
        word = instance.next_word();
        word.is_some()
    });
    match word.unwrap() {
        Word::Guest { program, pid, uid, socket } => {
            assert_eq!(pid, Some(std::process::id()));
            assert_eq!(uid, Some(rustix::process::geteuid().as_raw()));
            (format!("guest {program}"), Some(socket))
        }
        Word::Granted { program, local } => (format!("granted {program} {local}"), None),
        Word::Revoked { program, local } => (format!("revoked {program} {local}"), None),
        Word::GrantedConnection { program, local, remote } => {
            (format!("connection {program} {local} {remote}"), None)
        }
        Word::RevokedConnection { program, local, remote } => {
            (format!("no connection {program} {local} {remote}"), None)
        }
    }
}

fn hear(instance: &mut Client) -> String {
    next(instance).0
}

/// Returns all that was said to an instance by now.
fn heard(instance: &mut Client) -> Vec<String> {
    instance.check().unwrap();
    let mut all = Vec::new();
    while let Some(word) = instance.next_word() {
        all.push(format!("{word:?}"));
    }
    all
}

/// A program that is attached, with its number and both ends of the socket pair made for it.
struct Guest {
    client: Client,
    program: u32,
    own: OwnedFd,
    instances: OwnedFd,
}

fn attach(link: &Link, instance: &mut Client, wanted: u32) -> Guest {
    let mut client = link.client();
    assert!(client.attaches());
    let (number, own) = client.attach(Some(wanted)).unwrap();
    assert_eq!(number, wanted);
    let (said, instances) = next(instance);
    let program = said.strip_prefix("guest ").unwrap().parse().unwrap();
    Guest { client, program, own, instances: instances.unwrap() }
}

fn snapshot((local, remote): (SocketAddr, SocketAddr)) -> Snapshot {
    Snapshot {
        local,
        remote,
        state: SnapshotState::Established,
        fin_sent: false,
        reading_shut: false,
        send_first: 1,
        unacknowledged_bytes: 0,
        unsent_bytes: 0,
        receive_first: 1,
        unread_bytes: 0,
        window_seq: 1,
        send_window_bytes: 1000,
        largest_send_window_bytes: 1000,
        acknowledged: 1,
        receive_window_bytes: 1000,
        segment_bytes: 1000,
        window_shifts: None,
        sack: false,
        timestamp: None,
    }
}

#[test]
fn a_program_is_brought_together_with_the_instance_that_has_the_fewest() {
    if is_skipped("a_program_is_brought_together_with_the_instance_that_has_the_fewest") {
        return;
    }
    let link = Link::with_instances("attach", &[], 2);
    let mut early = link.client();
    assert_eq!(refusal(early.attach(None)), "no instance of the stack is up");
    let (mut first, mut second) = (link.instance(0), link.instance(1));
    assert!(!first.attaches());
    let one = attach(&link, &mut first, 0);
    let two = attach(&link, &mut second, 1);
    assert_ne!(one.program, two.program);
    // The two ends form one pair, which no other program shares.
    for (from, to) in [(&one.own, &one.instances), (&one.instances, &one.own)] {
        send(from, b"hello", SendFlags::empty()).unwrap();
        let mut said = [0; 8];
        let (bytes, _) = recv(to, &mut said[..], RecvFlags::empty()).unwrap();
        assert_eq!(&said[..bytes], b"hello");
    }
    drop(one.own);
    assert_eq!(recv(&one.instances, &mut [0; 8][..], RecvFlags::empty()).unwrap().0, 0);
    // One each by now, all of one process, whose threads they might be: first the lower number,
    // then the other.
    let mut others: Vec<_> = (0..4).map(|_| link.client()).collect();
    let chosen: Vec<_> = others.iter_mut().map(|client| client.attach(None).unwrap().0).collect();
    assert_eq!(chosen, [0, 1, 0, 1]);
    drop((one.client, others.remove(0), others.remove(1)));
    until("the dead count", || link.client().attach(None).unwrap().0 == 0);
    assert_eq!(refusal(early.attach(Some(7))), "no instance 7 of the stack is up, of these: 0, 1");
    assert_eq!(early.attach(Some(1)).unwrap().0, 1);
    assert_eq!(
        refusal(early.attach(Some(0))),
        "that is for the instance to which the process is attached"
    );
}

#[test]
fn only_who_was_given_its_token_is_an_instance() {
    if is_skipped("only_who_was_given_its_token_is_an_instance") {
        return;
    }
    let link = Link::with_instances("servetoken", &[], 1);
    let serve = |place: &str, token: &str| {
        let (place, token) = (place.to_owned(), token.to_owned());
        link.ours.within(move || Ok(Client::serve(&place, &token))).unwrap()
    };
    // The programs' token is another.
    let (_, of_programs) = link.place.split_once(':').unwrap();
    for wrong in [of_programs, "", &"0".repeat(32)] {
        assert_eq!(refusal(serve(&link.place, wrong)), UNKNOWN);
    }
    let (name, _) = link.place.split_once(':').unwrap();
    let as_program = format!("{name}:{}", link.tokens[0]);
    let connect = move || Ok(Client::connect(&as_program));
    assert_eq!(refusal(link.ours.within(connect).unwrap()), UNKNOWN);
    let instance = link.instance(0);
    assert_eq!(
        refusal(serve(&link.place, &link.tokens[0])),
        "instance 0 of the stack is there already"
    );
    drop(instance);
    let mut instance = link.instance(0);
    // An instance is no program, and a program is no instance.
    let listener = listen(&link, end(OURS, PORT));
    let why = "that is for programs, not for an instance";
    assert_eq!(refusal(instance.own(end(OURS, PORT), listener.as_fd())), why);
    assert_eq!(refusal(instance.attach(None)), why);
    let mut program = link.client();
    let why = "the process is attached to no instance of the stack";
    assert_eq!(refusal(program.own(end(OURS, PORT), listener.as_fd())), why);
    assert_eq!(refusal(program.open(program.devices()[0].index)), why);
    let mut guest = attach(&link, &mut instance, 0);
    let why = "that is for the instance to which the process is attached";
    assert_eq!(refusal(guest.client.open(guest.client.devices()[0].index)), why);
    let ends = (end(OURS, PORT), end(THEIRS, 4000));
    assert_eq!(refusal(guest.client.give(guest.program, ends.0, ends.1)), why);
    assert_eq!(refusal(guest.client.disown_connection(ends.0, ends.1)), why);
}

#[test]
fn nobody_is_an_instance_where_there_are_none() {
    if is_skipped("nobody_is_an_instance_where_there_are_none") {
        return;
    }
    let link = Link::new("servenone", &[]);
    let place = link.place.clone();
    let serve = move || Ok(Client::serve(&place, &"0".repeat(32)));
    assert_eq!(refusal(link.ours.within(serve).unwrap()), UNKNOWN);
    let mut program = link.client();
    assert!(!program.attaches());
    assert_eq!(
        refusal(program.attach(None)),
        "there are no instances here: start them with uncork stack start"
    );
}

#[test]
fn an_instance_hears_what_its_programs_were_granted_before_they_do() {
    if is_skipped("an_instance_hears_what_its_programs_were_granted_before_they_do") {
        return;
    }
    let link = Link::with_instances("granted", &[], 1);
    let mut instance = link.instance(0);
    let mut port = open(&mut instance);
    let Guest { mut client, program, .. } = attach(&link, &mut instance, 0);
    let listener = listen(&link, end("::", PORT));
    let (any, local) = (end("::", PORT), end(OURS, PORT));
    let (from, to) = (end(OURS, 40_000), end(THEIRS, 4000));
    assert_eq!(knock(&link, local), Ok(()));
    client.own(any, listener.as_fd()).unwrap();
    client.own_connection(from, to, bind(&link, from).as_fd()).unwrap();
    client.disown(any).unwrap();
    client.own(local, listener.as_fd()).unwrap();
    // All words are there by now, in the order of the calls.
    instance.check().unwrap();
    let said: Vec<_> = (0..4).map(|_| hear(&mut instance)).collect();
    assert_eq!(
        said,
        [
            format!("granted {program} {any}"),
            format!("connection {program} {from} {to}"),
            format!("revoked {program} {any}"),
            format!("granted {program} {local}"),
        ]
    );
    // Frames for that port come to the instance.
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut));
    assert!(!seen(std::slice::from_mut(&mut port), SHORT)[0].is_empty());
    // A word that arrives during a question of the instance's own.
    let (again, to) = (end(OURS, 40_001), end(THEIRS, 4001));
    client.own_connection(again, to, bind(&link, again).as_fd()).unwrap();
    instance.disown_connection(from, end(THEIRS, 4000)).unwrap();
    assert_eq!(hear(&mut instance), format!("connection {program} {again} {to}"));
    // A refused request is not told to the instance.
    let why = refusal(client.own(end(OURS, PORT + 1), listener.as_fd()));
    assert!(why.ends_with("what came is bound to [::]:7400"), "{why}");
    assert_eq!(heard(&mut instance), Vec::<String>::new());
}

#[test]
fn reserved_ports_are_the_instances_until_it_says_that_they_are_over() {
    if is_skipped("reserved_ports_are_the_instances_until_it_says_that_they_are_over") {
        return;
    }
    let link = Link::with_instances("reserved", &[], 1);
    let mut instance = link.instance(0);
    let mut port = open(&mut instance);
    let mut guest = attach(&link, &mut instance, 0);
    let socket = link.ours.within(|| Ok(Socket::new(Domain::IPV4, Type::STREAM, None)?)).unwrap();
    let (from, remote) = (end(OURS, 0).ip(), end(THEIRS, 4000));
    let asked = guest.client.reserve(from, remote, 3, socket.as_fd()).unwrap();
    let ports = guest.client.reserved(asked).unwrap();
    let ends: Vec<_> = ports.iter().map(|port| (end(OURS, *port), remote)).collect();
    // The instance is told of them before the program is.
    let named =
        |ends: &(SocketAddr, SocketAddr)| format!("{} {} {}", guest.program, ends.0, ends.1);
    for ends in &ends {
        assert_eq!(hear(&mut instance), format!("connection {}", named(ends)));
    }
    let takes = |at: usize| {
        let local = ends[at].0;
        link.ours.within(move || Ok(TcpListener::bind(local)?)).is_ok()
    };
    let mut comes = |at: usize| {
        knock_from(&link, &[4000], ends[at].0);
        !seen(std::slice::from_mut(&mut port), SHORT)[0].is_empty()
    };
    // The program gives one of them up, and also names one that it never had.
    let strange = (end(OURS, 1), remote);
    guest.client.over(&[ends[1]], &[ends[0], strange]).unwrap();
    assert_eq!(hear(&mut instance), format!("no connection {}", named(&ends[0])));
    assert!(!takes(0) && !takes(1) && comes(0), "that is the instance's to say");
    instance.over(&[ends[1]], &[ends[0]]).unwrap();
    until("the port of what is over is free", || takes(0));
    assert!(takes(1) && !takes(2));
    assert!(!comes(0) && comes(1) && comes(2));
    // They stay when the program is gone, and end with the instance.
    drop((guest.client, guest.own));
    thread::sleep(SHORT);
    assert!(!takes(2) && comes(2));
    drop(instance);
    until("all ports are free", || takes(2));
}

#[test]
fn a_port_of_two_programs_of_one_instance_stays_when_one_of_them_leaves() {
    if is_skipped("a_port_of_two_programs_of_one_instance_stays_when_one_of_them_leaves") {
        return;
    }
    let link = Link::with_instances("workers", &[], 2);
    let (mut first, mut second) = (link.instance(0), link.instance(1));
    let mut ports = [open(&mut first), open(&mut second)];
    let local = end(OURS, PORT);
    let listeners = [0, 1, 2].map(|_| listen(&link, local));
    let mut one = attach(&link, &mut first, 0);
    let mut other = attach(&link, &mut first, 0);
    let mut elsewhere = attach(&link, &mut second, 1);
    one.client.own(local, listeners[0].as_fd()).unwrap();
    other.client.own(local, listeners[1].as_fd()).unwrap();
    elsewhere.client.own(local, listeners[2].as_fd()).unwrap();
    let mut both = [HashSet::new(), HashSet::new()];
    for first in [5000, 5200, 5400] {
        knock_from(&link, &(first..first + 200).collect::<Vec<_>>(), local);
        for (all, came) in both.iter_mut().zip(seen(&mut ports, SHORT)) {
            all.extend(came);
        }
    }
    assert!(both[0].is_disjoint(&both[1]));
    // Each instance counts once, whatever the number of its programs: half of the connections, not
    // two thirds.
    let counts = both.map(|all| all.len());
    assert!(counts.iter().all(|count| (240..=360).contains(count)), "{counts:?}");
    let remotes: Vec<u16> = (5000..5060).collect();
    // One of two disowns the port, or just ends: the instance keeps it for the other.
    one.client.disown(local).unwrap();
    drop(elsewhere);
    until("the port is still the other instance's", || {
        knock_from(&link, &remotes, local);
        let both = seen(&mut ports, SHORT);
        remotes.iter().all(|remote| both[0].contains(remote)) && both[1].is_empty()
    });
    let said: Vec<_> = (0..3).map(|_| hear(&mut first)).collect();
    let (one_is, other_is) = (one.program, other.program);
    assert_eq!(
        said,
        [
            format!("granted {one_is} {local}"),
            format!("granted {other_is} {local}"),
            format!("revoked {one_is} {local}"),
        ]
    );
    drop(other);
    assert_eq!(hear(&mut first), format!("revoked {other_is} {local}"));
    // No one owns it any more: it is the kernel's.
    until("the port is not given back", || knock(&link, local) == Ok(()));
}

#[test]
fn an_instance_hears_that_a_program_has_closed_the_kernels_socket_without_a_word() {
    if is_skipped("an_instance_hears_that_a_program_has_closed_the_kernels_socket_without_a_word") {
        return;
    }
    let link = Link::with_instances("stale", &[], 1);
    let mut instance = link.instance(0);
    let _port = open(&mut instance);
    let local = end(OURS, PORT);
    let mut one = attach(&link, &mut instance, 0);
    let mut other = attach(&link, &mut instance, 0);
    let listener = listen(&link, local);
    // As often as it is granted it is revoked: the instance counts.
    for _ in 0..2 {
        one.client.own(local, listener.as_fd()).unwrap();
    }
    drop(listener);
    let listener = listen(&link, local);
    other.client.own(local, listener.as_fd()).unwrap();
    let (one_is, other_is) = (one.program, other.program);
    let said: Vec<_> = (0..5).map(|_| hear(&mut instance)).collect();
    assert_eq!(
        said,
        [
            format!("granted {one_is} {local}"),
            format!("granted {one_is} {local}"),
            format!("revoked {one_is} {local}"),
            format!("revoked {one_is} {local}"),
            format!("granted {other_is} {local}"),
        ]
    );
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut), "it is still the stack's");
}

#[test]
fn a_program_makes_the_kernels_only_what_its_instance_gives_it() {
    if is_skipped("a_program_makes_the_kernels_only_what_its_instance_gives_it") {
        return;
    }
    let link = Link::with_instances("give", &[], 2);
    let (mut first, mut second) = (link.instance(0), link.instance(1));
    let mut guest = attach(&link, &mut first, 0);
    let mut neighbour = attach(&link, &mut first, 0);
    let mut stranger = attach(&link, &mut second, 1);
    let ends = (end(OURS, PORT), end(THEIRS, 4000));
    let snapshot = snapshot(ends);
    let listener = listen(&link, ends.0);
    guest.client.own(ends.0, listener.as_fd()).unwrap();
    let not_owned = "no connection from 10.93.0.1:7400 to 10.93.0.2:4000 was owned";
    let take_over = |guest: &mut Guest| guest.client.take_over(&snapshot, None, false);
    // To own the port is not enough.
    assert_eq!(refusal(take_over(&mut guest)), not_owned);
    // Given by an instance without that connection, or to a program that is not its own.
    assert_eq!(refusal(second.give(stranger.program, ends.0, ends.1)), not_owned);
    let why = "no program of that number is attached to this instance";
    assert_eq!(refusal(first.give(stranger.program, ends.0, ends.1)), why);
    assert_eq!(refusal(first.give(4711, ends.0, ends.1)), why);
    first.give(guest.program, ends.0, ends.1).unwrap();
    for other in [&mut neighbour, &mut stranger] {
        assert_eq!(refusal(take_over(other)), not_owned);
    }
    let _taken = take_over(&mut guest).unwrap();
    // Only once, and it is the kernel's now.
    assert_eq!(refusal(take_over(&mut guest)), not_owned);
    assert_eq!(refusal(first.give(guest.program, ends.0, ends.1)), not_owned);
    // A connection that it has opened is over, and then there is none to be given away.
    let ends = (end(OURS, 40_000), end(THEIRS, 4001));
    let bound = bind(&link, ends.0);
    guest.client.own_connection(ends.0, ends.1, bound.as_fd()).unwrap();
    let why = refusal(neighbour.client.own_connection(ends.0, ends.1, bound.as_fd()));
    assert_eq!(why, "another process has a connection from 10.93.0.1:40000 to 10.93.0.2:4001");
    first.give(guest.program, ends.0, ends.1).unwrap();
    first.disown_connection(ends.0, ends.1).unwrap();
    let why = "no connection from 10.93.0.1:40000 to 10.93.0.2:4001 was owned";
    assert_eq!(refusal(first.give(guest.program, ends.0, ends.1)), why);
    let snapshot = self::snapshot(ends);
    assert_eq!(refusal(guest.client.take_over(&snapshot, None, false)), why);
}

#[test]
fn what_the_kernel_did_not_take_is_nobodys_and_its_port_free() {
    if is_skipped("what_the_kernel_did_not_take_is_nobodys_and_its_port_free") {
        return;
    }
    let link = Link::with_instances("untaken", &[], 1);
    let mut instance = link.instance(0);
    let mut guest = attach(&link, &mut instance, 0);
    let mut neighbour = attach(&link, &mut instance, 0);
    let (local, other_end) = (end(OURS, 40_000), end(OURS, 40_001));
    let remote = end(THEIRS, 4000);
    let (bound, other) = (bind(&link, local), bind(&link, other_end));
    guest.client.own_connection(local, remote, bound.as_fd()).unwrap();
    guest.client.own_connection(other_end, remote, other.as_fd()).unwrap();
    // The program says that it is over.
    instance.give(guest.program, local, remote).unwrap();
    guest.client.over(&[], &[(local, remote)]).unwrap();
    guest.client.settle().unwrap();
    neighbour.client.own_connection(local, remote, bound.as_fd()).unwrap();
    // It dies before it could say so.
    instance.give(guest.program, other_end, remote).unwrap();
    drop(guest);
    let owned = || neighbour.client.own_connection(other_end, remote, other.as_fd());
    wait_until(owned);
}

/// Waits until it succeeds: the guardian notices that a program is gone when it looks again.
fn wait_until<E: std::fmt::Debug>(mut done: impl FnMut() -> Result<(), E>) {
    let patience = Instant::now() + Duration::from_secs(5);
    while let Err(error) = done() {
        assert!(Instant::now() < patience, "{error:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn when_a_program_dies_its_ports_go_and_its_connections_stay_the_instances() {
    if is_skipped("when_a_program_dies_its_ports_go_and_its_connections_stay_the_instances") {
        return;
    }
    let link = Link::with_instances("guestdeath", &[], 1);
    let mut instance = link.instance(0);
    let mut port = open(&mut instance);
    let mut guest = attach(&link, &mut instance, 0);
    let program = guest.program;
    let (local, remote) = (end(OURS, PORT), end(THEIRS, 5000));
    let opened = (end(OURS, 40_000), end(THEIRS, 5001));
    let listener = listen(&link, end("::", PORT));
    guest.client.own(end("::", PORT), listener.as_fd()).unwrap();
    guest.client.own_connection(opened.0, opened.1, bind(&link, opened.0).as_fd()).unwrap();
    // The program's own table has no effect, the instance's does.
    let _ = guest.client.connections().enter(local, end(THEIRS, 5002)).unwrap();
    let entries = [(local, remote), opened]
        .map(|(local, remote)| instance.connections().enter(local, remote).unwrap());
    drop((guest.client, guest.own));
    assert_eq!(hear(&mut instance), format!("granted {program} [::]:7400"));
    assert_eq!(hear(&mut instance), format!("connection {program} {} {}", opened.0, opened.1));
    assert_eq!(hear(&mut instance), format!("revoked {program} [::]:7400"));
    assert_eq!(knock(&link, local), Ok(()));
    // Not forgotten either when the guardian has looked at it.
    thread::sleep(Duration::from_secs(1));
    let _ = seen(std::slice::from_mut(&mut port), Duration::ZERO);
    acknowledge(&link, remote.port(), local);
    knock_from(&link, &[5002], local);
    knock_from(&link, &[5001], opened.0);
    let mut came = seen(std::slice::from_mut(&mut port), SHORT).remove(0);
    came.sort_unstable();
    came.dedup();
    assert_eq!(came, [5000, 5001]);
    entries.into_iter().for_each(|entry| instance.connections().remove(entry));
    instance.disown_connection(opened.0, opened.1).unwrap();
}

#[test]
fn when_an_instance_dies_its_programs_ports_are_the_kernels_and_they_go_elsewhere() {
    if is_skipped("when_an_instance_dies_its_programs_ports_are_the_kernels_and_they_go_elsewhere")
    {
        return;
    }
    let link = Link::with_instances("instancedeath", &[], 2);
    let (mut dies, mut lives) = (link.instance(0), link.instance(1));
    let mut ports = [open(&mut dies), open(&mut lives)];
    let mut guest = attach(&link, &mut dies, 0);
    let local = end(OURS, PORT);
    let listener = listen(&link, local);
    guest.client.own(local, listener.as_fd()).unwrap();
    // A peer whose connection has no other end: the kernel's is removed silently.
    let there = link.theirs.within(|| Ok(TcpListener::bind(end(THEIRS, 4000))?)).unwrap();
    let to = there.local_addr().unwrap();
    let ours = link.ours.within(move || Ok(TcpStream::connect_timeout(&to, LONG)?)).unwrap();
    let mut peer = there.accept().unwrap().0;
    peer.set_read_timeout(Some(LONG)).unwrap();
    let from = ours.local_addr().unwrap();
    nix::sys::socket::setsockopt(&ours, nix::sys::socket::sockopt::TcpRepair, &1).unwrap();
    drop(ours);
    guest.client.own_connection(from, to, bind(&link, from).as_fd()).unwrap();
    let _entry = dies.connections().enter(from, to).unwrap();
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut));
    assert!(!seen(&mut ports, SHORT)[0].is_empty());
    drop(dies);
    assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    until("the port is not given back", || knock(&link, local) == Ok(()));
    // The program has nothing there any more, and may have all of it elsewhere.
    assert_eq!(
        refusal(guest.client.disown(local)),
        "the process is attached to no instance of the stack"
    );
    assert_eq!(guest.client.attach(None).unwrap().0, 1);
    assert_eq!(hear(&mut lives), format!("guest {}", guest.program));
    assert_eq!(refusal(guest.client.disown(local)), "10.93.0.1:7400 was not owned");
    guest.client.own(local, listener.as_fd()).unwrap();
    assert_eq!(hear(&mut lives), format!("granted {} {local}", guest.program));
    assert_eq!(knock(&link, local), Err(ErrorKind::TimedOut));
    assert!(!seen(&mut ports, SHORT)[1].is_empty());
    // The instance's number is free again.
    let again = link.instance(0);
    let mut other = link.client();
    assert_eq!(other.attach(None).unwrap().0, 0);
    drop(again);
}

#[test]
fn an_instance_that_does_not_listen_holds_up_its_programs_and_loses_nothing() {
    if is_skipped("an_instance_that_does_not_listen_holds_up_its_programs_and_loses_nothing") {
        return;
    }
    let link = Link::with_instances("behind", &[], 1);
    let mut instance = link.instance(0);
    let mut guest = attach(&link, &mut instance, 0);
    let program = guest.program;
    let local = end(OURS, PORT);
    let listener = listen(&link, local);
    let mut granted = 0;
    let why = loop {
        match guest.client.own(local, listener.as_fd()) {
            Ok(()) => granted += 1,
            Err(error) => break refusal::<()>(Err(error)),
        }
        assert!(granted < 100_000, "there is no end of it");
    };
    assert_eq!(why, "the instance of the stack does not listen: it is stopped, or has no time");
    for _ in 0..granted {
        guest.client.disown(local).unwrap();
    }
    // An answer comes after what was said before it.
    let asked = refusal(instance.disown_connection(local, end(THEIRS, 4000)));
    assert!(asked.starts_with("no connection from"), "{asked}");
    for wanted in ["granted", "revoked"] {
        for _ in 0..granted {
            assert_eq!(hear(&mut instance), format!("{wanted} {program} {local}"));
        }
    }
    assert_eq!(heard(&mut instance), Vec::<String>::new());
    guest.client.own(local, listener.as_fd()).unwrap();
    assert_eq!(hear(&mut instance), format!("granted {program} {local}"));
}

#[test]
fn what_waits_to_be_accepted_is_passed_to_programs_and_to_no_instance() {
    if is_skipped("what_waits_to_be_accepted_is_passed_to_programs_and_to_no_instance") {
        return;
    }
    let link = Link::with_instances("guestpassed", &[], 1);
    let mut instance = link.instance(0);
    let mut one = attach(&link, &mut instance, 0);
    let mut other = attach(&link, &mut instance, 0);
    let local = end(OURS, PORT);
    let listener = listen(&link, local);
    one.client.own(local, listener.as_fd()).unwrap();
    other.client.own(local, listener.as_fd()).unwrap();
    // A connection of the kernel's, over loopback.
    let mut peer = link.ours.within(move || Ok(TcpStream::connect_timeout(&local, LONG)?)).unwrap();
    let (waiting, _) = listener.accept().unwrap();
    one.client.disown(local).unwrap();
    one.client.pass_on(local, waiting.as_fd()).unwrap();
    drop(waiting);
    let mut passed = None;
    until("nothing is passed on", || {
        other.client.check().unwrap();
        passed = other.client.next_passed();
        passed.is_some()
    });
    peer.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    TcpStream::from(passed.unwrap().1).read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    instance.check().unwrap();
    assert!(instance.next_passed().is_none());
}
