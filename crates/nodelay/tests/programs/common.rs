//! Running the two real programs against each other on a port that the kernel chooses.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A server that is killed, by its own handle, when the test is over.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a server on a free port with these words after the port, then reads which port.
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tcp_nodelay_server"))
            .arg("0")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take();
        let mut server = Self { child, stdout, stderr, port: 0 };
        let line = server.line();
        server.port = match line.strip_prefix("server: listening on port ") {
            Some(port) => port.parse().unwrap(),
            None => {
                let told: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(told["event"], "listening", "{line}");
                told["port"].as_u64().unwrap().try_into().unwrap()
            }
        };
        server
    }

    /// Reads the next line, which must come.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the server ended after {line:?}");
        line.truncate(line.len() - 1);
        line
    }

    /// Reads the next line as JSON.
    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Checks the next client's lines, up to and with its host, and returns the number of reads.
    pub(crate) fn reads_of_next_client(&mut self) -> u64 {
        assert_eq!(self.line(), "server: waiting for connection");
        let accept = self.line();
        let host = accept.strip_prefix("server: accept from ");
        assert!(host.is_some_and(|host| !host.is_empty()), "{accept}");
        self.received()
    }

    /// Returns the number in `server: received N buffers`.
    pub(crate) fn received(&mut self) -> u64 {
        let line = self.line();
        let (_, rest) = line.split_once("server: received ").expect("a count");
        rest.strip_suffix(" buffers").expect("a count").parse().unwrap()
    }

    /// Waits for the end of a server that was started with --connections; returns its exit code,
    /// the rest of its output and its errors.
    pub(crate) fn end(&mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a client that is not yet started.
pub(crate) fn client(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcp_nodelay_client"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs a client with these words and `-p` for the server's port.
pub(crate) fn run_client(server: &Server, words: &[&str]) -> Output {
    client(&["-p", &server.port.to_string()]).args(words).output().unwrap()
}

/// Runs a client that must succeed, and returns its output without the newline.
pub(crate) fn client_says(server: &Server, words: &[&str]) -> String {
    text(&run_client(server, words))
}

/// Returns the one line that a successful client printed.
pub(crate) fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{:?}: {err}", output.status);
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(out.matches('\n').count(), 1, "{out}");
    out.trim_end_matches('\n').to_owned()
}
