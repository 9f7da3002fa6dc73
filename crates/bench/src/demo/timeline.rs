//! One logical packet, recorded call by call at both ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::clock::Monotonic;
use crate::launch::{Job, Way};
use crate::place::{Cores, Place, pin};
use crate::process::run_to_end;
use crate::progress::Progress;
use crate::roles::{Packet, Record};
use crate::segments::data_segments_in;
use crate::toolbox::Toolbox;

/// Writes of two bytes in the logical packet: few enough to be drawn.
pub(crate) const WRITES: usize = 5;
const WRITE_BYTES: usize = 2;

/// The setting of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The program alone, without an option.
    Nothing,
    /// The program alone, with TCP_NODELAY.
    Nodelay,
    /// The first setting again, under `uncork run`.
    Uncork,
}

/// One logical packet. Times are microseconds from its first write.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// Its setting.
    pub(crate) subject: Subject,
    /// When the client made each write.
    pub(crate) writes: Vec<f64>,
    /// When the server had read data, and how many bytes.
    pub(crate) reads: Vec<(f64, usize)>,
    /// When the server wrote the reply.
    pub(crate) answered: f64,
    /// When the client had received the reply.
    pub(crate) replied: f64,
    /// Segments that a logical packet of this run took.
    pub(crate) segments: f64,
}

/// One logical packet as the server saw it.
struct Seen {
    reads: Vec<(Monotonic, usize)>,
    answered: Monotonic,
}

/// Records one logical packet of each subject.
pub(crate) fn record(tools: &Toolbox, progress: &Progress) -> Result<Vec<Timeline>> {
    let subjects = [Subject::Nothing, Subject::Nodelay, Subject::Uncork];
    let cores = Place::TwoCores.cores().or_else(|_| Place::OneCore.cores())?;
    progress.begin(subjects.len());
    let mut timelines = Vec::new();
    for subject in subjects {
        progress.on("recording");
        timelines.push(exchange(tools, subject, cores)?);
        progress.done();
    }
    Ok(timelines)
}

fn exchange(tools: &Toolbox, subject: Subject, cores: Cores) -> Result<Timeline> {
    let (packets, way) = match subject {
        Subject::Nothing => (9, Way::Plain),
        Subject::Nodelay => (301, Way::Plain),
        Subject::Uncork => (301, Way::Run(&[])),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
    let port = listener.local_addr()?.port();
    let (result, seen) = mpsc::channel();
    // The kernel acknowledges the first packets more quickly than later ones, so they are left out.
    let begin = packets / 3;
    thread::spawn(move || {
        let _ = result.send(pin(cores.server).and_then(|()| serve(&listener, begin)));
    });
    let mut job = Job::new(&tools.bench)
        .args(["role", "exchange", &port.to_string(), "--packets", &packets.to_string()])
        .args(["--writes", &WRITES.to_string()])
        .way(&way)
        .core(cores.client);
    if subject == Subject::Nodelay {
        job = job.arg("--no-delay");
    }
    let text = run_to_end(job.command(tools)?, "the recorded client", Duration::from_secs(60))?;
    let record: Record = serde_json::from_str(&text).context("understanding the client")?;
    let (seen, segments) = seen
        .recv_timeout(Duration::from_secs(10))
        .context("the recording server does not end")??;
    ensure!(seen.len() == record.packets.len(), "client and server saw different packets");
    let segments = f64::from(segments) / (seen.len() - begin) as f64;
    let timelines = record.packets.iter().zip(&seen);
    let timelines = timelines.map(|(sent, seen)| timeline((subject, segments), sent, seen));
    typical(timelines.skip(begin).collect()).context("nothing was recorded")
}

/// Returns the timeline of median length.
fn typical(mut timelines: Vec<Timeline>) -> Option<Timeline> {
    timelines.sort_by(|a, b| a.replied.total_cmp(&b.replied));
    let middle = timelines.len() / 2;
    (!timelines.is_empty()).then(|| timelines.swap_remove(middle))
}

fn timeline((subject, segments): (Subject, f64), sent: &Packet, seen: &Seen) -> Timeline {
    let start = sent.writes.first().copied().unwrap_or(sent.reply);
    let us = |at: Monotonic| at.since(start).as_secs_f64() * 1e6;
    Timeline {
        subject,
        writes: sent.writes.iter().map(|&at| us(at)).collect(),
        reads: seen.reads.iter().map(|&(at, bytes)| (us(at), bytes)).collect(),
        answered: us(seen.answered),
        replied: us(sent.reply),
        segments,
    }
}

impl Timeline {
    /// Returns the read that completed a write.
    pub(crate) fn read_of(&self, write: usize) -> Option<usize> {
        let wanted = (write + 1) * WRITE_BYTES;
        let mut bytes = 0;
        self.reads.iter().position(|(_, read)| {
            bytes += read;
            bytes >= wanted
        })
    }
}

/// Answers logical packets until the client closes; returns what was seen, and the segments from
/// packet number `begin` on.
fn serve(listener: &TcpListener, begin: usize) -> Result<(Vec<Seen>, u32)> {
    let (mut socket, peer) = listener.accept().context("accepting")?;
    let local = socket.local_addr()?;
    let (mut packets, mut before) = (Vec::new(), 0);
    loop {
        let mut missing = WRITES * WRITE_BYTES;
        let mut reads = Vec::new();
        let mut buffer = [0; WRITES * WRITE_BYTES];
        while missing > 0 {
            let bytes = socket.read(&mut buffer[..missing]).context("reading")?;
            if bytes == 0 {
                return Ok((packets, data_segments_in(local, peer)? - before));
            }
            reads.push((Monotonic::now()?, bytes));
            missing -= bytes;
        }
        if packets.len() + 1 == begin {
            before = data_segments_in(local, peer)?;
        }
        let answered = Monotonic::now()?;
        socket.write_all(b"ok").context("answering")?;
        packets.push(Seen { reads, answered });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(reads: Vec<(f64, usize)>, replied: f64) -> Timeline {
        let writes = (0..WRITES).map(|write| write as f64).collect();
        Timeline { subject: Subject::Nodelay, writes, reads, answered: 0.0, replied, segments: 1.0 }
    }

    #[test]
    fn a_write_belongs_to_the_read_that_completed_it() {
        let timeline = sample(vec![(5.0, 3), (6.0, 7)], 9.0);
        let reads: Vec<_> = (0..WRITES).map(|write| timeline.read_of(write)).collect();
        assert_eq!(reads, [Some(0), Some(1), Some(1), Some(1), Some(1)]);
    }

    #[test]
    fn the_typical_one_is_neither_the_fastest_nor_the_slowest() {
        let all = [30.0, 10.0, 20.0].map(|replied| sample(vec![], replied)).to_vec();
        assert_eq!(typical(all).unwrap().replied, 20.0);
        assert!(typical(Vec::new()).is_none());
    }
}
