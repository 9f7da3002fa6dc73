//! Heads of responses, and the most frequent response, ready made.

use std::io::Write as _;

use super::super::{Service, date::http_date};
use super::request::Refusal;
use crate::pattern::Pattern;

/// Longest body that is stored with its head, to be sent in one piece.
const LONGEST_READY_BYTES: u64 = 16 << 10;

/// Status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Success, with a body of this length.
    Ok(u64),
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLong,
    VersionNotSupported,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::BadRequest,
            Refusal::TooLong => Self::HeadTooLong,
            Refusal::Version => Self::VersionNotSupported,
        }
    }
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok(_) => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::HeadTooLong => "431 Request Header Fields Too Large",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// Returns an error's text for a human reader.
    pub(super) fn content(self) -> &'static str {
        match self {
            Self::Ok(_) => "",
            Self::BadRequest => "This is not a request of HTTP/1.1 or 1.0.\n",
            Self::NotFound => "There are / and /file here.\n",
            Self::MethodNotAllowed => "Only GET and HEAD are answered here.\n",
            Self::HeadTooLong => "The head of this request is too long.\n",
            Self::VersionNotSupported => "Only HTTP/1.1 and 1.0 are spoken here.\n",
        }
    }

    fn content_bytes(self) -> u64 {
        match self {
            Self::Ok(bytes) => bytes,
            error => error.content().len() as u64,
        }
    }
}

/// The data that responses are made of.
#[derive(Debug)]
pub(in crate::talk) struct Responses {
    body_bytes: u64,
    file_bytes: u64,
    seconds: u64,
    date: String,
    /// `/` for HTTP/1.1, head and body; `None` if that is long.
    front: Option<Vec<u8>>,
}

impl Responses {
    pub(in crate::talk) fn new(service: Service, body: &Pattern) -> Self {
        let (body_bytes, file_bytes) = match service {
            Service::Http { body_bytes, file_bytes } => (body_bytes, file_bytes),
            _ => (0, 0),
        };
        let mut responses =
            Self { body_bytes, file_bytes, seconds: 0, date: http_date(0), front: None };
        responses.make_front(body);
        responses
    }

    /// Sets the date, which RFC 9110 §6.6.1 wants in each response.
    pub(in crate::talk) fn set_time(&mut self, seconds: u64, body: &Pattern) {
        if seconds != self.seconds {
            self.seconds = seconds;
            self.date = http_date(seconds);
            self.make_front(body);
        }
    }

    fn make_front(&mut self, body: &Pattern) {
        if self.body_bytes <= LONGEST_READY_BYTES {
            let mut front = self.head(Status::Ok(self.body_bytes), false, true);
            front.extend_from_slice(body.piece(0, self.body_bytes));
            self.front = Some(front);
        }
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn front(&self) -> Option<&[u8]> {
        self.front.as_deref()
    }

    /// Returns the head of a response.
    pub(super) fn head(&self, status: Status, closes: bool, version_1_1: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(256);
        // Writing to memory does not fail.
        let _ = write!(
            head,
            "HTTP/1.1 {}\r\nServer: uncork\r\nDate: {}\r\nContent-Type: text/plain\r\n\
             Content-Length: {}\r\n",
            status.line(),
            self.date,
            status.content_bytes(),
        );
        if status == Status::MethodNotAllowed {
            head.extend_from_slice(b"Allow: GET, HEAD\r\n");
        }
        // Each version's default need not be stated.
        match (closes, version_1_1) {
            (true, _) => head.extend_from_slice(b"Connection: close\r\n"),
            (false, false) => head.extend_from_slice(b"Connection: keep-alive\r\n"),
            (false, true) => {}
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}
