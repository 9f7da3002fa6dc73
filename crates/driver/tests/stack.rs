//! The stack itself over the ports: a program of the kernel's sends to an echo server on it, and gets
//! every octet back.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{KERNELS, LONG, Link, OUR_MAC, OURS, pattern, skipped, wakes_within};
use uncork_bpf::owned::{Ours, Owned, Protocol, Settings};
use uncork_driver::{Disturb, Driver, Offer, af_packet, clock, tap};
use uncork_netns::Namespace;
use uncork_packet::Medium;
use uncork_path::{Loss, Path};
use uncork_stack::{Config, RecvError, SocketId, Stack};

const PORT: u16 = 8000;

/// An echo server on a stack, with the least of an engine.
struct Echo<'a> {
    driver: &'a mut dyn Driver,
    stack: Stack,
    /// Those that are served, with what is still to be sent back, and whether that was all.
    served: Vec<(SocketId, Vec<u8>, bool)>,
}

impl Echo<'_> {
    fn run(&mut self, stop: &AtomicBool) {
        let listener = self.stack.listen(SocketAddr::from((OURS, PORT)), 16).unwrap();
        let clock = clock::clock();
        let end = Instant::now() + 3 * LONG;
        while !stop.load(Ordering::Relaxed) {
            assert!(Instant::now() < end, "the client has not got everything back");
            let now = clock();
            let (stack, driver) = (&mut self.stack, &mut self.driver);
            let received =
                driver.receive(64, &mut |frame| stack.handle_frame(now, &frame)).unwrap();
            driver.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
            if stack.poll_timeout().is_some_and(|due| due <= now) {
                stack.handle_timeout(now);
            }
            while stack.poll_event().is_some() {}
            while let Some(socket) = stack.accept(listener) {
                self.served.push((socket, Vec::new(), false));
            }
            self.serve(now);
            let (stack, driver) = (&mut self.stack, &mut self.driver);
            while driver.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap() == Offer::Taken
            {
            }
            driver.flush().unwrap();
            if received == 0 {
                let due = stack.poll_timeout().map_or(LONG, |due| due.since(clock()));
                // Rounded up to the milliseconds that poll(2) knows.
                let sleep = due.min(Duration::from_millis(50)) + Duration::from_millis(1);
                wakes_within(*driver, sleep);
            }
        }
    }

    fn serve(&mut self, now: uncork_packet::Instant) {
        const BUFFER_BYTES: usize = 1 << 18;
        let mut taken = vec![0; 1 << 16];
        for (socket, pending, over) in &mut self.served {
            while pending.len() < BUFFER_BYTES && !*over {
                match self.stack.recv(now, *socket, &mut taken) {
                    Ok(0) => *over = true,
                    Ok(bytes) => pending.extend_from_slice(&taken[..bytes]),
                    Err(RecvError::WouldBlock) => break,
                    Err(error) => unreachable!("the connection has failed: {error}"),
                }
            }
            while !pending.is_empty() {
                match self.stack.send(now, *socket, pending, false) {
                    Ok(bytes) => drop(pending.drain(..bytes)),
                    Err(_) => break,
                }
            }
            if *over && pending.is_empty() {
                self.stack.close(now, *socket);
            }
        }
        self.served.retain(|(_, pending, over)| !*over || !pending.is_empty());
    }
}

