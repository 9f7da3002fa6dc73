//! Limits for one user, so that something is left for others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use common::{LONG, Link, OURS, SHORT, end, listen, open, refusal};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uncork_driver::af_packet::Port;
use uncork_guard::{Limits, RINGS_BYTES};
use uncork_guardian::{Client, Place};
use uncork_netns::testing::is_skipped;

const ONE: u32 = 65_533;
const OTHER: u32 = 65_534;
const ROOT: u32 = 0;

fn limits() -> Limits {
    Limits {
        rings_of_a_user_bytes: RINGS_BYTES * 2,
        rings_bytes: RINGS_BYTES * 3,
        programs_of_a_user: 4,
        programs: 6,
        places_of_a_user: 3,
        places: 4,
    }
}

/// Retries until it succeeds: threads of the guardian close what a program has had.
fn in_the_end<T>(mut act: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + LONG;
    loop {
        match act() {
            Ok(done) => return done,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn try_to_open(client: &mut Client) -> Result<Port, String> {
    let index = client.devices()[0].index;
    let opened = client.open(index).map_err(|error| error.to_string())?;
    Ok(Port::adopt(opened).unwrap())
}

#[test]
fn rings_of_one_user_s_programs_are_bounded_by_memory_whoever_holds_them() {
    if is_skipped("rings_of_one_user_s_programs_are_bounded_by_memory_whoever_holds_them") {
        return;
    }
    let link = Link::with_limits("rings", limits());
    let [mut first, mut second, mut third] = [(); 3].map(|()| link.client_of(ONE));
    let [held, other] = [open(&mut first), open(&mut second)];
    let why = try_to_open(&mut third).unwrap_err();
    assert!(
        why.starts_with("the packet sockets of the user 65533 take all of the 58 MiB"),
        "{why}"
    );
    // There is room for one of another user's, and root has no limit.
    let [mut of_other, mut of_other_too] = [(); 2].map(|()| link.client_of(OTHER));
    let of_others = open(&mut of_other);
    let why = try_to_open(&mut of_other_too).unwrap_err();
    assert!(why.starts_with("the packet sockets of all users take all of the 87 MiB"), "{why}");
    let mut root = link.client_of(ROOT);
    let _of_root = [open(&mut root), open(&mut root)];
    // A program that is gone, but has left its socket to another, still counts …
    drop(first);
    thread::sleep(SHORT);
    let why = try_to_open(&mut third).unwrap_err();
    assert!(why.contains("those of one user may take"), "{why}");
    // … until that other one is gone, too.
    drop((held, other));
    drop(second);
    let _ = in_the_end(|| try_to_open(&mut third));
    drop(of_others);
}

#[test]
fn programs_of_one_user_are_bounded() {
    if is_skipped("programs_of_one_user_are_bounded") {
        return;
    }
    let link = Link::with_limits("programs", limits());
    let mut clients: Vec<_> = (0..4).map(|_| link.client_of(ONE)).collect();
    let why = format!("{:#}", link.try_client_of(ONE).unwrap_err());
    assert!(why.contains("the user 65533 has 4 programs, or threads, with a stack"), "{why}");
    let _of_other = [(); 2].map(|()| link.client_of(OTHER));
    let why = format!("{:#}", link.try_client_of(OTHER).unwrap_err());
    assert!(why.contains("there are 6 programs with a stack"), "{why}");
    let _root = [(); 4].map(|()| link.client_of(ROOT));
    clients.pop();
    let another = || link.try_client_of(ONE).map_err(|error| format!("{error:#}"));
    in_the_end(another);
}

#[test]
fn ports_of_one_user_are_bounded_and_one_that_is_asked_for_twice_counts_once() {
    if is_skipped("ports_of_one_user_are_bounded_and_one_that_is_asked_for_twice_counts_once") {
        return;
    }
    let link = Link::with_limits("ports", limits());
    let mut client = link.client_of(ONE);
    let own = |client: &mut Client, port: u16| {
        let listener = listen(&link, end(OURS, port));
        client.own(end(OURS, port), listener.as_fd()).map(|()| listener)
    };
    let mut listeners: Vec<_> =
        (1..=3).map(|port| own(&mut client, 7600 + port).unwrap()).collect();
    let why = refusal(own(&mut client, 7604));
    assert!(why.contains("the user 65533 has ports at 3 addresses"), "{why}");
    client.own(end(OURS, 7601), listeners[0].as_fd()).unwrap();
    let mut other = link.client_of(OTHER);
    let _of_other = own(&mut other, 7605).unwrap();
    let why = refusal(own(&mut other, 7606));
    assert!(why.contains("there are ports at 4 addresses on the stack"), "{why}");
    let _of_root = [7607, 7608].map(|port| own(&mut link.client_of(ROOT), port).unwrap());
    // It was asked for twice, so it is given back only when it was let go as often.
    client.disown(end(OURS, 7601)).unwrap();
    refusal(own(&mut client, 7609));
    client.disown(end(OURS, 7601)).unwrap();
    listeners.remove(0);
    let _another = own(&mut client, 7610).unwrap();
}

#[test]
fn a_port_that_is_asked_for_again_and_again_holds_up_nobody_when_it_is_let_go() {
    const TIMES: usize = 4000;
    if is_skipped("a_port_that_is_asked_for_again_and_again_holds_up_nobody_when_it_is_let_go") {
        return;
    }
    let link = Link::with_limits("again", limits());
    let (mut client, mut other) = (link.client_of(ONE), link.client_of(OTHER));
    let listener = listen(&link, end(OURS, 7600));
    let begun = Instant::now();
    for _ in 0..TIMES {
        client.own(end(OURS, 7600), listener.as_fd()).unwrap();
    }
    let each = begun.elapsed() / TIMES as u32;
    drop(listener);
    // The guardian notices within a second that the socket is gone, and says so.
    let until = Instant::now() + LONG;
    let mut longest = Duration::ZERO;
    while client.disown(end(OURS, 7600)).is_ok() && Instant::now() < until {
        let asked = Instant::now();
        other.settle().unwrap();
        longest = longest.max(asked.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(longest < each * 50 + Duration::from_millis(200), "{longest:?} beside {each:?}");
}

/// Returns the CPU time that this process's threads have had.
fn worked() -> Duration {
    let all = fs::read_dir("/proc/self/task").unwrap();
    let of_threads = all.filter_map(|task| {
        let told = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(of_threads.sum())
}

/// Takes all descriptors below a limit, which is the process's and is restored at the end.
struct NoDescriptors(Rlimit, #[expect(dead_code, reason = "only held")] Vec<fs::File>);

impl NoDescriptors {
    /// All descriptors below this are taken; as the limit it is still enough to ask poll(2) for.
    const TAKEN: i32 = 100;

    fn begin() -> Self {
        let before = getrlimit(Resource::Nofile);
        let mut taken = Vec::new();
        while taken.last().is_none_or(|file: &fs::File| file.as_raw_fd() < Self::TAKEN) {
            taken.push(fs::File::open("/dev/null").unwrap());
        }
        let none = Rlimit { current: Some(Self::TAKEN as u64), ..before };
        setrlimit(Resource::Nofile, none).unwrap();
        taken.extend(std::iter::from_fn(|| fs::File::open("/dev/null").ok()));
        Self(before, taken)
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

fn stranger(link: &Link) -> (OwnedFd, SocketAddrUnix) {
    let place: Place = link.place.parse().unwrap();
    let name = place.name().to_owned();
    let make = move || {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((socket, SocketAddrUnix::new_abstract_name(name.as_bytes())?))
    };
    link.ours.within(make).unwrap()
}

#[test]
fn without_a_descriptor_for_who_connects_the_guardian_sleeps() {
    if is_skipped("without_a_descriptor_for_who_connects_the_guardian_sleeps") {
        return;
    }
    const LOOKS: u32 = 10;
    let link = Link::with_limits("descriptors", limits());
    let (socket, address) = stranger(&link);
    // What its threads do at their start is over by now.
    thread::sleep(SHORT);
    let before = worked();
    let begun = Instant::now();
    {
        let _none = NoDescriptors::begin();
        connect(&socket, &address).unwrap();
        thread::sleep(SHORT * LOOKS);
    }
    let (worked, all) = (worked().saturating_sub(before), begun.elapsed());
    println!("worked {worked:?} of {all:?}");
    assert!(worked < all / 4, "it has worked for {worked:?} of {all:?}");
    // And the guardian goes on serving.
    drop(socket);
    let _ = link.client();
}
