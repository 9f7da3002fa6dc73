//! What a kernel's socket proves, for how long, and which process can keep others from a port: the
//! same as on kernel sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};
use rustix::thread::set_thread_res_uid;
use socket2::{Domain, Socket, Type};
use uncork_netns::testing::is_skipped;

use crate::common::{
    self, Link, OUR_V6, OURS, SHORT, THEIRS, end, knock, knock_from, listen, open, refusal, seen,
    when_free,
};

const PORT: u16 = 7600;
const NOBODY: u32 = 65_534;

/// Makes a socket that is bound there, for IPv6 alone if it is of that, and to a device.
fn bound(link: &Link, at: SocketAddr, device: Option<&'static [u8]>) -> Socket {
    let made = link.ours.within(move || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind_device(device)?;
        socket.bind(&at.into())?;
        Ok(socket)
    });
    made.unwrap()
}

#[test]
fn what_is_of_one_version_of_ip_proves_nothing_of_the_other() {
    if is_skipped("what_is_of_one_version_of_ip_proves_nothing_of_the_other") {
        return;
    }
    let link = Link::new("versions", &[]);
    let mut client = link.client();
    let _port = open(&mut client);
    // Another program may be bound to the addresses of the other version.
    for (at, others) in [("::", ["0.0.0.0", OURS]), ("0.0.0.0", ["::", OUR_V6])] {
        let socket = bound(&link, end(at, PORT), None);
        let theirs = |ip: &str| if end(ip, 0).is_ipv4() { THEIRS } else { common::THEIR_V6 };
        let why = client.own_connection(
            end(others[1], PORT),
            end(theirs(others[1]), 4000),
            socket.as_fd(),
        );
        assert!(refusal(why).contains("what came is bound to"));
        socket.listen(1).unwrap();
        for other in others {
            let why = refusal(client.own(end(other, PORT), socket.as_fd()));
            assert!(why.contains("what came is bound to"), "{why}");
        }
        client.own(end(at, PORT), socket.as_fd()).unwrap();
        client.disown(end(at, PORT)).unwrap();
    }
}

#[test]
fn what_is_bound_to_a_device_proves_nothing_of_others() {
    if is_skipped("what_is_bound_to_a_device_proves_nothing_of_others") {
        return;
    }
    let link = Link::new("bound", &[]);
    let mut client = link.client();
    let _port = open(&mut client);
    let socket = bound(&link, end("0.0.0.0", PORT), Some(b"lo"));
    let (local, remote) = (end(OURS, PORT), end(THEIRS, 4000));
    let why = refusal(client.own_connection(local, remote, socket.as_fd()));
    assert!(why.ends_with("bound to one device (SO_BINDTODEVICE)"), "{why}");
    socket.listen(1).unwrap();
    for local in [local, end("0.0.0.0", PORT)] {
        let why = refusal(client.own(local, socket.as_fd()));
        assert!(why.ends_with("bound to one device (SO_BINDTODEVICE)"), "{why}");
    }
    socket.bind_device(None).unwrap();
    client.own(local, socket.as_fd()).unwrap();
}

#[test]
fn a_port_whose_socket_is_closed_without_a_word_is_the_kernels_soon() {
    if is_skipped("a_port_whose_socket_is_closed_without_a_word_is_the_kernels_soon") {
        return;
    }
    let link = Link::new("closed", &[]);
    let mut client = link.client();
    let _port = open(&mut client);
    let at = |port| link.ours.within(move || Ok(TcpListener::bind(end(OURS, port))?)).unwrap();
    let (closed, kept) = (at(PORT), at(PORT + 1));
    let ports = [end(OURS, PORT), end(OURS, PORT + 1)];
    client.own(ports[0], closed.as_fd()).unwrap();
    client.own(ports[1], kept.as_fd()).unwrap();
    assert_eq!(knock(&link, ports[0]), Err(ErrorKind::TimedOut));
    drop(closed);
    let is_over = Instant::now();
    // A program that knows of no stack.
    let until = is_over + Duration::from_secs(5);
    let taken = loop {
        if let Ok(taken) = link.ours.within(move || Ok(TcpListener::bind(ports[0])?)) {
            break taken;
        }
        assert!(Instant::now() < until, "the port is not free");
        thread::sleep(Duration::from_millis(5));
    };
    while knock(&link, ports[0]) != Ok(()) {
        assert!(Instant::now() < until, "who comes there comes to who had the port");
    }
    drop(taken);
    // It keeps what it still has proof of.
    thread::sleep(Duration::from_millis(1500).saturating_sub(is_over.elapsed()));
    assert_eq!(knock(&link, ports[1]), Err(ErrorKind::TimedOut));
    assert_eq!(refusal(client.disown(ports[0])), format!("{} was not owned", ports[0]));
    client.disown(ports[1]).unwrap();
}

