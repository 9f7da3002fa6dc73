//! What a program keeps of a port that it has let go of, and what it only claims to have.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};
use socket2::{Domain, Socket, Type};
use uncork_driver::af_packet::Port;
use uncork_guardian::Client;
use uncork_netns::testing::is_skipped;

use crate::common::{LONG, Link, OURS, SHORT, THEIRS, acknowledge, end, knock_from, open, seen};

const PORT: u16 = 7500;
/// Users that have nothing in common.
const ONE: u32 = 65_533;
const OTHER: u32 = 65_534;
const THIRD_USER: u32 = 65_532;
/// Number of connections that one of them invents.
const INVENTED: u32 = 300_000;
/// Longest wait of others for that. It was seven seconds on a machine with nothing else to do.
const HELD_UP: Duration = Duration::from_millis(1500);

/// Listens, once the guardian's threads have closed all copies of the last listener.
fn listen(link: &Link) -> TcpListener {
    let listen = || {
        let until = Instant::now() + LONG;
        loop {
            let listener = try_to_listen();
            if listener.is_ok() || Instant::now() >= until {
                return Ok(listener?);
            }
            thread::sleep(Duration::from_millis(10));
        }
    };
    link.ours.within(listen).unwrap()
}

fn try_to_listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&end(OURS, PORT).into())?;
    socket.listen(64)?;
    Ok(socket.into())
}

/// Returns whether the kernel takes a connection from this port of the other host.
fn connects(link: &Link, from: u16) -> bool {
    let connect = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&end(THEIRS, from).into())?;
        Ok(socket.connect_timeout(&end(OURS, PORT).into(), SHORT).is_ok())
    };
    link.theirs.within(connect).unwrap()
}

/// Owns the port, enters these as its connections, and lets the port go.
fn has_had(link: &Link, user: u32, remotes: &[u16]) -> (Client, Port) {
    let (mut client, at) = (link.client_of(user), end(OURS, PORT));
    let port = open(&mut client);
    let listener = listen(link);
    client.own(at, listener.as_fd()).unwrap();
    says_to_have(&client, remotes);
    client.disown(at).unwrap();
    (client, port)
}

fn says_to_have(client: &Client, remotes: &[u16]) {
    for remote in remotes {
        let _ = client.connections().enter(end(OURS, PORT), end(THEIRS, *remote)).unwrap();
    }
}

#[test]
fn who_has_a_port_from_the_kernel_alone_gets_all_who_connect_whatever_its_last_owner_has_written() {
    const NAME: &str = "who_has_a_port_from_the_kernel_alone_gets_all_who_connect_whatever_its_last_owner_has_written";
    if is_skipped(NAME) {
        return;
    }
    let link = Link::new("expired", &[]);
    let before: Vec<u16> = (5000..5010).collect();
    let (client, _port) = has_had(&link, ONE, &before);
    // Entries made after that: the next process that joins would make them count.
    let behind: Vec<u16> = (5010..5020).collect();
    says_to_have(&client, &behind);
    let _listener = listen(&link);
    for remote in before.iter().chain(&behind) {
        assert!(connects(&link, *remote), "who comes from {remote} comes to another one");
    }
}

