//! HTTP/1.1 and 1.0 (RFC 9110, RFC 9112), as much as two documents need.

mod request;
mod response;

pub(super) use response::Responses;

use super::outbox::{Outbox, Source};
use crate::stream::{Stop, Stream};
use request::{Method, Parsed, Refusal, Request};
use response::Status;

/// Longest head of a request, in octets; longer ones are refused (RFC 9112 §3 asks for 8,000 in the
/// first line alone).
const LONGEST_HEAD_BYTES: usize = 16 << 10;

/// A conversation: the beginning of a request that has not come whole.
#[derive(Debug, Default)]
pub(super) struct Http {
    input: Vec<u8>,
    /// How much of it is answered.
    done: usize,
}

/// What became of the next request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Answered,
    /// And no other one will be.
    AnsweredLast,
    Incomplete,
}

impl Http {
    /// Takes in what has come.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.done == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..self.done);
        }
        self.done = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Answers the next request, if all of its head is there.
    pub(super) fn next(
        &mut self,
        responses: &Responses,
        stream: &mut impl Stream,
        outbox: &mut Outbox,
    ) -> Result<Next, Stop> {
        let rest = &self.input[self.done..];
        if rest.is_empty() {
            // An idle connection keeps no memory for what it may yet ask.
            if self.input.capacity() > 0 {
                *self = Self::default();
            }
            return Ok(Next::Incomplete);
        }
        let parsed = match request::parse(rest) {
            Parsed::Incomplete if rest.len() < LONGEST_HEAD_BYTES => return Ok(Next::Incomplete),
            Parsed::Incomplete => Err(Refusal::TooLong),
            Parsed::Whole(request, head_bytes) => {
                self.done += head_bytes;
                Ok(request)
            }
            Parsed::Refused(refusal) => Err(refusal),
        };
        match parsed {
            Ok(request) => {
                answer(responses, &request, stream, outbox)?;
                let last = request.closes || request.has_body;
                Ok(if last { Next::AnsweredLast } else { Next::Answered })
            }
            Err(refusal) => {
                refuse(responses, refusal, stream, outbox)?;
                Ok(Next::AnsweredLast)
            }
        }
    }
}

fn answer(
    responses: &Responses,
    request: &Request<'_>,
    stream: &mut impl Stream,
    outbox: &mut Outbox,
) -> Result<(), Stop> {
    // A body is not read, and so it cannot be told where the next request would begin.
    let closes = request.closes || request.has_body;
    let status = match (request.method, request.path) {
        (Method::Other, _) => Status::MethodNotAllowed,
        (_, b"/" | b"/index.html") => Status::Ok(responses.body_bytes()),
        (_, b"/file") => Status::Ok(responses.file_bytes()),
        _ => Status::NotFound,
    };
    let is_front = status == Status::Ok(responses.body_bytes());
    if is_front
        && request.method == Method::Get
        && !closes
        && request.version_1_1
        && let Some(ready) = responses.front()
    {
        return outbox.send(stream, ready, false);
    }
    let head = responses.head(status, closes, request.version_1_1);
    let has_content = request.method != Method::Head;
    match status {
        Status::Ok(bytes) if has_content => {
            outbox.send(stream, &head, bytes > 0)?;
            outbox.add(Source::Body, bytes);
            Ok(())
        }
        _ => {
            let content = if has_content { status.content() } else { "" };
            outbox.send(stream, &[&head, content.as_bytes()].concat(), false)
        }
    }
}

fn refuse(
    responses: &Responses,
    refusal: Refusal,
    stream: &mut impl Stream,
    outbox: &mut Outbox,
) -> Result<(), Stop> {
    let status = Status::from(refusal);
    let head = responses.head(status, true, true);
    outbox.send(stream, &[&head, status.content().as_bytes()].concat(), false)
}

#[cfg(test)]
mod tests;
