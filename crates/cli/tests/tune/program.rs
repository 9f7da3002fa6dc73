//! Programs that stall, started in a place ([`uncork_lab::stalling`]).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use uncork_lab::stalling::{C, GO, PYTHON};

use crate::common::{compile, compile_go};
use crate::place::Place;

/// A program running in a place; killed when it is dropped.
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

    /// Returns the median of the requests that begin from now on.
    pub(crate) fn p50(&self) -> Duration {
        while self.times.try_recv().is_ok() {}
        let patience = Duration::from_secs(10);
        // The request in flight belongs to the time before, and the next one may, too.
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

/// A program into which no library can be preloaded.
pub(crate) fn static_c(place: &Place) -> PathBuf {
    let file = place.path("stalls-c");
    compile(C, &file, &["-static", "-O1"]);
    file
}

/// The same in Go; `None` if Go is not installed.
pub(crate) fn go(place: &Place, test: &str) -> Option<PathBuf> {
    let (source, file) = (place.path("stalls.go"), place.path("stalls-go"));
    fs::write(&source, GO).unwrap();
    compile_go(test, &source, &file).then_some(file)
}
