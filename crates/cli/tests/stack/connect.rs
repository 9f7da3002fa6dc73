//! `uncork stack connect`: our stack opens the connection.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_netns::testing::is_skipped;

use crate::common::UNCORK;
use crate::stack::place::{LONG, Place, feed, octets, wait};

fn command(place: &Place, to: &str) -> Command {
    let mut command = place.ours().command(UNCORK);
    command.args(["stack", "connect", to]).args(place.device());
    command
}

fn connect(place: &Place, to: &str) -> Child {
    let mut command = command(place, to);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns all that it writes, and its exit status.
fn all(mut child: Child) -> (Vec<u8>, String, Option<i32>) {
    let (mut out, mut error) = (Vec::new(), String::new());
    let mut stdout = child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        stdout.read_to_end(&mut out).unwrap();
        out
    });
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    let out = reading.join().unwrap();
    (out, error, wait(&mut child).code())
}

/// A kernel server that reads to the end, and then sends the same back.
fn listener(place: &Place, address: &'static str) -> (TcpListener, u16) {
    let listener = place.kernels.within(move || Ok(TcpListener::bind((address, 0))?)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn what_is_typed_goes_there_and_what_comes_after_its_end_is_still_written() {
    if is_skipped("what_is_typed_goes_there_and_what_comes_after_its_end_is_still_written") {
        return;
    }
    for (place, count) in [(Place::veth("stcon"), 10_000_000), (Place::tap("stcon-t"), 7)] {
        for address in ["10.92.0.1", "fd92::1"] {
            // With a TAP, the server's addresses exist only once the device does.
            let (server, port) = if count > 10 {
                listener(&place, address)
            } else {
                listener(&place, if address.contains(':') { "::" } else { "0.0.0.0" })
            };
            let serving = thread::spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                stream.write_all(&got).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            let to = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            let mut child = connect(&place, &to);
            let feeding = feed(child.stdin.take().unwrap(), octets(count));
            let (out, error, code) = all(child);
            assert_eq!((error.as_str(), code), ("", Some(0)));
            assert!(out == octets(count), "{} of {count} octets came back, or others", out.len());
            feeding.join().unwrap();
            serving.join().unwrap();
        }
    }
}

#[test]
fn two_stacks_of_ours_at_both_ends() {
    if is_skipped("two_stacks_of_ours_at_both_ends") {
        return;
    }
    let place = Place::veth("stboth");
    // The kernel on the other side plays no part.
    place.kernels.ip("address flush dev eth0").unwrap();
    let server = place.serve("echo");
    let mut command = place.kernels.command(UNCORK);
    command.args("stack connect 10.92.0.2:7 --dev eth0 --addr 10.92.0.3/24".split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let feeding = feed(child.stdin.take().unwrap(), octets(20_000_000));
    let (out, error, code) = all(child);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    assert!(out == octets(20_000_000), "{} octets came back, or others", out.len());
    feeding.join().unwrap();
    server.stop();
}

#[test]
fn who_is_refused_or_does_not_find_the_way_is_told() {
    if is_skipped("who_is_refused_or_does_not_find_the_way_is_told") {
        return;
    }
    let place = Place::veth("stref");
    for (to, code, says) in [
        ("10.92.0.1:9", 1, "the peer refused the connection"),
        ("10.93.0.1:9", 2, "10.93.0.1 is in no network of --addr: name the router"),
        ("10.92.0.77:9", 1, "the peer's host cannot be reached"),
    ] {
        let (out, error, ended) = all(connect(&place, to));
        assert_eq!((out.len(), ended), (0, Some(code)), "{error}");
        assert!(error.starts_with("uncork: ") && error.contains(says), "{error}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    if is_skipped("what_cannot_be_read_or_written_is_told") {
        return;
    }
    let place = Place::veth("stio");
    for (input, output, says) in [
        ("/dev/null", "/dev/full", "what came cannot be written: No space left on device"),
        ("/", "/dev/null", "what is to be sent cannot be read: Is a directory"),
    ] {
        let (server, port) = listener(&place, "10.92.0.1");
        let mut command = command(&place, &format!("10.92.0.1:{port}"));
        command.stdin(File::open(input).unwrap()).stderr(Stdio::piped());
        command.stdout(File::options().write(true).open(output).unwrap());
        let child = command.spawn().unwrap();
        let (mut stream, _) = server.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(b"hello").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "an end, and no reset");
        drop(stream);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_router_is_asked_that_is_in_a_network_of_ours_or_that_no_network_has() {
    let name = "a_router_is_asked_that_is_in_a_network_of_ours_or_that_no_network_has";
    if is_skipped(name) {
        return;
    }
    let place = Place::veth("strou");
    // Hosts beyond the router; the kernel's end plays the router and the hosts.
    let far = ["10.99.0.1", "fd99::1"];
    place.kernels.ip("link set lo up").unwrap();
    for address in ["10.99.0.1/32", "fd99::1/128 nodad", "fe80::1/64 nodad"] {
        let device = if address.starts_with("fe80") { "eth0" } else { "lo" };
        place.kernels.ip(&format!("address add {address} dev {device}")).unwrap();
    }
    for (far, ours, router) in [
        (far[0], "10.92.0.2/24", "10.92.0.1"),
        (far[0], "10.92.0.2/32", "10.92.0.1"),
        (far[1], "fd92::2/64", "fd92::1"),
        (far[1], "fd92::2/128", "fd92::1"),
        (far[1], "fd92::2/64", "fe80::1"),
    ] {
        let (server, port) = listener(&place, far);
        let mut command = place.ours().command(UNCORK);
        command.args(["stack", "connect", "--dev", "eth0", "--addr", ours, "--gateway", router]);
        command.arg(std::net::SocketAddr::new(far.parse().unwrap(), port).to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            stream.write_all(b"from afar").unwrap();
        });
        let (out, error, code) = all(child);
        assert_eq!((&out[..], code), (&b"from afar"[..], Some(0)), "{ours} {router}: {error}");
        serving.join().unwrap();
    }
}

#[test]
fn a_signal_ends_it_with_an_end_for_the_other_side() {
    if is_skipped("a_signal_ends_it_with_an_end_for_the_other_side") {
        return;
    }
    let place = Place::veth("stsig");
    let (server, port) = listener(&place, "10.92.0.1");
    let mut child = connect(&place, &format!("10.92.0.1:{port}"));
    let input = child.stdin.take().unwrap();
    let (mut stream, _) = server.accept().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut hello = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut hello).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    // The end is a FIN, and no reset.
    assert_eq!(stream.read(&mut hello).unwrap(), 0);
    drop(stream);
    assert_eq!(all(child).2, Some(130));
    drop(input);
}
