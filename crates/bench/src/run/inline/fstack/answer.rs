//! Checks whether a server answers, and correctly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use uncork_netns::Namespace;

use crate::run::nginx::body;

/// Time limit of one answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the server answers correctly, for at most `limit`.
pub(super) fn wait(from: &Namespace, at: SocketAddr, limit: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        match ask(from, at) {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > limit => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Sends one request.
pub(super) fn ask(from: &Namespace, at: SocketAddr) -> Result<()> {
    let text = from.within(move || {
        let mut stream = TcpStream::connect_timeout(&at, LIMIT).context("connecting")?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context("waiting for an answer")?;
        Ok(text)
    })?;
    right(&text)
}

/// Checks that it is the body that was to be served, and all of it.
fn right(text: &str) -> Result<()> {
    let (head, got) = text.split_once("\r\n\r\n").context("no end of the answer's headers")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status == "HTTP/1.1 200 OK", "it answers {status:?}");
    ensure!(
        got == body(),
        "it answers with {} octets, and not with those that it should",
        got.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_if_it_is_all_there_and_nothing_else() {
        let whole = format!("HTTP/1.1 200 OK\r\nServer: n\r\n\r\n{}", body());
        right(&whole).unwrap();
        let (last, other) = (&whole[..whole.len() - 1], whole.replacen("xx", "xy", 1));
        for bad in ["", "HTTP/1.1 200 OK\r\n\r\n", last, &other, &whole.replace("200 OK", "404 No")]
        {
            assert!(right(bad).is_err(), "{bad}");
        }
    }
}
