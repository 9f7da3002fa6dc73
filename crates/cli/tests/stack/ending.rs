//! Ctrl-C: connected peers are told of the end, and nothing is left.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use uncork_netns::testing::is_skipped;

use crate::stack::place::{LONG, OURS, Place, Server, until, url, wait};

const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";

fn servers(place: &Place, more: &str) -> [Server; 2] {
    let ours = place.serve(&format!("http --bytes 10000000000 {more}"));
    let mut command = place.kernels.command(crate::common::UNCORK);
    command.args(["stack", "serve", "http", "--kernel", "--bytes", "10000000000"]);
    command.args(["--addr", "10.92.0.1/24"]).args(more.split_whitespace());
    [ours, Server::start(&mut command)]
}

#[test]
fn in_the_middle_of_a_transfer_the_client_gets_an_end_and_no_reset() {
    if is_skipped("in_the_middle_of_a_transfer_the_client_gets_an_end_and_no_reset") {
        return;
    }
    let place = Place::veth("stmid");
    for (mut server, address) in servers(&place, "").into_iter().zip([OURS[0], "10.92.0.1"]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut curl = place.kernels.command("curl");
        curl.args(["--silent", "--limit-rate", "100M", "--output"]).arg(file.path());
        curl.arg(url(address, 8080, "/file")).stdin(Stdio::null());
        let mut client = curl.spawn().unwrap();
        until(|| file.as_file().metadata().unwrap().len(), |&bytes| bytes > 1_000_000);
        server.signal(Signal::SIGINT);
        // "Partial file": the end came before all the data (curl(1): code 18; a reset is 56).
        assert_eq!(wait(&mut client).code(), Some(18), "{}", server.said);
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn who_waits_for_the_next_request_is_told_the_end_at_once() {
    if is_skipped("who_waits_for_the_next_request_is_told_the_end_at_once") {
        return;
    }
    let place = Place::veth("stidle");
    for (mut server, address) in servers(&place, "").into_iter().zip([OURS[0], "10.92.0.1"]) {
        let mut streams = [(); 2].map(|()| place.connect(address, 8080));
        streams[1].write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 2000];
        assert!(streams[1].read(&mut answer).unwrap() > 602);
        server.signal(Signal::SIGTERM);
        for mut stream in streams {
            assert_eq!(stream.read(&mut answer).unwrap(), 0);
        }
        assert_eq!(server.end().code(), Some(0));
    }
}

/// Waits until the window of a peer that does not read is shut: no data for half a second.
fn until_no_more_comes(stream: &TcpStream) {
    let waiting = || rustix::io::ioctl_fionread(stream).unwrap();
    let (mut before, mut since) = (waiting(), Instant::now());
    until(
        || {
            let now = waiting();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            (now, since.elapsed())
        },
        |&(there, quiet)| there > 0 && quiet > Duration::from_millis(500),
    );
}

/// Reads what has come, up to the end or an error.
fn last(stream: &mut TcpStream) -> Option<ErrorKind> {
    let mut some = vec![0; 1 << 20];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(error.kind()),
        }
    }
}

#[test]
fn who_does_not_read_is_reset_after_a_while_or_at_once_if_asked_twice() {
    if is_skipped("who_does_not_read_is_reset_after_a_while_or_at_once_if_asked_twice") {
        return;
    }
    let place = Place::veth("streset");
    for (grace, twice) in [("300ms", false), ("1000s", true)] {
        let servers = servers(&place, &format!("--grace {grace}"));
        for (mut server, address) in servers.into_iter().zip([OURS[0], "10.92.0.1"]) {
            let mut stream = place.connect(address, 8080);
            stream.write_all(REQUEST).unwrap();
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
            // Otherwise all that the server has taken might arrive, with its FIN after it.
            until_no_more_comes(&stream);
            let begun = Instant::now();
            server.signal(Signal::SIGINT);
            if twice {
                // A different signal: two pending signals of one kind are merged.
                server.signal(Signal::SIGTERM);
            }
            assert_eq!(server.end().code(), Some(0));
            assert!(twice || begun.elapsed() >= Duration::from_millis(300));
            assert!(begun.elapsed() < LONG);
            assert_eq!(last(&mut stream), Some(ErrorKind::ConnectionReset), "{}", server.said);
        }
    }
}

#[test]
fn nothing_is_left_behind() {
    if is_skipped("nothing_is_left_behind") {
        return;
    }
    let place = Place::tap("stleft");
    let server = place.serve("echo");
    let path = format!("/run/uncork/stack-{}.sock", server.pid());
    assert!(Path::new(&path).exists());
    let shown = || {
        let mut command = place.kernels.command("ip");
        command.args(["link", "show", "dev", "eth0"]).output().unwrap().status.success()
    };
    assert!(shown());
    server.stop();
    assert!(!Path::new(&path).exists() && !shown());
}

#[test]
fn a_pulled_cable_is_waited_out_and_a_device_that_is_gone_ends_it() {
    if is_skipped("a_pulled_cable_is_waited_out_and_a_device_that_is_gone_ends_it") {
        return;
    }
    let place = Place::veth("stgone");
    let mut server = place.serve("echo");
    let mut stream = place.connect(OURS[0], 7);
    for state in ["down", "up"] {
        place.ours().ip(&format!("link set eth0 {state}")).unwrap();
    }
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    place.ours().ip("link delete eth0").unwrap();
    assert_eq!(server.end().code(), Some(1));
    let error = server.complaint();
    assert_eq!(error, "uncork: the device has failed: the network device eth0 is gone\n");
}

#[test]
fn a_tap_that_was_there_is_left_with_another_mtu_or_address_or_up() {
    if is_skipped("a_tap_that_was_there_is_left_with_another_mtu_or_address_or_up") {
        return;
    }
    let place = Place::tap("stthere");
    let ip = |line: &str| {
        let done = place.kernels.command("ip").args(line.split(' ')).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    ip("tuntap add eth0 mode tap");
    ip("link set eth0 mtu 1400");
    ip("address add 10.92.9.1/24 dev eth0");
    let state = || {
        let link = ip("-o link show dev eth0");
        let (is_up, mtu) = (link.contains(",UP"), link.split(" mtu ").nth(1).unwrap());
        let mtu = mtu.split(' ').next().unwrap();
        format!("mtu {mtu}, up: {is_up}, {}", ip("-o address show dev eth0"))
    };
    let before = state();
    let server = place.serve("echo");
    let during = state();
    assert!(
        during.starts_with("mtu 1400, up: true") && during.contains("10.92.0.1/24"),
        "{during}"
    );
    server.stop();
    assert_eq!(state(), before);
    let server = place.serve("echo --mtu 1300");
    assert!(state().contains("mtu 1300"), "{}", state());
    server.stop();
    assert_eq!(state(), before);
}
