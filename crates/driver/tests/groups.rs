//! Packet sockets of many engines in one fanout group: a frame reaches the engine that it is for,
//! and no other, wherever the kernel keeps its socket.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol as ProtocolOfIp, SockFilter, SockRef, Socket, Type};
use uncork_bpf::owned::{Ours, Owned, Protocol, Settings};
use uncork_driver::Driver as _;
use uncork_driver::af_packet::Port;
use uncork_wire::checksum;

use crate::common::engines::{Engines, attach, engine};
use crate::common::{KERNELS, LONG, Link, OURS, skipped};

const ENGINES: u32 = 5;

/// Returns an engine's UDP port.
fn port_of(number: u32) -> SocketAddr {
    SocketAddr::from((OURS, 7000 + number as u16))
}

/// Engines on our end, each with a port of its own.
struct Place {
    link: Link,
    owned: Owned,
    device: i32,
    opens: Engines,
    /// In the order in which they came.
    engines: Vec<(u32, Port, OwnedFd)>,
    sender: UdpSocket,
}

impl Place {
    fn with(label: &str, engines: u32) -> Self {
        let link = Link::new(label).with_address();
        link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
        let settings = Settings { ethernet: true, neighbours: false };
        let load = move || Ok(Owned::load(settings)?);
        let owned = link.ours.within(load).unwrap();
        let sender = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 0))?)).unwrap();
        let (device, opens) = (0, Engines::default());
        let mut place = Self { link, owned, device, opens, engines: Vec::new(), sender };
        for number in 1..=engines {
            place.come(number, number);
        }
        let owned = attach(&place.link.ours, place.owned, place.device);
        Self { owned, ..place }
    }

    /// Opens the device for an engine, with a guess at its socket's place in the group.
    fn come(&mut self, number: u32, guess: u32) {
        let Self { link, owned, opens, .. } = self;
        let (device, handed) = opens.open(&link.ours, owned, engine(number), guess);
        owned.own_as(engine(number), Ours::Port(Protocol::Udp, port_of(number))).unwrap();
        let copy = handed.socket.try_clone().unwrap();
        self.device = device;
        self.engines.push((number, Port::adopt(handed).unwrap(), copy));
    }

    /// Closes an engine's socket, which the kernel has removed from the group on return.
    fn go(&mut self, number: u32) {
        let at = self.engines.iter().position(|(other, ..)| *other == number).unwrap();
        self.engines.remove(at);
    }

    /// Sends datagrams to each engine that is there, in turns, until `each` has reached every one,
    /// each to its own engine.
    #[track_caller]
    fn all_come(&mut self, each: u32) {
        let numbers: Vec<u32> = self.engines.iter().map(|(number, ..)| *number).collect();
        let mut came = vec![0; numbers.len()];
        let mut sent = 0;
        let end = Instant::now() + LONG;
        while came.iter().any(|count| *count < each) {
            if sent < each {
                for number in &numbers {
                    self.sender.send_to(&number.to_be_bytes(), port_of(*number)).unwrap();
                }
                sent += 1;
            }
            for ((number, port, _), came) in self.engines.iter_mut().zip(&mut came) {
                let take = &mut |frame: uncork_packet::Received<'_>| {
                    assert!(
                        frame.bytes.ends_with(&number.to_be_bytes()),
                        "another's came to {number}"
                    );
                    *came += 1;
                };
                port.receive(64, take).unwrap();
            }
            assert!(Instant::now() < end, "of {each} for each of {numbers:?} came {came:?}");
        }
        assert!(came.iter().all(|count| *count == each), "some came twice: {came:?}");
    }

    fn receives_nothing(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(20));
        self.engines.iter_mut().all(|(_, port, _)| port.receive(64, &mut |_| ()).unwrap() == 0)
    }
}

#[test]
fn a_frame_comes_to_whom_it_is_for_and_to_nobody_else() {
    if skipped("a_frame_comes_to_whom_it_is_for_and_to_nobody_else") {
        return;
    }
    let mut place = Place::with("group", ENGINES);
    place.all_come(100);
    // What is the kernel's reaches none of them.
    let kernels = place.link.ours.within(|| Ok(UdpSocket::bind((OURS, 53))?)).unwrap();
    kernels.set_read_timeout(Some(LONG)).unwrap();
    place.sender.send_to(b"hello", (OURS, 53)).unwrap();
    kernels.recv(&mut [0; 9]).unwrap();
    // Nor does what this host sends, which a group treats differently.
    kernels.send_to(b"hello", place.sender.local_addr().unwrap()).unwrap();
    assert!(place.receives_nothing());
    // What was taken last has no effect on frames once no socket is left.
    place.all_come(1);
    place.engines.clear();
    for _ in 0..4 {
        place.sender.send_to(b"hello", (OURS, 53)).unwrap();
        kernels.recv(&mut [0; 9]).unwrap();
    }
}

