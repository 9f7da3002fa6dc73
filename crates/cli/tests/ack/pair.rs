//! A server and a client of the experiment, each killed by its own handle when a test ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::uncork;

/// Returns `uncork ack` as a command, in a network namespace if one is given.
pub(crate) fn ack(namespace: Option<&str>) -> Command {
    let own = uncork();
    let mut command = match namespace {
        None => own,
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(own.get_program());
            command
        }
    };
    command.arg("ack").stdin(Stdio::null());
    command
}

/// A server that prints JSON.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(words: &str) -> Self {
        Self::start_in(None, words)
    }

    /// Starts a server on a free port, and reads the port number.
    pub(crate) fn start_in(namespace: Option<&str>, words: &str) -> Self {
        let mut command = ack(namespace);
        command.args(["server", "-p", "0", "--json"]).args(words.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, stdout, port: 0 };
        let listening = server.event("listening");
        server.port = listening["port"].as_u64().unwrap().try_into().unwrap();
        server
    }

    /// Returns the next object, which must come.
    pub(crate) fn json(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Returns the next object of this kind, and skips the others before it.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        loop {
            let object = self.json();
            if object["event"] == name {
                return object;
            }
        }
    }

    /// Returns the segments of the next connection to end, and its verdict.
    pub(crate) fn connection(&mut self) -> (Vec<Value>, Value) {
        let mut segments = Vec::new();
        loop {
            let object = self.json();
            match object["event"].as_str().unwrap() {
                "segment" => segments.push(object),
                "verdict" => return (segments, object),
                _ => {}
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the server to end; returns its exit status and standard error.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let mut complaint = String::new();
        self.stdout.read_to_string(&mut String::new()).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        (self.child.wait().unwrap().code(), complaint)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running client.
pub(crate) struct Client(Option<Child>);

impl Client {
    /// Waits for exit status 0, and returns what the client printed, which must be JSON.
    pub(crate) fn end(mut self) -> Vec<Value> {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        objects(&output)
    }

    pub(crate) fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a client for this server.
pub(crate) fn client(server: &Server, words: &str) -> Client {
    client_in(None, server, words)
}

pub(crate) fn client_in(namespace: Option<&str>, server: &Server, words: &str) -> Client {
    let mut command = ack(namespace);
    command.args(["client", "--json", "-p", &server.port.to_string()]);
    command.args(words.split_whitespace());
    Client(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
}

fn objects(output: &Output) -> Vec<Value> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{:?}: {complaint}", output.status);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// Waits until no such process exists any more, not even as a zombie.
pub(crate) fn gone(pid: u64) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Returns the milliseconds from the segment's departure to its ACK.
pub(crate) fn delay_ms(segment: &Value) -> f64 {
    segment["ack_delay_us"].as_f64().unwrap_or_else(|| panic!("{segment}")) / 1e3
}
