//! Writing and reading the lines.

use std::io::{self, BufRead, ErrorKind};

use serde::{Deserialize, Serialize};

use crate::{Connection, Report, Running};

/// The last line: without it the report is incomplete.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct End {
    end: bool,
}

impl End {
    /// Makes the last line.
    #[must_use]
    pub fn new() -> Self {
        Self { end: true }
    }
}

impl Default for End {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds a line: a [`Running`], a [`Connection`] or the [`End`].
pub fn put(into: &mut Vec<u8>, line: &impl Serialize) {
    // Neither serialising the values nor writing to memory can fail.
    let _ = serde_json::to_writer(&mut *into, line);
    into.push(b'\n');
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Connection(Box<Connection>),
    End(End),
}

/// Reads a stack's report, up to its last line.
///
/// # Errors
///
/// If it breaks off, cannot be parsed, or does not come (the error of `from`).
pub fn read(from: impl BufRead) -> io::Result<Report> {
    let mut lines = from.lines();
    let first = lines.next().ok_or(ErrorKind::UnexpectedEof)??;
    let running: Running = serde_json::from_str(&first)?;
    let mut connections = Vec::new();
    for line in lines {
        match serde_json::from_str(&line?)? {
            Line::Connection(connection) => connections.push(*connection),
            Line::End(End { end: true }) => return Ok(Report { running, connections }),
            Line::End(_) => break,
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;
    use uncork_stack::Counters;

    #[test]
    fn what_breaks_off_is_not_taken_for_all() {
        let running = Running {
            pid: 7,
            does: "serve echo".to_owned(),
            device: "eth0".to_owned(),
            without: Vec::new(),
            addresses: vec!["10.0.0.1:7".parse().unwrap()],
            age_ms: 12,
            counts: Counts::from(&Counters::default()),
            frames_lost: None,
            by_queue: None,
        };
        let mut lines = Vec::new();
        put(&mut lines, &running);
        let error = read(&lines[..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        put(&mut lines, &End::new());
        assert_eq!(read(&lines[..]).unwrap(), Report { running, connections: Vec::new() });
        assert!(read(&b"{}\n"[..]).is_err(), "what is no stack's");
    }
}