#[test]
fn an_error_comes_to_whom_it_is_about_and_to_the_kernel() {
    if skipped("an_error_comes_to_whom_it_is_about_and_to_the_kernel") {
        return;
    }
    let mut place = Place::with("about", ENGINES);
    let listen = || Ok(Socket::new(Domain::IPV4, Type::RAW, Some(ProtocolOfIp::ICMPV4))?);
    let mut kernel = place.link.ours.within(listen).unwrap();
    let sender = place.link.kernels.within(listen).unwrap();
    kernel.set_read_timeout(Some(LONG)).unwrap();
    // The last socket has moved in the group, which is not known yet.
    place.go(2);
    for number in [5, 1, 3, 4] {
        sender
            .send_to(&unreachable(port_of(number).port()), &SocketAddr::from((OURS, 0)).into())
            .unwrap();
        let mut came = [0; 128];
        let bytes = kernel.read(&mut came).unwrap();
        assert!(came[..bytes].ends_with(&unreachable(port_of(number).port())));
        std::thread::sleep(Duration::from_millis(20));
        let got = place.engines.iter_mut().filter_map(|(number, port, _)| {
            (port.receive(64, &mut |_| ()).unwrap() > 0).then_some(*number)
        });
        assert_eq!(got.collect::<Vec<_>>(), [number]);
    }
    place.all_come(5);
}

/// Builds an ICMP error: the port to which a datagram of ours went is closed (RFC 792).
fn unreachable(from: u16) -> Vec<u8> {
    let mut quoted = [0; 28];
    quoted[0] = 0x45;
    quoted[2..4].copy_from_slice(&28_u16.to_be_bytes());
    quoted[8..10].copy_from_slice(&[64, 17]);
    quoted[12..16].copy_from_slice(&OURS.octets());
    quoted[16..20].copy_from_slice(&KERNELS.octets());
    quoted[20..22].copy_from_slice(&from.to_be_bytes());
    quoted[22..24].copy_from_slice(&9_u16.to_be_bytes());
    quoted[24..26].copy_from_slice(&8_u16.to_be_bytes());
    let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
    icmp.extend(quoted);
    let sum = checksum::of(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    icmp
}

/// The kernel puts the last socket in the place of one that leaves, and orders all anew when the
/// device comes up again.
#[test]
fn nothing_is_lost_when_the_kernel_keeps_the_sockets_elsewhere() {
    if skipped("nothing_is_lost_when_the_kernel_keeps_the_sockets_elsewhere") {
        return;
    }
    let mut place = Place::with("moved", ENGINES);
    place.go(2);
    place.all_come(20);
    place.go(1);
    place.all_come(20);
    for number in 6..10 {
        // So wrong that it is another engine's, whatever the places are.
        place.come(number, 77 + number);
    }
    place.all_come(20);
    for change in ["down", "up"] {
        place.link.ours.ip(&format!("link set eth0 {change}")).unwrap();
    }
    // The port is told that the device was down.
    for (_, port, _) in &mut place.engines {
        let _ = port.receive(1, &mut |_| ());
    }
    place.all_come(20);
}

#[test]
fn an_engine_that_comes_again_gets_nothing_by_the_socket_that_it_had() {
    if skipped("an_engine_that_comes_again_gets_nothing_by_the_socket_that_it_had") {
        return;
    }
    let mut place = Place::with("again", 3);
    // A copy of its first socket is still open, and all guesses are wrong.
    let (_, port, copy) = place.engines.remove(1);
    drop(port);
    place.come(2, 1);
    place.all_come(50);
    drop(copy);
    place.all_come(50);
}

/// Its sockets are closed, but copies of them are still open.
#[test]
fn a_group_that_all_have_left_is_there_for_who_comes() {
    if skipped("a_group_that_all_have_left_is_there_for_who_comes") {
        return;
    }
    let mut place = Place::with("left", 3);
    let copies: Vec<OwnedFd> = place.engines.drain(..).map(|(.., copy)| copy).collect();
    for number in [3, 1, 2] {
        place.come(number, 5);
    }
    for _ in 0..20 {
        place.all_come(5);
    }
    assert!(place.receives_nothing(), "what has come comes again");
    drop(copies);
    place.all_come(20);
    place.engines.clear();
    place.come(2, 1);
    place.all_come(20);
}

#[test]
fn frames_for_whose_socket_is_in_no_group_do_not_go_round_for_ever() {
    if skipped("frames_for_whose_socket_is_in_no_group_do_not_go_round_for_ever") {
        return;
    }
    let mut place = Place::with("nobody", 3);
    place.go(3);
    let dropped = place.owned.dropped().unwrap();
    for _ in 0..100 {
        place.sender.send_to(&[0; 4], port_of(3)).unwrap();
    }
    let end = Instant::now() + LONG;
    while place.owned.dropped().unwrap() < dropped + 100 {
        assert!(Instant::now() < end, "{} dropped", place.owned.dropped().unwrap() - dropped);
    }
    place.all_come(20);
    // If it joins after all, it is found.
    place.come(3, 9);
    place.all_come(20);
}

/// Otherwise a process with one of the sockets could let in what is others', or steer for them.
#[test]
fn nobody_changes_the_filter_of_a_socket_that_is_in_a_group() {
    if skipped("nobody_changes_the_filter_of_a_socket_that_is_in_a_group") {
        return;
    }
    let place = Place::with("locked", 2);
    let (_, _, socket) = &place.engines[1];
    let refused = SockRef::from(socket).detach_filter().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let refused = SockRef::from(socket).attach_filter(&[SockFilter::new(6, 0, 0, 65_535)]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
}
