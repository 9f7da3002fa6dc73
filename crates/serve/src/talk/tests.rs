//! Conversations over a stream that takes and returns arbitrarily few octets at a time.

use std::collections::VecDeque;

use super::{Service, Site, Standing, Talk};
use crate::pattern::octet;
use crate::stream::{Stop, Stream};

/// A peer, and a connection that takes at most `room` octets between two turns.
#[derive(Default)]
struct Peer {
    says: VecDeque<u8>,
    has_ended: bool,
    heard: Vec<u8>,
    room: usize,
    was_told_end: bool,
}

impl Stream for Peer {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Stop> {
        if self.says.is_empty() {
            return if self.has_ended { Ok(0) } else { Err(Stop::WouldBlock) };
        }
        let bytes = into.len().min(self.says.len());
        into.iter_mut().zip(self.says.drain(..bytes)).for_each(|(to, octet)| *to = octet);
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8], _: bool) -> Result<usize, Stop> {
        assert!(!self.was_told_end, "something was written after the end");
        if self.room == 0 {
            return Err(Stop::WouldBlock);
        }
        let taken = bytes.len().min(self.room);
        self.heard.extend_from_slice(&bytes[..taken]);
        self.room -= taken;
        Ok(taken)
    }

    fn end_writing(&mut self) {
        assert!(!self.was_told_end);
        self.was_told_end = true;
    }
}

/// Runs turns, each with `room` octets of room, until nothing changes any more.
fn talk(service: Service, says: &[u8], ends: bool, room: usize) -> (Peer, Standing) {
    let mut peer =
        Peer { says: says.iter().copied().collect(), has_ended: ends, ..Peer::default() };
    let (site, mut talk, mut scratch) = (Site::new(service), Talk::new(service), [0; 100]);
    loop {
        let before = peer.heard.len();
        peer.room = room;
        let standing = talk.drive(&site, &mut peer, &mut scratch);
        let endless = service == Service::Chargen && peer.heard.len() > 20_000;
        if standing == Standing::Over || peer.heard.len() == before || endless {
            return (peer, standing);
        }
    }
}

const HTTP: Service = Service::Http { body_bytes: 602, file_bytes: 100_000 };

fn http(request: &str, room: usize) -> (String, Vec<u8>, Peer, Standing) {
    let (peer, standing) = talk(HTTP, request.as_bytes(), false, room);
    let end = peer.heard.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(peer.heard[..end].to_vec()).unwrap();
    (head, peer.heard[end..].to_vec(), peer, standing)
}

#[test]
fn echo_gives_back_what_came_and_ends_after_the_peer() {
    let says: Vec<u8> = (0..5000_u32).map(|number| number.to_le_bytes()[0]).collect();
    for room in [1, 7, 100, 10_000] {
        let (peer, standing) = talk(Service::Echo, &says, true, room);
        assert_eq!((standing, peer.was_told_end), (Standing::Over, true));
        assert!(peer.heard == says, "with room for {room}");
    }
    let (peer, standing) = talk(Service::Echo, b"hello", false, 10);
    assert_eq!(standing, Standing::Waits { reads: true, writes: false });
    assert!(!peer.was_told_end);
}

#[test]
fn echo_does_not_read_what_it_cannot_give_back() {
    let (peer, standing) = talk(Service::Echo, &[b'x'; 1000], false, 0);
    assert_eq!(standing, Standing::Waits { reads: false, writes: true });
    assert_eq!(peer.says.len(), 900);
}

#[test]
fn chargen_goes_on_until_the_peer_ends_whatever_that_says() {
    let (peer, standing) = talk(Service::Chargen, b"go on", false, 999);
    assert_eq!(standing, Standing::Waits { reads: true, writes: true });
    assert!(peer.says.is_empty() && peer.heard.len() > 20_000);
    assert_eq!(talk(Service::Chargen, b"", true, 999).1, Standing::Over);
}

#[test]
fn discard_answers_nothing() {
    let (peer, standing) = talk(Service::Discard, &[1; 1000], true, 10);
    assert_eq!((standing, peer.heard.len(), peer.says.len()), (Standing::Over, 0, 0));
}

#[test]
fn both_documents_are_what_they_should_be_however_little_room_there_is() {
    for (path, bytes) in [("/", 602), ("/file", 100_000)] {
        for room in [11, 1000, 1 << 20] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let (head, body, peer, standing) = http(&request, room);
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {bytes}\r\n")), "{head}");
            assert!(!head.contains("Connection:"), "{head}");
            assert!(body.len() == bytes && body.iter().zip(0..).all(|(&is, at)| is == octet(at)));
            assert_eq!(standing, Standing::Waits { reads: true, writes: false });
            assert!(!peer.was_told_end);
        }
    }
}

#[test]
fn requests_behind_each_other_are_answered_in_their_order() {
    let both = "HEAD /file HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n\
                GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for room in [3, 1 << 20] {
        let (peer, _) = talk(HTTP, both.as_bytes(), true, room);
        let text = String::from_utf8(peer.heard).unwrap();
        let heads: Vec<_> =
            text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at..at + 12]).collect();
        assert_eq!(heads, ["HTTP/1.1 200", "HTTP/1.1 404", "HTTP/1.1 200"]);
        // The answer to HEAD has GET's header fields, and no body.
        assert!(text.contains("Content-Length: 100000\r\n\r\nHTTP/1.1 404"), "{text}");
        assert!(peer.was_told_end);
    }
}

#[test]
fn who_wants_no_more_is_told_the_end() {
    for (request, says) in [
        ("GET / HTTP/1.0\r\n\r\n", "Connection: close\r\n"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "Connection: close\r\n"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", "405 Method Not Allowed"),
        ("DELETE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "Allow: GET, HEAD\r\n"),
        ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/3\r\n\r\n", "505 HTTP Version Not Supported"),
    ] {
        let (head, body, peer, standing) = http(request, 50);
        assert!(head.contains(says), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        // It waits for the peer's FIN, drops what still comes, and sends nothing more.
        assert_eq!(standing, Standing::Waits { reads: true, writes: false });
        assert!(peer.was_told_end && peer.says.is_empty());
    }
    let (head, ..) = http("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 50);
    assert!(head.contains("Connection: keep-alive\r\n"), "{head}");
}

#[test]
fn a_head_without_end_is_refused() {
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let (head, _, peer, _) = http(&endless, 1000);
    assert!(head.starts_with("HTTP/1.1 431 ") && peer.was_told_end, "{head}");
}

#[test]
fn who_is_told_to_finish_says_nothing_more() {
    let (site, mut talk, mut scratch) = (Site::new(HTTP), Talk::new(HTTP), [0; 100]);
    let request = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut peer = Peer { says: request.iter().copied().collect(), room: 5000, ..Peer::default() };
    talk.drive(&site, &mut peer, &mut scratch);
    talk.finish();
    peer.room = 5000;
    assert_eq!(
        talk.drive(&site, &mut peer, &mut scratch),
        Standing::Waits { reads: true, writes: false }
    );
    assert_eq!((peer.heard.len(), peer.was_told_end, talk.lingers()), (5000, true, true));
    peer.has_ended = true;
    assert_eq!(talk.drive(&site, &mut peer, &mut scratch), Standing::Over);
}