/// A program of the kernel's that sends, and compares what it gets back. Its end stops the server.
fn client(namespace: &Namespace, bytes: usize, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let name = namespace.name().to_owned();
    let stop = Arc::clone(stop);
    let connect = move || {
        let mut stream = TcpStream::connect((OURS, PORT))?;
        stream.set_read_timeout(Some(2 * LONG))?;
        let mut writer = stream.try_clone()?;
        let writing = thread::spawn(move || {
            writer.write_all(&pattern(bytes)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        writing.join().unwrap();
        assert!(got == pattern(bytes), "{} of {bytes} octets came back, or others", got.len());
        Ok(())
    };
    thread::spawn(move || {
        /// However the client ends.
        struct Stop(Arc<AtomicBool>);
        impl Drop for Stop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(stop);
        let path = format!("/run/netns/{name}");
        let file = std::fs::File::open(path).unwrap();
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let done: anyhow::Result<()> = connect();
        done.unwrap();
    })
}

fn echo(driver: &mut dyn Driver, client_in: &Namespace, bytes: usize) {
    let mut stack = Stack::new(Config::default(), driver.capabilities(), OUR_MAC, [3; 32]);
    stack.add_address(format!("{OURS}/24").parse().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let client = client(client_in, bytes, &stop);
    Echo { driver, stack, served: Vec::new() }.run(&stop);
    client.join().unwrap();
}

/// The kernel finds us by ARP: the stack answers.
fn link(label: &str) -> Link {
    let link = Link::new(label);
    link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    link
}

#[test]
fn over_a_packet_socket() {
    if skipped("over_a_packet_socket") {
        return;
    }
    let link = link("stk");
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 30_000_000);
}

#[test]
fn over_a_packet_socket_on_a_device_that_can_do_nothing() {
    if skipped("over_a_packet_socket_on_a_device_that_can_do_nothing") {
        return;
    }
    let link = link("stkoff");
    link.ethtool("-K eth0 tx off rx off tso off gso off gro off sg off");
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn over_a_packet_socket_above_a_bottleneck() {
    if skipped("over_a_packet_socket_above_a_bottleneck") {
        return;
    }
    let link = link("stktbf");
    let tc = "qdisc add dev eth0 root tbf rate 50mbit burst 16k limit 200k";
    let mut command = link.ours.command("tc");
    uncork_netns::run(command.args(tc.split_whitespace())).unwrap();
    let mut port = link.port(af_packet::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 3_000_000);
}

#[test]
fn over_a_tap_and_over_a_tun() {
    if skipped("over_a_tap_and_over_a_tun") {
        return;
    }
    for (label, medium, offload) in [
        ("stktap", Medium::Ethernet, true),
        ("stkwire", Medium::Ethernet, false),
        ("stktun", Medium::Ip, true),
    ] {
        let namespace = Namespace::new(label).unwrap();
        let settings = tap::Settings { device: "eth0".to_owned(), medium, mtu: 1500, offload };
        let mut port = namespace.within(move || Ok(tap::Port::open(&settings)?)).unwrap();
        namespace.ip("link set eth0 up").unwrap();
        namespace.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
        echo(&mut port, &namespace, 5_000_000);
    }
}

#[test]
fn through_loss() {
    if skipped("through_loss") {
        return;
    }
    let link = link("stkloss");
    let port = link.port(af_packet::Settings::new("eth0"));
    let path = |seed| Path {
        delay: Duration::from_millis(2),
        loss: Loss { probability: 0.01, seed, ..Loss::default() },
        ..Path::default()
    };
    let mut port = Disturb::new(port, path(1), path(2), clock::clock()).unwrap();
    echo(&mut port, &link.kernels, 2_000_000);
    let [incoming, outgoing] = port.counts();
    assert!(incoming.lost > 0 && outgoing.lost > 0, "{incoming:?} {outgoing:?}");
}

#[test]
fn on_an_address_that_the_kernel_has_too() {
    if skipped("on_an_address_that_the_kernel_has_too") {
        return;
    }
    let link = link("stkown");
    link.ours.ip(&format!("address add {OURS}/24 dev eth0")).unwrap();
    let opened = link.ours.within(|| {
        // Neighbours are the kernel's where it has the address, but this stack asks for them itself,
        // and the kernel's answers tell it the same.
        let mut owned = Owned::load(Settings { ethernet: true, neighbours: true })?;
        let settings = af_packet::Settings::new("eth0");
        let port = af_packet::Port::open(&settings, Some(owned.for_packet_socket()))?;
        owned.attach(port.index())?;
        owned.own(Ours::Port(Protocol::Tcp, SocketAddr::from((OURS, PORT))))?;
        Ok((owned, port))
    });
    let (owned, mut port) = opened.unwrap();
    echo(&mut port, &link.kernels, 10_000_000);
    assert!(owned.dropped().unwrap() > 10);
}
