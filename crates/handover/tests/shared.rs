//! A stack and a kernel on one address: each answers for what is its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![allow(dead_code, reason = "a part of the helpers is for the other test program")]

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{LONG, Ours, PORT};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use uncork_netns::testing::is_skipped;
use uncork_stack::Ready;
use uncork_wire::icmpv4;

/// Drives the stack while `work` is done in the peer's namespace.
fn meanwhile<T: Send + 'static>(ours: &mut Ours, work: impl FnOnce() -> T + Send + 'static) -> T {
    static OVER: AtomicBool = AtomicBool::new(false);
    let namespace = ours.peers.name().to_owned();
    OVER.store(false, Ordering::Release);
    let thread = thread::spawn(move || {
        common::enter(&namespace);
        let done = work();
        OVER.store(true, Ordering::Release);
        done
    });
    ours.turn_until(|_, _| OVER.load(Ordering::Acquire) || thread.is_finished());
    thread.join().unwrap()
}

/// Returns the number of answers to one echo request to our address.
fn echoes() -> usize {
    let (request, id) = (icmpv4::Message::EchoRequest(77, 1), 77);
    let mut message = vec![0; 64];
    request.emit(&mut message);
    let flags = SockFlag::SOCK_CLOEXEC;
    let line = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Icmp).unwrap();
    let to: SocketAddrV4 = "10.93.0.1:0".parse().unwrap();
    sendto(line.as_raw_fd(), &message, &SockaddrIn::from(to), MsgFlags::empty()).unwrap();
    setsockopt(&line, sockopt::ReceiveTimeout, &TimeVal::milliseconds(500)).unwrap();
    let mut packet = [0; 1500];
    let mut count = 0;
    while let Ok(bytes) = recv(line.as_raw_fd(), &mut packet, MsgFlags::empty()) {
        // After an IPv4 header without options.
        let read = icmpv4::Message::read(&packet[20..bytes]);
        count += usize::from(read.is_ok_and(|(read, _)| read == icmpv4::Message::EchoReply(id, 1)));
    }
    count
}

#[test]
fn the_kernel_goes_on_with_everything_else() {
    if is_skipped("the_kernel_goes_on_with_everything_else") {
        return;
    }
    let mut ours = Ours::new("sh-else", false);
    // No hardware address is known yet: a question gets one answer, and an echo comes once.
    assert_eq!(meanwhile(&mut ours, echoes), 1);
    let refused = meanwhile(&mut ours, || TcpStream::connect(("10.93.0.1", PORT + 1)));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // A listener of the kernel's beside the stack's.
    let listener = ours.within(|| Ok(TcpListener::bind(("10.93.0.1", PORT + 2))?));
    let stream = meanwhile(&mut ours, || TcpStream::connect(("10.93.0.1", PORT + 2)).unwrap());
    listener.accept().unwrap();
    assert_eq!(ours.engine.stack().counters().resets_out, 0);
    drop(stream);
}

#[test]
fn the_stack_connects_from_a_port_that_the_kernel_has_reserved() {
    if is_skipped("the_stack_connects_from_a_port_that_the_kernel_has_reserved") {
        return;
    }
    for v6 in [false, true] {
        let mut ours = Ours::new(if v6 { "sh-con6" } else { "sh-con4" }, v6);
        let there = if v6 { "[fd93::2]:0" } else { "10.93.0.2:0" };
        let listener = ours.peers.within(move || Ok(TcpListener::bind(there)?)).unwrap();
        let remote = listener.local_addr().unwrap();
        let mut local: SocketAddr = ours.local();
        local.set_port(50_123);
        ours.owned.own(local, remote);
        let now = ours.engine.now();
        let socket = ours.engine.stack().connect(now, Some(local), remote).unwrap();
        ours.turn_until(|stack, now| stack.readiness(now, socket).has(Ready::CONNECTED));
        let (mut stream, from) = listener.accept().unwrap();
        assert_eq!(from, local);
        stream.write_all(b"hello").unwrap();
        ours.turn_until(|stack, _| stack.readable_bytes(socket) == 5);
        let now = ours.engine.now();
        ours.engine.stack().send(now, socket, b"and back", false).unwrap();
        ours.turn();
        let mut got = [0; 8];
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"and back");
    }
}

#[test]
fn who_does_not_answer_to_the_kernel_is_unreachable_for_the_stack() {
    if is_skipped("who_does_not_answer_to_the_kernel_is_unreachable_for_the_stack") {
        return;
    }
    let mut ours = Ours::new("sh-none", false);
    let mut local = ours.local();
    local.set_port(50_123);
    let remote: SocketAddr = "10.93.0.99:80".parse().unwrap();
    let now = ours.engine.now();
    let socket = ours.engine.stack().connect(now, Some(local), remote).unwrap();
    let began = std::time::Instant::now();
    ours.turn_until(|stack, now| stack.readiness(now, socket).has(Ready::ERROR));
    assert!(began.elapsed() > Duration::from_secs(1), "it was not even tried");
}