/// Takes the name that a guardian uses for a place, without privileges or as root; if it listens,
/// its backlog is full.
fn squat(link: &Link, place: SocketAddr, uid: u32, listens: bool) -> Vec<OwnedFd> {
    let made = link.ours.within(move || {
        // For this thread alone, which ends.
        let user = rustix::thread::Uid::from_raw(uid);
        set_thread_res_uid(user, user, user)?;
        let name = SocketAddrUnix::new_abstract_name(format!("uncork-owns-{place}").as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let mut all = vec![socket()?];
        bind(&all[0], &name)?;
        if listens {
            rustix::net::listen(&all[0], 0)?;
            loop {
                let asks = socket()?;
                match connect(&asks, &name) {
                    Ok(()) => all.push(asks),
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(all)
    });
    made.unwrap()
}

#[test]
fn nobody_but_a_guardian_keeps_a_port_from_programs() {
    if is_skipped("nobody_but_a_guardian_keeps_a_port_from_programs") {
        return;
    }
    let link = Link::new("squats", &[]);
    let mut client = link.client();
    let _port = open(&mut client);
    let root = 0;
    let cases = [(NOBODY, false), (NOBODY, true), (root, false), (root, true)];
    for (place, (uid, listens)) in (PORT..).map(|port| end(OURS, port)).zip(cases) {
        let listener = link.ours.within(move || Ok(TcpListener::bind(place)?)).unwrap();
        let squats = squat(&link, place, uid, listens);
        let asked = Instant::now();
        let done = client.own(place, listener.as_fd());
        assert!(asked.elapsed() < Duration::from_secs(1));
        if uid == root && listens {
            let why = refusal(done);
            assert!(why.contains("which has a guardian of its own"), "{why}");
        } else {
            done.unwrap();
        }
        drop(squats);
    }
}

#[test]
fn who_has_closed_the_kernels_socket_without_a_word_has_no_share_of_the_port() {
    if is_skipped("who_has_closed_the_kernels_socket_without_a_word_has_no_share_of_the_port") {
        return;
    }
    let link = Link::new("stale", &[]);
    let (listener, kept) = (listen(&link, end("::", PORT)), listen(&link, end(OURS, PORT + 1)));
    let (mut first, mut second) = (link.client(), link.client());
    let mut ports = [open(&mut first), open(&mut second)];
    first.own(end("::", PORT), listener.as_fd()).unwrap();
    first.own(end(OURS, PORT + 1), kept.as_fd()).unwrap();
    // Until the guardian's thread has closed its copy.
    thread::sleep(SHORT);
    drop(listener);
    let listener = listen(&link, end(OURS, PORT));
    let local = listener.local_addr().unwrap();
    second.own(local, listener.as_fd()).unwrap();
    let remotes: Vec<u16> = (5000..5060).collect();
    knock_from(&link, &remotes, local);
    let [of_first, of_second] = seen(&mut ports, SHORT).try_into().unwrap();
    assert!(of_first.is_empty(), "{of_first:?}");
    assert!(remotes.iter().all(|remote| of_second.contains(remote)));
    assert_eq!(refusal(first.disown(end("::", PORT))), "[::]:7600 was not owned");
    // The same program keeps another port.
    assert_eq!(knock(&link, end(OURS, PORT + 1)), Err(ErrorKind::TimedOut));
    first.disown(end(OURS, PORT + 1)).unwrap();
}

#[test]
fn what_a_program_does_not_have_from_the_kernel_it_does_not_get() {
    if is_skipped("what_a_program_does_not_have_from_the_kernel_it_does_not_get") {
        return;
    }
    let link = Link::new("refused", &[PORT, PORT + 1]);
    let mut client = link.client();
    let listener = listen(&link, end("::", PORT));
    let mut own = |local, socket: std::os::fd::BorrowedFd<'_>| refusal(client.own(local, socket));
    let at = end(OURS, PORT);
    let why = own(end(OURS, 22), listener.as_fd());
    assert_eq!(why, "port 22 is not among those of --port");
    let why = own(end(OURS, PORT + 1), listener.as_fd());
    assert!(why.ends_with("what came is bound to [::]:7600"), "{why}");
    let why = own(end("127.0.0.1", PORT), listener.as_fd());
    assert_eq!(why, "127.0.0.1 is on none of the stack's devices");
    let udp = link.ours.within(move || Ok(UdpSocket::bind(at)?)).unwrap();
    assert!(own(at, udp.as_fd()).ends_with("what came is not of TCP"));
    drop(listener);
    let bind = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&at.into())?;
        Ok(socket)
    };
    let silent = when_free(|| link.ours.within(move || Ok(bind())).unwrap());
    assert!(own(at, silent.as_fd()).ends_with("what came does not listen"));
    let elsewhere = link.theirs.within(move || Ok(TcpListener::bind(end("::", PORT))?)).unwrap();
    assert!(own(at, elsewhere.as_fd()).ends_with("what came is of another network namespace"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(own(at, file.as_fd()).ends_with("what came is no socket of IP"));
    // The guardian still answers.
    drop(silent);
    let listener = listen(&link, at);
    client.own(at, listener.as_fd()).unwrap();
    let error = client.open(4711).unwrap_err().to_string();
    assert_eq!(error, "the stack may not use a device of that number");
    let _opened: Vec<_> = (0..4).map(|_| open(&mut client)).collect();
    let error = client.open(client.devices()[0].index).unwrap_err().to_string();
    assert!(error.starts_with("one process has opened that device 4 times"), "{error}");
}