#[test]
fn a_port_s_next_owner_gets_all_who_connect_and_keeps_them_when_the_last_one_dies() {
    const NAME: &str =
        "a_port_s_next_owner_gets_all_who_connect_and_keeps_them_when_the_last_one_dies";
    if is_skipped(NAME) {
        return;
    }
    let link = Link::new("next", &[]);
    let (before, behind) = ([5000, 5001, 5002, 5003], [5010, 5011, 5012]);
    let (last, last_port) = has_had(&link, ONE, &before);
    // Others join and leave, one of them of the same user's.
    says_to_have(&last, &behind);
    let at = end(OURS, PORT);
    let (mut next, listener) = (link.client_of(OTHER), listen(&link));
    let mut ports = [last_port, open(&mut next)];
    next.own(at, listener.as_fd()).unwrap();
    let mut third = link.client_of(OTHER);
    third.own(at, listener.as_fd()).unwrap();
    third.disown(at).unwrap();
    let remotes = [&before[..3], &behind].concat();
    knock_from(&link, &remotes, at);
    // The last process has a connection there, and keeps it where none has begun anew.
    acknowledge(&link, before[3], at);
    let [of_last, of_next] = seen(&mut ports, SHORT).try_into().unwrap();
    assert_eq!(of_last, before[3..], "of the next: {of_next:?}");
    assert!(remotes.iter().all(|remote| of_next.contains(remote)), "{of_next:?}");
    remotes.iter().for_each(|remote| acknowledge(&link, *remote, at));
    drop(last);
    thread::sleep(SHORT);
    remotes.iter().for_each(|remote| acknowledge(&link, *remote, at));
    let [_, of_next] = seen(&mut ports, SHORT).try_into().unwrap();
    let count = |remote: &u16| of_next.iter().filter(|one| *one == remote).count();
    assert!(remotes.iter().all(|remote| count(remote) >= 2), "they are the kernel's: {of_next:?}");
}

/// Returns the longest that another user waits to be served, until `time` is over.
fn held_up(link: &Link, time: Duration) -> Duration {
    let (until, mut worst) = (Instant::now() + time, Duration::ZERO);
    while Instant::now() < until {
        let begun = Instant::now();
        drop(link.client_of(OTHER));
        worst = worst.max(begun.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    worst
}

/// Owns the port, and enters many connections that never existed.
fn invents(link: &Link, user: u32, listener: &TcpListener) -> Client {
    let (mut client, at) = (link.client_of(user), end(OURS, PORT));
    client.own(at, listener.as_fd()).unwrap();
    for number in 0..INVENTED {
        let [_, a, b, c] = number.to_be_bytes();
        let remote = SocketAddr::from(([10, a, b, c], 4000));
        let _ = client.connections().enter(at, remote).unwrap();
    }
    client
}

#[test]
fn nobody_waits_for_what_another_one_has_written_into_his_table() {
    if is_skipped("nobody_waits_for_what_another_one_has_written_into_his_table") {
        return;
    }
    let link = &Link::new("invented", &[]);
    let (listener, at) = (listen(link), end(OURS, PORT));
    let invents = |user| invents(link, user, &listener);
    let meanwhile = |act: &mut dyn FnMut()| {
        thread::scope(|scope| {
            let others = scope.spawn(|| held_up(link, Duration::from_secs(5)));
            act();
            others.join().unwrap()
        })
    };
    let mut client = invents(ONE);
    // Letting go may take longer than the client's own patience.
    let others = meanwhile(&mut || drop(client.disown(at)));
    assert!(others < HELD_UP, "when it lets the port go: {others:?}");
    let others = meanwhile(&mut || drop(link.client_of(ONE).own(at, listener.as_fd())));
    assert!(others < HELD_UP, "when another one of its user's comes: {others:?}");
    drop(client);
    // As many are asked for their numbers when a process dies that has the port.
    let mut client = Some(invents(THIRD_USER));
    let others = meanwhile(&mut || drop(client.take()));
    assert!(others < HELD_UP, "when it dies: {others:?}");
    is_given_back(link);
}

fn is_given_back(link: &Link) {
    let until = Instant::now() + LONG;
    while !connects(link, 5000) {
        assert!(Instant::now() < until, "the port is not given back");
    }
}

/// Nothing wakes the guardian for this client any more: to remove all that it has takes longer than
/// one turn.
#[test]
fn who_is_not_understood_loses_all_he_has_though_he_lives_and_says_nothing_more() {
    const NAME: &str =
        "who_is_not_understood_loses_all_he_has_though_he_lives_and_says_nothing_more";
    if is_skipped(NAME) {
        return;
    }
    let link = &Link::new("mute", &[]);
    let listener = listen(link);
    let client = invents(link, ONE, &listener);
    send(client.as_fd(), b"what is this?", SendFlags::empty()).unwrap();
    is_given_back(link);
    drop(client);
}
