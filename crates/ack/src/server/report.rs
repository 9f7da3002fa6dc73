//! The output for a connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use crate::arguments::Server;
use crate::error::Error;
use crate::kernel;
use crate::ledger::Segment;
use crate::output::{milliseconds, say, say_json};
use crate::sockets::Known;
use crate::verdict::{Sample, Setting, judge};

/// Segments on which the verdict is based; the rest of a long run would only fill memory.
const MOST_SAMPLES: usize = 1_000_000;

/// Version of the format of the JSON objects.
const VERSION: u32 = 1;

/// The lines of one connection, and the list on which its verdict is based.
pub(super) struct Report<'a> {
    options: &'a Server,
    /// The number of the connection on this server.
    number: &'a str,
    samples: Vec<Sample>,
    /// Size of all segments so far, and whether they all had the same.
    segment_bytes: Option<u64>,
    uniform: bool,
    segments: u64,
    untimed: u64,
    resent: u64,
}

impl<'a> Report<'a> {
    pub(super) fn begin(
        options: &'a Server,
        number: &'a str,
        peer: SocketAddr,
        round_trip: Duration,
    ) -> Result<Self, Error> {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let pid = std::process::id();
        if options.json {
            say_json(&json!({
                "event": "connection", "version": VERSION, "connection": number,
                "peer": peer.to_string(), "pid": pid,
                "round_trip_us": us(round_trip), "buffer_bytes": options.buffer,
            }))?;
        } else {
            say(format_args!(
                "[{number}] connection from {peer}, served by process {pid}, round trip {} ms",
                milliseconds(round_trip)
            ))?;
        }
        Ok(Self {
            options,
            number,
            samples: Vec::new(),
            segment_bytes: None,
            uniform: true,
            segments: 0,
            untimed: 0,
            resent: 0,
        })
    }

    /// Reports an acknowledged segment, given how many segments with data had come from the receiver.
    pub(super) fn segment(&mut self, segment: &Segment, came_in: u32) -> Result<(), Error> {
        self.segments += 1;
        self.uniform &= *self.segment_bytes.get_or_insert(segment.bytes) == segment.bytes;
        self.resent += u64::from(segment.resent);
        match segment.ack_delay {
            None => self.untimed += 1,
            Some(_) if segment.resent => {}
            Some(delay) if self.samples.len() < MOST_SAMPLES => self.samples.push(Sample {
                delay,
                shares_ack: segment.shares_ack,
                receiver_segments: came_in,
            }),
            Some(_) => {}
        }
        if self.options.quiet {
            Ok(())
        } else if self.options.json {
            say_json(&json!({
                "event": "segment", "connection": self.number, "number": self.segments,
                "first_write": segment.first, "last_write": segment.last,
                "bytes": segment.bytes,
                "held_us": segment.held.map(us), "ack_delay_us": segment.ack_delay.map(us),
                "shares_ack": segment.shares_ack, "resent": segment.resent,
            }))
        } else {
            say(format_args!("[{}] segment {}: {}", self.number, self.segments, line(segment)))
        }
    }

    /// Prints the end of the connection and the verdict.
    pub(super) fn end(self, bytes: u64, open: usize, known: Known, why: &str) -> Result<(), Error> {
        let setting = Setting {
            round_trip: known.shortest_round_trip,
            late_after: self.options.late,
            segment_bytes: self.segment_bytes.filter(|_| self.uniform),
            pause: self.options.sleep.max(self.options.pace()),
        };
        let verdict = judge(&self.samples, &setting);
        let (local, number) = (kernel::local(), self.number);
        let remarks = verdict.remarks(local);
        if self.options.json {
            return say_json(&json!({
                "event": "verdict", "version": VERSION, "connection": number,
                "ended_by": why, "bytes": bytes, "segments": self.segments,
                "untimed": self.untimed, "resent": self.resent,
                "unacknowledged_writes": open, "retransmitted": known.retransmitted,
                "round_trip_us": us(known.shortest_round_trip), "late_after_us": us(setting.late_after),
                "verdict": verdict, "sentence": verdict.to_string(), "remarks": remarks,
                "local_kernel": local,
            }));
        }
        say(format_args!(
            "[{number}] ended by {why}: {bytes} bytes, {} segments, {} sent again, {open} writes \
             not acknowledged{}",
            self.segments,
            known.retransmitted,
            match self.untimed {
                0 => String::new(),
                untimed => format!(", {untimed} time stamps lost"),
            }
        ))?;
        say(format_args!("[{number}] {verdict}"))?;
        remarks.iter().try_for_each(|remark| say(format_args!("[{number}]   {remark}")))
    }
}

/// Formats `ACK after 40.0 ms`, and anything out of the ordinary.
fn line(segment: &Segment) -> String {
    let mut text = match segment.ack_delay {
        Some(delay) => format!("ACK after {} ms", milliseconds(delay)),
        None => "acknowledged, its time stamp was lost".to_owned(),
    };
    if segment.first != segment.last {
        text += &format!(", {} writes", segment.last - segment.first + 1);
    }
    // The time of the call itself is not reported; a hold by Nagle's algorithm is.
    if let Some(held) = segment.held.filter(|held| *held >= Duration::from_millis(1)) {
        text += &format!(", held for {} ms after the write", milliseconds(held));
    }
    if segment.shares_ack {
        text += ", the same ACK as the one before";
    }
    if segment.resent {
        text += ", sent again";
    }
    text
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_out_of_the_ordinary() {
        let plain = Segment {
            first: 7,
            last: 7,
            bytes: 1024,
            held: Some(Duration::from_micros(12)),
            ack_delay: Some(Duration::from_micros(40_100)),
            shares_ack: false,
            resent: false,
        };
        assert_eq!(line(&plain), "ACK after 40.1 ms");
        let odd = Segment {
            last: 9,
            held: Some(Duration::from_millis(38)),
            ack_delay: Some(Duration::from_micros(21)),
            shares_ack: true,
            resent: true,
            ..plain
        };
        assert_eq!(
            line(&odd),
            "ACK after 0.021 ms, 3 writes, held for 38.0 ms after the write, the same ACK as the \
             one before, sent again"
        );
    }
}
