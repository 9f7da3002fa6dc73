//! Watching without privilege: the kernel's counters of each socket, again and again. A stall is
//! seen if it lasts longer than the time between two looks, and is as exact as that.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use netlink_packet_sock_diag::inet::nlas::TcpInfo;
use uncork_doctor::live::{
    Ends, Event, Held, Live, Options, Origin, Queue, Release, Socket, Who, Why, Writing,
};
use uncork_doctor::{Histogram, Process};

use super::monotonic;
use super::processes::{self, Owners};
use super::sockdiag::{Answer, SockDiag};
use super::target::Target;
use crate::failure::Failure;
use crate::output::complain;

/// Between two looks.
const TURN: Duration = Duration::from_millis(10);
/// Looks between two searches for new processes and descriptors.
const TURNS_BETWEEN_SEARCHES: u32 = 20;
/// A cork's ceiling: 200 ms, less what a look may come late.
const CEILING: Duration = Duration::from_millis(180);

/// What this way of watching cannot tell.
const NOT_TOLD: &str = "not told without tracing: stalls shorter than 10 ms, who delays ACKs, which \
                        options the program asks for, the program's own time";

/// Looks until the target is over.
pub(super) fn watch(mut target: Target, live: &mut Live) -> Result<(), Failure> {
    complain(NOT_TOLD);
    let cannot = |error: std::io::Error| {
        Failure::no_permission(format!("nothing is left to look at: sock_diag: {error}"))
    };
    let mut kernel = SockDiag::open().map_err(cannot)?;
    kernel.connections().map_err(cannot)?;
    if let Some(pid) = target.pids.iter().find(|pid| !processes::may_see(**pid)) {
        return Err(Failure::no_permission(format!(
            "nothing is left to look at: the descriptors of process {pid} may not be seen; run it \
             as that process's user, or as root"
        )));
    }
    target.start()?;
    let mut watched = Watched::default();
    let mut turn = 0;
    while !target.is_over() {
        if turn % TURNS_BETWEEN_SEARCHES == 0 {
            watched.search(&target.pids, live);
        }
        turn += 1;
        watched.look(kernel.connections().map_err(cannot)?, live);
        std::thread::sleep(TURN);
    }
    watched.finish(live);
    Ok(())
}

#[derive(Default)]
struct Watched {
    /// Inodes of the sockets of the processes that are watched.
    owners: HashSet<u64>,
    processes: Owners,
    sockets: HashMap<u64, Seen>,
}

/// A socket as it was at the first and at the last look.
struct Seen {
    inode: u64,
    ends: Ends,
    since: Duration,
    first: TcpInfo,
    last: TcpInfo,
    at: Duration,
    waits: Option<Waiting>,
}

/// Bytes that are not sent.
struct Waiting {
    since: Duration,
    segments_out: u32,
    bytes: u32,
    outstanding: u32,
    why: Why,
}

impl Watched {
    fn search(&mut self, pids: &[u32], live: &mut Live) {
        for pid in processes::trees(pids) {
            let sockets = processes::sockets(pid);
            if sockets.iter().any(|(inode, _)| self.owners.insert(*inode)) {
                self.processes.look_into(pid);
                processes::listening(pid).into_iter().for_each(|port| live.listening(port));
            }
        }
    }

    fn look(&mut self, answers: Vec<Answer>, live: &mut Live) {
        let now = monotonic();
        let mut present = HashSet::new();
        for answer in answers {
            let listened = self.sockets.contains_key(&answer.cookie);
            if !listened && !self.owners.contains(&answer.inode) {
                continue;
            }
            present.insert(answer.cookie);
            let seen = self.sockets.entry(answer.cookie).or_insert_with(|| Seen {
                inode: answer.inode,
                ends: answer.ends,
                since: now,
                first: answer.info.clone(),
                last: answer.info.clone(),
                at: now,
                waits: None,
            });
            let held = seen.look(answer.info, now, answer.cookie);
            held.into_iter().for_each(|held| live.event(Event::Held(held)));
        }
        let gone: Vec<u64> =
            self.sockets.keys().filter(|cookie| !present.contains(cookie)).copied().collect();
        for cookie in gone {
            self.end(cookie, live);
        }
    }

    fn end(&mut self, cookie: u64, live: &mut Live) {
        let Some(seen) = self.sockets.remove(&cookie) else { return };
        let process = self.processes.known(seen.inode);
        let ends = seen.ends;
        live.event(Event::Socket(Box::new(seen.told(cookie, process.as_ref()))));
        if let Some(process) = process {
            live.process(ends, process);
        }
    }

    fn finish(&mut self, live: &mut Live) {
        let left: Vec<u64> = self.sockets.keys().copied().collect();
        left.into_iter().for_each(|cookie| self.end(cookie, live));
    }
}

impl Seen {
    /// Takes a look; a hold that is over is told.
    fn look(&mut self, info: TcpInfo, now: Duration, cookie: u64) -> Option<Held> {
        let over = self.waits.as_ref().is_some_and(|waiting| {
            info.notsent_bytes == 0 || info.data_segs_out != waiting.segments_out
        });
        let held = if over { self.waits.take() } else { None };
        let held = held.and_then(|waiting| self.held(&waiting, &info, now, cookie));
        if self.waits.is_none() && info.notsent_bytes > 0 {
            self.waits = why(&info).map(|why| Waiting {
                // It was sent, or written, so long ago.
                since: now
                    .saturating_sub(Duration::from_millis(info.last_data_sent.into()))
                    .max(self.at),
                segments_out: info.data_segs_out,
                bytes: info.notsent_bytes,
                outstanding: info.unacked * info.snd_mss,
                why,
            });
        }
        (self.last, self.at) = (info, now);
        held
    }

    fn held(&self, waiting: &Waiting, info: &TcpInfo, now: Duration, cookie: u64) -> Option<Held> {
        // It went between the last look and this one; TCP says when it last sent.
        let sent = now.saturating_sub(Duration::from_millis(info.last_data_sent.into()));
        let end = sent.clamp(self.at, now);
        let took = end.saturating_sub(waiting.since);
        let release = match waiting.why {
            Why::Cork if took < CEILING => return None,
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
            nodelay: false,
            min_rtt: Duration::from_micros(info.min_rtt.into()),
            stack: Vec::new(),
        })
    }

    fn told(self, cookie: u64, process: Option<&Process>) -> Socket {
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

/// Why a small rest is not sent, as far as the counters tell: with something in flight it is
/// Nagle's algorithm, with nothing it is a cork, or the window.
fn why(info: &TcpInfo) -> Option<Why> {
    if info.unacked == 0 && info.snd_wnd < info.snd_mss && info.snd_wnd < info.notsent_bytes {
        return Some(Why::WindowShut);
    }
    if info.notsent_bytes >= info.snd_mss || info.unacked >= info.snd_cwnd {
        return None;
    }
    Some(if info.unacked > 0 { Why::Nagle } else { Why::Cork })
}
