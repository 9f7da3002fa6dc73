//! Parsing of request heads.

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

/// A request with a complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: Method,
    /// The path without host and query.
    pub(super) path: &'a [u8],
    pub(super) version_1_1: bool,
    /// Whether the client wants the connection closed after the answer.
    pub(super) closes: bool,
    /// Whether a body follows.
    pub(super) has_body: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not HTTP.
    Malformed,
    /// Its head is too long.
    TooLong,
    /// It is another version of HTTP.
    Version,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A complete request, and the length of its head.
    Whole(Request<'a>, usize),
    Incomplete,
    Refused(Refusal),
}

/// Parses the first request.
pub(super) fn parse(input: &[u8]) -> Parsed<'_> {
    let mut lines = Lines { input, at: 0 };
    // RFC 9112 §2.2: an empty line before a request is no fault.
    let first = loop {
        match lines.next() {
            None => return Parsed::Incomplete,
            Some([]) => {}
            Some(first) => break first,
        }
    };
    let mut headers = Headers::default();
    loop {
        match lines.next() {
            None => return Parsed::Incomplete,
            Some([]) => break,
            Some(line) => {
                if headers.note(line).is_none() {
                    return Parsed::Refused(Refusal::Malformed);
                }
            }
        }
    }
    match request(first, &headers) {
        Ok(request) => Parsed::Whole(request, lines.at),
        Err(refusal) => Parsed::Refused(refusal),
    }
}

/// Lines without their ends, which may lack the CR (RFC 9112 §2.2).
struct Lines<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.input[self.at..];
        let end = rest.iter().position(|&octet| octet == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// The header fields that matter here.
#[derive(Debug, Default)]
struct Headers {
    hosts: u32,
    close: bool,
    keep_alive: bool,
    has_body: bool,
}

impl Headers {
    /// Notes a header field; `None` if the line is malformed (RFC 9112 §5: no space before the colon, no folded lines).
    fn note(&mut self, line: &[u8]) -> Option<()> {
        let colon = line.iter().position(|&octet| octet == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"connection") {
            for word in value.split(|&octet| octet == b',').map(<[u8]>::trim_ascii) {
                self.close |= word.eq_ignore_ascii_case(b"close");
                self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.has_body |= value != b"0";
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_body = true;
        }
        Some(())
    }
}

fn request<'a>(line: &'a [u8], headers: &Headers) -> Result<Request<'a>, Refusal> {
    let mut words = line.split(|&octet| octet == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    let version_1_1 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ if version.starts_with(b"HTTP/") => return Err(Refusal::Version),
        _ => return Err(Refusal::Malformed),
    };
    // RFC 9112 §3.2: exactly one Host, which HTTP/1.0 does not have.
    if headers.hosts > 1 || version_1_1 && headers.hosts == 0 {
        return Err(Refusal::Malformed);
    }
    let method = match method {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"" => return Err(Refusal::Malformed),
        _ => Method::Other,
    };
    let path = path(target).ok_or(Refusal::Malformed)?;
    let closes = headers.close || !version_1_1 && !headers.keep_alive;
    Ok(Request { method, path, version_1_1, closes, has_body: headers.has_body })
}

/// Returns the path of a target, which may include the host as for a proxy (RFC 9112 §3.2.2).
fn path(target: &[u8]) -> Option<&[u8]> {
    let target = match target.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"http://") => {
            let rest = &target[7..];
            let slash = rest.iter().position(|&octet| octet == b'/');
            slash.map_or(&b"/"[..], |slash| &rest[slash..])
        }
        _ => target,
    };
    let path = target.split(|&octet| octet == b'?').next()?;
    (path.starts_with(b"/") || path == b"*").then_some(path)
}
