//! HTTP, by curl and wrk.

use uncork_netns::testing::is_skipped;

use crate::common::{stderr, stdout};
use crate::stack::place::{OURS, Place, Server, is_document, url};

/// Makes a place of each kind of device.
fn places(label: &str) -> [Place; 3] {
    let (tap, xdp) = (format!("{label}-t"), format!("{label}-x"));
    [Place::veth(label), Place::tap(&tap), Place::xdp(&xdp)]
}

/// Sends a thousand requests over one connection.
pub(crate) fn a_thousand_on_one_connection(place: &Place, address: &str) {
    let many = url(address, 8080, "/?[1-1000]");
    let done = place.curl(&["--write-out", "\n%{http_code} %{num_connects}\n", &many]);
    assert!(done.status.success(), "{}", stderr(&done));
    let text = stdout(&done);
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("200 ")).collect();
    // The first request connects, and no later one.
    assert_eq!((lines.len(), lines[0]), (1000, "200 1"));
    assert!(lines[1..].iter().all(|line| *line == "200 0"));
}

/// Fetches a hundred megabytes, and compares each octet.
pub(crate) fn long_body(place: &Place, address: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().to_str().unwrap();
    let done = place.curl(&["--output", name, &url(address, 8080, "/file")]);
    assert!(done.status.success(), "{}", stderr(&done));
    is_document(file.path(), 100_000_000);
}

/// Runs 64 connections that send requests without a break, for two seconds.
pub(crate) fn wrk(place: &Place) {
    let mut wrk = place.kernels.command("wrk");
    wrk.args(["-t1", "-c64", "-d2s", &url(OURS[0], 8080, "/")]);
    let done = wrk.output().unwrap();
    let text = stdout(&done);
    assert!(done.status.success(), "{text}{}", stderr(&done));
    assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
    let line = text.lines().find(|line| line.contains(" requests in ")).unwrap();
    let requests: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    assert!(requests > 500, "{text}");
}

#[test]
fn one_request_and_a_thousand_on_one_connection() {
    if is_skipped("one_request_and_a_thousand_on_one_connection") {
        return;
    }
    for place in places("sth") {
        let server = place.serve("http --body 700");
        assert!(
            server.said.contains("10.92.0.2:8080 and [fd92::2]:8080 over eth0"),
            "{}",
            server.said
        );
        for address in OURS {
            let once = place.curl(&["--include", &url(address, 8080, "/")]);
            let text = stdout(&once);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("\r\nContent-Length: 700"), "{head}");
            assert_eq!(body.len(), 700);

            a_thousand_on_one_connection(&place, address);
        }
        server.stop();
    }
}

#[test]
fn every_kind_of_answer_is_the_same_on_kernel_sockets() {
    if is_skipped("every_kind_of_answer_is_the_same_on_kernel_sockets") {
        return;
    }
    let place = Place::tap("stsame");
    let ours = place.serve("http --bytes 5000");
    let mut command = place.kernels.command(crate::common::UNCORK);
    command.args(["stack", "serve", "http", "--kernel", "--bytes", "5000"]);
    command.args(["--addr", "10.92.0.1/24", "--addr", "fd92::1/64"]);
    let kernels = Server::start(&mut command);
    for arguments in [
        &["/"][..],
        &["--head", "/file"],
        &["/file"],
        &["/none"],
        &["--http1.0", "/"],
        &["--data", "a=b", "/"],
        &["--request", "DELETE", "/file"],
        &["--header", "Host:", "/"],
        &["--header", "Connection: close", "/"],
    ] {
        let (path, options) = arguments.split_last().unwrap();
        let answers = [OURS[0], "10.92.0.1"].map(|address| {
            let url = url(address, 8080, path);
            let done = place.curl(&[&["--include"], options, &[&url]].concat());
            assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
            let text = stdout(&done);
            assert!(text.contains("\r\nDate: "), "{text}");
            let lines = text.lines().filter(|line| !line.starts_with("Date: "));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        });
        assert_eq!(answers[0], answers[1], "{arguments:?}");
        assert!(answers[0].starts_with("HTTP/1.1 "), "{}", answers[0]);
    }
    ours.stop();
    kernels.stop();
}

#[test]
fn a_hundred_megabytes_arrive_as_they_were() {
    if is_skipped("a_hundred_megabytes_arrive_as_they_were") {
        return;
    }
    for place in places("stbig") {
        let server = place.serve("http --bytes 100000000");
        OURS.iter().for_each(|address| long_body(&place, address));
        server.stop();
    }
}

#[test]
fn wrk_over_64_connections_finds_nothing_wrong() {
    if is_skipped("wrk_over_64_connections_finds_nothing_wrong") {
        return;
    }
    for place in places("stwrk") {
        let server = place.serve("http");
        wrk(&place);
        server.stop();
    }
}
