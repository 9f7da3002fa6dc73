//! One socket, from poll to poll.

use std::time::Duration;

use uncork_doctor::live::{Ends, Held, Options, Origin, Queue, Release, Socket, Who, Why, Writing};
use uncork_doctor::{Histogram, Process};
use uncork_sockdiag::{Answer, Name, TcpInfo};

use super::super::ends;
use super::super::options;
use super::super::processes::Owners;

/// Shorter holds are not reported: what is seen of them is not exact enough.
pub(super) const LEAST_HOLD: Duration = Duration::from_millis(5);
/// A cork's ceiling: 200 ms, less the possible delay of a poll.
const CEILING: Duration = Duration::from_millis(180);

/// A socket as it was at the first and at the last poll.
pub(super) struct Seen {
    pub(super) inode: u64,
    pub(super) ends: Ends,
    pub(super) name: Name,
    pub(super) since: Duration,
    first: TcpInfo,
    last: TcpInfo,
    at: Duration,
    waits: Option<Waiting>,
    /// Whether TCP_NODELAY was in force when it was last read.
    pub(super) nodelay: Option<bool>,
}

/// Bytes that are held.
struct Waiting {
    since: Duration,
    segments_out: u32,
    bytes: u32,
    outstanding: u32,
    why: Why,
}

impl Seen {
    pub(super) fn new(answer: &Answer, now: Duration) -> Self {
        Self {
            inode: answer.inode,
            ends: ends(answer),
            name: answer.name.clone(),
            since: now,
            first: answer.info.clone(),
            last: answer.info.clone(),
            at: now,
            waits: None,
            nodelay: None,
        }
    }

    /// Reads the socket's options.
    pub(super) fn ask(&mut self, processes: &Owners) {
        let known = processes.known(self.inode);
        let asked = known.and_then(|process| options::nodelay(&process, self.inode));
        self.nodelay = asked.or(self.nodelay);
    }

    /// Takes in a poll; returns a hold that is over.
    pub(super) fn look(&mut self, info: TcpInfo, now: Duration, cookie: u64) -> Option<Held> {
        let over = self.waits.as_ref().is_some_and(|waiting| {
            info.notsent_bytes == 0 || info.data_segs_out != waiting.segments_out
        });
        let held = if over { self.waits.take() } else { None };
        let held = held.and_then(|waiting| self.held(&waiting, &info, now, cookie));
        if self.waits.is_none() && info.notsent_bytes > 0 {
            self.waits = why(&info, self.nodelay).map(|why| Waiting {
                // It was last sent, or written, that long ago.
                since: now
                    .saturating_sub(Duration::from_millis(info.last_data_sent.into()))
                    .max(self.at),
                segments_out: info.data_segs_out,
                bytes: info.notsent_bytes,
                outstanding: info.unacked.saturating_mul(info.snd_mss),
                why,
            });
        }
        (self.last, self.at) = (info, now);
        held
    }

    fn held(&self, waiting: &Waiting, info: &TcpInfo, now: Duration, cookie: u64) -> Option<Held> {
        // It was sent between the last poll and this one; TCP says when it last sent. That may have
        // been other data: then all that is known is that it waited at the last poll.
        let sent = now.saturating_sub(Duration::from_millis(info.last_data_sent.into()));
        let only = info.data_segs_out.wrapping_sub(waiting.segments_out) <= 1;
        let end = if only { sent.clamp(self.at, now) } else { self.at.max(waiting.since) };
        let took = end.saturating_sub(waiting.since);
        let release = match waiting.why {
            Why::Cork if took < CEILING => return None,
            _ if took < LEAST_HOLD => return None,
            Why::Cork => Release::Timer,
            _ => Release::Ack,
        };
        Some(Held {
            socket: cookie,
            ends: self.ends,
            writer: Who::default(),
            inode: self.inode,
            why: waiting.why,
            release,
            begin: waiting.since,
            end,
            message_begin: waiting.since,
            offset: info.bytes_acked,
            bytes: waiting.bytes,
            outstanding_bytes: waiting.outstanding,
            before_bytes: 0,
            mss: info.snd_mss,
            nodelay: self.nodelay == Some(true),
            min_rtt: Duration::from_micros(info.min_rtt.into()),
            stack: Vec::new(),
        })
    }

    /// Returns all that is known of it.
    pub(super) fn told(self, cookie: u64, process: Option<&Process>) -> Socket {
        let (first, last) = (&self.first, &self.last);
        let who = process.map_or_else(Who::default, |process| Who {
            pid: process.pid,
            tid: process.pid,
            name: process.name.clone(),
        });
        let us = Duration::from_micros;
        Socket {
            socket: cookie,
            ends: self.ends,
            origin: Origin::Found,
            owner: who,
            writer: Who::default(),
            inode: self.inode,
            fd: process.and_then(|process| process.fd),
            since: self.since,
            until: self.at,
            segments_out: last.data_segs_out.wrapping_sub(first.data_segs_out),
            segments_in: last.data_segs_in.wrapping_sub(first.data_segs_in),
            bytes_out: last.bytes_sent.saturating_sub(first.bytes_sent),
            bytes_in: last.bytes_received.saturating_sub(first.bytes_received),
            retransmissions: last.total_retrans.wrapping_sub(first.total_retrans),
            window_limited: us(last.rwnd_limited.saturating_sub(first.rwnd_limited)),
            busy: us(last.busy_time.saturating_sub(first.busy_time)),
            options: Options::default(),
            writing: Writing::default(),
            turns: Histogram::new(),
            turn_time: Duration::ZERO,
            waits: Histogram::new(),
            wait_time: Duration::ZERO,
            short_holds: (0, Duration::ZERO),
            queue: Queue::default(),
            srtt: us(last.rtt.into()),
            min_rtt: us(last.min_rtt.into()),
            mss: last.snd_mss,
            ack_timers: 0,
            awaited_acks: 0,
            awaited_ack_time: Duration::ZERO,
        }
    }
}

/// Returns why a small rest is not sent, as far as the counters tell: with data in flight it is
/// Nagle's algorithm, without it is a cork, or the window.
fn why(info: &TcpInfo, nodelay: Option<bool>) -> Option<Why> {
    if info.unacked == 0 && info.snd_wnd < info.snd_mss && info.snd_wnd < info.notsent_bytes {
        return Some(Why::WindowShut);
    }
    if info.notsent_bytes >= info.snd_mss || info.unacked >= info.snd_cwnd {
        return None;
    }
    // Under TCP_NODELAY only a cork, or MSG_MORE, holds it.
    let nagle = info.unacked > 0 && nodelay != Some(true);
    Some(if nagle { Why::Nagle } else { Why::Cork })
}
