//! Programs that stall: each writes its request in two parts and waits for the reply, over and over,
//! and prints how many microseconds that took. They know nothing of TCP_NODELAY.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::common::compile;
use crate::place::Place;

pub(crate) const PYTHON: &str = r"
import socket, threading, time
listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen()
def serve():
    peer = listener.accept()[0]
    while True:
        got = 0
        while got < 30: got += len(peer.recv(30 - got))
        peer.send(b'x' * 10)
threading.Thread(target=serve, daemon=True).start()
print(listener.getsockname()[1], flush=True)
s = socket.create_connection(listener.getsockname())
while True:
    begin = time.monotonic()
    s.send(b'a' * 10); s.send(b'b' * 20); s.recv(10)
    print(int((time.monotonic() - begin) * 1e6), flush=True)
    time.sleep(0.002)
";

const C: &str = r#"
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), s = socket(AF_INET, SOCK_STREAM, 0), peer;
	char bytes[30] = { 0 };
	struct timespec from, to;

	if (bind(listener, (void *)&at, size) || listen(listener, 1) ||
	    getsockname(listener, (void *)&at, &size))
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%d\n", ntohs(at.sin_port));
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		peer = accept(listener, NULL, NULL);
		for (;;) {
			if (recv(peer, bytes, 30, MSG_WAITALL) != 30 || write(peer, bytes, 10) != 10)
				return 1;
		}
	}
	if (connect(s, (void *)&at, size))
		return 1;
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		if (write(s, bytes, 10) != 10 || write(s, bytes, 20) != 20 || read(s, bytes, 10) != 10)
			return 1;
		clock_gettime(CLOCK_MONOTONIC, &to);
		printf("%ld\n", (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
		usleep(2000);
	}
}
"#;

/// Go sets TCP_NODELAY by itself: one that stalls has taken it off.
const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		peer, _ := listener.Accept()
		request := make([]byte, 30)
		for {
			if _, err := io.ReadFull(peer, request); err != nil {
				return
			}
			peer.Write(request[:10])
		}
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	s, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	s.(*net.TCPConn).SetNoDelay(false)
	bytes := make([]byte, 20)
	for {
		begin := time.Now()
		s.Write(bytes[:10])
		s.Write(bytes)
		if _, err := io.ReadFull(s, bytes[:10]); err != nil {
			return
		}
		fmt.Println(time.Since(begin).Microseconds())
		time.Sleep(2 * time.Millisecond)
	}
}
"#;

/// A program that runs in a place; killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    times: Receiver<Duration>,
    pub(crate) port: u16,
}

impl Program {
    pub(crate) fn python(place: &Place) -> Self {
        let mut command = place.command("/usr/bin/python3");
        command.args(["-c", PYTHON]);
        Self::start(command)
    }

    pub(crate) fn of(place: &Place, file: &Path) -> Self {
        Self::start(place.command(file.to_str().unwrap()))
    }

    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap().parse().unwrap();
        let (sender, times) = channel();
        thread::spawn(move || {
            for line in lines {
                let time = Duration::from_micros(line.unwrap().parse().unwrap());
                if sender.send(time).is_err() {
                    break;
                }
            }
        });
        Self { child, times, port }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The median of the requests that begin from now on.
    pub(crate) fn p50(&self) -> Duration {
        while self.times.try_recv().is_ok() {}
        let patience = Duration::from_secs(10);
        // What was under way belongs to what was before, and the next may, too.
        let later = (0..17).map(|_| self.times.recv_timeout(patience).unwrap()).skip(2);
        let mut times: Vec<Duration> = later.collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that no library can be preloaded into.
pub(crate) fn static_c(place: &Place) -> PathBuf {
    let file = place.path("stalls-c");
    compile(C, &file, &["-static", "-O1"]);
    file
}

/// The same in Go; `None` if that is not installed.
pub(crate) fn go(place: &Place) -> Option<PathBuf> {
    let (source, file) = (place.path("stalls.go"), place.path("stalls-go"));
    fs::write(&source, GO).unwrap();
    let mut command = Command::new("go");
    // What it compiles of its own library is kept for the next run.
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    command.env("CGO_ENABLED", "0").arg("build").arg("-o").arg(&file).arg(&source);
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(file)
}
