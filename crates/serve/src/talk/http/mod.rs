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

/// A conversation: the beginning of a request that is still incomplete.
#[derive(Debug, Default)]
pub(super) struct Http {
    input: Vec<u8>,
    /// Octets of it that are answered.
    done: usize,
}

/// Outcome for the next request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Answered,
    /// Answered, and the connection ends.
    AnsweredLast,
    Incomplete,
}

impl Http {
    /// Takes received data.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.done == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..self.done);
        }
        self.done = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Takes received data if nothing is kept. A complete first request, as most are, is
    /// answered in place; what follows it is kept.
    pub(super) fn take_first(
        &mut self,
        bytes: &[u8],
        responses: &Responses,
        stream: &mut impl Stream,
        outbox: &mut Outbox,
    ) -> Result<Next, Stop> {
        debug_assert!(self.is_empty());
        let (next, used) = next(bytes, responses, stream, outbox)?;
        if used < bytes.len() && next != Next::AnsweredLast {
            self.take(&bytes[used..]);
        }
        Ok(next)
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.done == self.input.len()
    }

    /// Answers the next request, if its head is complete.
    pub(super) fn next(
        &mut self,
        responses: &Responses,
        stream: &mut impl Stream,
        outbox: &mut Outbox,
    ) -> Result<Next, Stop> {
        if self.is_empty() {
            // An idle connection keeps no memory for future requests.
            if self.input.capacity() > 0 {
                *self = Self::default();
            }
            return Ok(Next::Incomplete);
        }
        let (next, used) = next(&self.input[self.done..], responses, stream, outbox)?;
        self.done += used;
        Ok(next)
    }
}

/// Answers the request at the beginning, if its head is complete; also returns its length.
fn next(
    input: &[u8],
    responses: &Responses,
    stream: &mut impl Stream,
    outbox: &mut Outbox,
) -> Result<(Next, usize), Stop> {
    let refusal = match request::parse(input) {
        Parsed::Incomplete if input.len() < LONGEST_HEAD_BYTES => return Ok((Next::Incomplete, 0)),
        Parsed::Incomplete => Refusal::TooLong,
        Parsed::Refused(refusal) => refusal,
        Parsed::Whole(request, head_bytes) => {
            answer(responses, &request, stream, outbox)?;
            let last = request.closes || request.has_body;
            return Ok((if last { Next::AnsweredLast } else { Next::Answered }, head_bytes));
        }
    };
    refuse(responses, refusal, stream, outbox)?;
    Ok((Next::AnsweredLast, 0))
}

fn answer(
    responses: &Responses,
    request: &Request<'_>,
    stream: &mut impl Stream,
    outbox: &mut Outbox,
) -> Result<(), Stop> {
    // A body is not read, so it is unknown where the next request would begin.
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
