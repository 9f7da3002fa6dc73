//! Plays a script on a host: one line after the other, each at its time.
//!
//! A packet must be sent when the script says, and nothing else before: unexpected packets are found
//! before the next event, and at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::conversation::{Conversation, octet};
use crate::host::{Answer, Host, HostError, Sent};
use crate::language::{Call, Line, Script, Segment, Step, Wanted};

/// A script fails on a host.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}\n{trace}")]
pub struct Failure {
    /// Number of the line, from 1.
    pub line: usize,
    /// The difference.
    pub message: String,
    /// The events so far, with times.
    pub trace: String,
    /// The longest delay of the player itself, beyond the waits of the script: events that are due
    /// meanwhile come in another order than is written, so a long delay makes the verdict void.
    pub held_up: Duration,
}

/// The interval within which something was done, when the host's timers started.
#[derive(Debug, Clone, Copy)]
struct Mark {
    before: Duration,
    after: Duration,
}

struct Player<'a> {
    host: &'a mut dyn Host,
    talk: Conversation,
    mark: Mark,
    /// Time that was lost between lines since the last one that had to wait: a timer that an earlier
    /// line started is due so much earlier.
    lost: Duration,
    held_up: Duration,
    /// Octets that each socket has read and written.
    read: BTreeMap<char, usize>,
    written: BTreeMap<char, usize>,
    trace: String,
}

/// Plays the lines of a script that are for this host, and returns the events with times.
///
/// # Errors
///
/// [`Failure`] gives the difference and the line.
pub fn play(script: &Script, host: &mut dyn Host) -> Result<String, Failure> {
    let now = host.now();
    let side = host.side();
    let mut player = Player {
        host,
        talk: Conversation::default(),
        mark: Mark { before: now, after: now },
        lost: Duration::ZERO,
        held_up: Duration::ZERO,
        read: BTreeMap::new(),
        written: BTreeMap::new(),
        trace: String::new(),
    };
    let lines = script.lines.iter().filter(|line| line.side.is_none_or(|only| only == side));
    let mut last = 0;
    for line in lines {
        last = line.number;
        player.line(line).map_err(|message| player.failure(line.number, message))?;
    }
    player.nothing_left().map_err(|message| player.failure(last, message))?;
    Ok(player.trace)
}

fn broken(error: HostError) -> String {
    error.to_string()
}

impl Player<'_> {
    fn failure(&self, line: usize, message: String) -> Failure {
        Failure { line, message, trace: self.trace.clone(), held_up: self.held_up }
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        if let Step::Expect(segment) = &line.step {
            return self.expect(segment, line.after);
        }
        let due = self.mark.after + line.after;
        self.host.sleep_until(due).map_err(broken)?;
        self.nothing_left()?;
        let before = self.host.now();
        let late = before.saturating_sub(due);
        self.held_up = self.held_up.max(late);
        if line.after.is_zero() {
            self.lost += late;
        } else {
            self.lost = Duration::ZERO;
        }
        match &line.step {
            Step::Inject(segment) => {
                let packet = self.talk.speak(segment);
                self.note(before, &format!("{}< {segment}", segment.connection));
                self.host.inject(&packet).map_err(broken)?;
            }
            Step::Call(call, wanted) => self.call(before, call, *wanted)?,
            Step::Nothing | Step::Expect(_) => {}
        }
        let after = self.host.now();
        self.lost += after.saturating_sub(before);
        self.mark = Mark { before, after };
        Ok(())
    }

    fn note(&mut self, at: Duration, text: &str) {
        let _ = writeln!(self.trace, "{:>12.3} ms  {text}", at.as_secs_f64() * 1e3);
    }

    /// Checks that no packet was sent unexpectedly by now.
    fn nothing_left(&mut self) -> Result<(), String> {
        let now = self.host.now();
        match self.host.next(now).map_err(broken)? {
            Some(sent) => {
                let heard = self.hear(&sent)?;
                Err(format!("not expected: {}> {heard}", heard.connection))
            }
            None => Ok(()),
        }
    }

    fn hear(&mut self, sent: &Sent) -> Result<Segment, String> {
        let heard = self.talk.hear(&sent.bytes);
        let heard = heard.map_err(|error| format!("a packet cannot be read: {error}"))?;
        self.note(sent.at, &format!("{}> {heard}", heard.connection));
        Ok(heard)
    }

    fn expect(&mut self, segment: &Segment, after: Duration) -> Result<(), String> {
        let tolerance = self.host.tolerance();
        let wanted = self.talk.expect(segment);
        let latest = self.mark.after + after + tolerance.lateness(after);
        let Some(sent) = self.host.next(latest).map_err(broken)? else {
            let connection = segment.connection;
            return Err(format!("nothing came in time; expected {connection}> {}", wanted.0));
        };
        let heard = self.hear(&sent)?;
        if let Some(difference) = self.talk.difference(&wanted, &heard) {
            return Err(format!("{difference}, got {}> {heard}", heard.connection));
        }
        let early = tolerance.early + if after.is_zero() { Duration::ZERO } else { self.lost };
        let earliest = (self.mark.before + after).saturating_sub(early);
        if sent.at < earliest || sent.at > latest {
            let took = sent.at.saturating_sub(self.mark.after).as_secs_f64() * 1e3;
            let due = after.as_secs_f64() * 1e3;
            return Err(format!("came after {took:.1} ms instead of {due:.1} ms: {wanted:?}"));
        }
        if !after.is_zero() {
            self.lost = Duration::ZERO;
        }
        self.mark = Mark { before: sent.at, after: sent.at.max(self.mark.after) };
        Ok(())
    }

    fn call(&mut self, at: Duration, call: &Call, wanted: Wanted) -> Result<(), String> {
        let data: Vec<u8> = match call {
            Call::Send { socket, bytes, .. } => {
                let place = self.written.get(socket).copied().unwrap_or_default();
                (place..place + bytes).map(octet).collect()
            }
            _ => Vec::new(),
        };
        let answer = self.host.call(call, &data).map_err(broken)?;
        let (said, text) = match &answer {
            Answer::Done(count) => (Wanted::Done(*count), count.to_string()),
            Answer::Read(octets) => (Wanted::Done(octets.len()), octets.len().to_string()),
            Answer::Failed(errno) => (Wanted::Failed(*errno), format!("{errno:?}")),
        };
        self.note(at, &format!("{call:?} = {text}"));
        match (call, &answer) {
            (Call::Accept(name) | Call::Connect(name), _) => {
                self.read.remove(name);
                self.written.remove(name);
            }
            (Call::Send { socket, .. }, Answer::Done(count)) => {
                *self.written.entry(*socket).or_default() += count;
            }
            (Call::Recv { socket, .. }, Answer::Read(octets)) => {
                let place = self.read.entry(*socket).or_default();
                let good = (*place..).map(octet).zip(octets).all(|(good, &found)| good == found);
                *place += octets.len();
                if !good {
                    return Err("what was read is not what the peer has sent".to_owned());
                }
            }
            _ => {}
        }
        let holds = match (wanted, said) {
            (Wanted::Time(due), Wanted::Done(micros)) => {
                let told = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
                let tolerance = self.host.tolerance();
                due.saturating_sub(told) <= tolerance.early
                    && told.saturating_sub(due) <= tolerance.lateness(due)
            }
            _ => said == wanted,
        };
        if holds { Ok(()) } else { Err(format!("it said {text}, not {wanted:?}")) }
    }
}
