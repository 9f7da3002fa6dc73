//! The processes of instances: started, restarted when they die, and ended.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::failure::Failure;
use crate::guardian::{Orders, begin_instance};
use crate::output::complain;
use crate::stack::signals::Signals;

/// How long all of them may take to start.
const BEGINNING: Duration = Duration::from_secs(10);
/// How often ended processes and signals are checked for meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// An instance that lived at least this long is restarted at once; others are restarted after this time.
const TRIAL: Duration = Duration::from_secs(1);
/// How long they may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// A running instance.
struct Living {
    process: Child,
    /// Readable when it has ended: also where children cannot be waited for, as they are ignored.
    end: OwnedFd,
    since: Instant,
}

impl Living {
    fn start(number: u32, orders: &Orders) -> io::Result<Self> {
        let process = begin_instance(number, orders)?;
        let pid = rustix::process::Pid::from_child(&process);
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { process, end, since: Instant::now() })
    }

    /// Returns how it has ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(how(status)),
            // It cannot be waited for.
            Err(_) => Some("has ended".to_owned()),
        }
    }

    /// Asks it to end, with this signal.
    fn tell(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // It is our child and was not waited for: the number is still its own.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// The slot of an instance, whether that runs or not.
struct Place<'a> {
    orders: &'a Orders,
    living: Option<Living>,
    /// When an instance that has died is restarted.
    again: Option<Instant>,
}

/// All instances, in the order of their numbers.
pub(super) struct Instances<'a>(Vec<Place<'a>>);

impl Drop for Instances<'_> {
    fn drop(&mut self) {
        for living in self.0.iter_mut().filter_map(|place| place.living.as_mut()) {
            let _ = living.process.kill();
            let _ = living.process.wait();
        }
    }
}

impl<'a> Instances<'a> {
    pub(super) fn start(orders: &'a [Orders]) -> Result<Self, Failure> {
        let mut all = Self(Vec::new());
        for (number, orders) in (0..).zip(orders) {
            let living = Living::start(number, orders)
                .map_err(|error| Failure::left(not_started(number, &error)))?;
            all.0.push(Place { orders, living: Some(living), again: None });
        }
        Ok(all)
    }

    /// Waits until the guardian has heard of each. Returns false if a signal has ended that.
    pub(super) fn wait_until_up(
        &mut self,
        comes: &Receiver<u32>,
        signals: &Signals,
    ) -> Result<bool, Failure> {
        let begun = Instant::now();
        let mut missing: Vec<_> = (0..).take(self.0.len()).collect::<Vec<u32>>();
        while !missing.is_empty() {
            match comes.recv_timeout(LOOK) {
                Ok(number) => missing.retain(|other| *other != number),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(guardian_gone()),
            }
            if signals.have_come() {
                return Ok(false);
            }
            if let Some((number, how)) = self.ended().next() {
                return Err(Failure::left(format!(
                    "instance {number} of the stack {how} before it has begun"
                )));
            }
            if begun.elapsed() >= BEGINNING {
                return Err(Failure::left(format!(
                    "instance {} of the stack has not begun within {BEGINNING:?}",
                    missing[0]
                )));
            }
        }
        Ok(true)
    }

    /// Restarts instances that have died, until a signal asks all to end.
    pub(super) fn look_after(
        &mut self,
        signals: &Signals,
        guardian: &UnixStream,
    ) -> Result<(), Failure> {
        loop {
            self.wait(signals, Some(guardian), self.next_start())?;
            if signals.have_come() {
                return Ok(());
            }
            if has_closed(guardian) {
                return Err(guardian_gone());
            }
            let ended: Vec<_> = self.ended().collect();
            for (number, how) in ended {
                self.bury(number, &how);
            }
            self.start_again();
        }
    }

    /// Asks all to end, and waits for them; a second signal ends the wait.
    pub(super) fn end(mut self, signals: &Signals) {
        self.0
            .iter()
            .filter_map(|place| place.living.as_ref())
            .for_each(|it| it.tell(Signal::SIGTERM));
        let until = Instant::now() + GRACE;
        while self.0.iter().any(|place| place.living.is_some())
            && Instant::now() < until
            && !signals.have_come()
        {
            if self.wait(signals, None, Some(until)).is_err() {
                break;
            }
            let ended: Vec<_> = self.ended().map(|(number, _)| number).collect();
            for number in ended {
                self.0[number as usize].living = None;
            }
        }
        // The instances that are left are killed.
    }

    /// Returns the instances that have ended, and how.
    fn ended(&mut self) -> impl Iterator<Item = (u32, String)> {
        (0..)
            .zip(&mut self.0)
            .filter_map(|(number, place)| Some((number, place.living.as_mut()?.ended()?)))
    }

    fn bury(&mut self, number: u32, how: &str) {
        let place = &mut self.0[number as usize];
        let Some(dead) = place.living.take() else { return };
        let pid = dead.process.id();
        complain(format!(
            "instance {number} of the stack (process {pid}) {how}: its connections are reset, and it is started again"
        ));
        let waits = if dead.since.elapsed() >= TRIAL { Duration::ZERO } else { TRIAL };
        place.again = Some(Instant::now() + waits);
    }

    fn start_again(&mut self) {
        let now = Instant::now();
        for (number, place) in (0..).zip(&mut self.0) {
            if place.again.is_none_or(|again| again > now) {
                continue;
            }
            match Living::start(number, place.orders) {
                Ok(living) => (place.living, place.again) = (Some(living), None),
                Err(error) => {
                    complain(format!("{}; it is tried again", not_started(number, &error)));
                    place.again = Some(now + TRIAL);
                }
            }
        }
    }

    fn next_start(&self) -> Option<Instant> {
        self.0.iter().filter_map(|place| place.again).min()
    }

    /// Sleeps until an instance has ended, a signal has come, the guardian has ended or the time is up.
    fn wait(
        &self,
        signals: &Signals,
        guardian: Option<&UnixStream>,
        until: Option<Instant>,
    ) -> Result<(), Failure> {
        let mut asked = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        asked.extend(guardian.map(|guardian| PollFd::new(guardian, PollFlags::IN)));
        let living = self.0.iter().filter_map(|place| place.living.as_ref());
        asked.extend(living.map(|living| PollFd::new(&living.end, PollFlags::IN)));
        let cannot = |error| Failure::left(format!("instances cannot be waited for: {error}"));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose();
        let left = left.map_err(|error| cannot(io::Error::other(error)))?;
        match poll(&mut asked, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(cannot(error.into())),
        }
    }
}

/// Returns whether the guardian has ended: it sends nothing, so what can be read is end of file.
fn has_closed(guardian: &UnixStream) -> bool {
    let mut asked = [PollFd::new(guardian, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn guardian_gone() -> Failure {
    Failure::left("the guardian of the stack is gone, and its instances with it")
}

fn not_started(number: u32, error: &io::Error) -> String {
    format!("instance {number} of the stack cannot be started: {error}")
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;

    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
            format!("was ended by a signal ({name})")
        }
        (None, code) => format!("has ended with status {}", code.unwrap_or_default()),
    }
}
