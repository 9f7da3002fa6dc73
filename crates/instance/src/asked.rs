//! The instance's report on itself (`uncork stack stat PID`), made beside its work: some connections a turn, and written by a
//! thread, so that a slow reader holds up nobody.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use uncork_stack::SocketId;
use uncork_stat::{ByQueue, Connection, Counts, End, Running};

use crate::floor::Floor;
use crate::link::Link;

/// How long the asker may take to read the report.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are looked at in one turn: some ten microseconds.
const AT_ONCE: usize = 16;

/// A report that is being made.
#[derive(Debug)]
pub(crate) struct Telling {
    to: UnixStream,
    left: Vec<(usize, SocketId)>,
    lines: Vec<u8>,
}

impl Telling {
    pub(crate) fn begin(floor: &mut Floor, begun: Instant, to: OwnedFd) -> Self {
        let mut lines = Vec::new();
        uncork_stat::put(&mut lines, &floor.about(begun.elapsed()));
        let links = floor.links().iter_mut().enumerate();
        let left = links
            .flat_map(|(at, link)| link.stack().sockets().map(|id| (at, id)).collect::<Vec<_>>())
            .collect();
        Self { to: UnixStream::from(to), left, lines }
    }

    /// Looks at some more connections. Returns nothing when all were looked at.
    pub(crate) fn go_on(mut self, floor: &mut Floor) -> Option<Self> {
        for (link, id) in self.left.split_off(self.left.len().saturating_sub(AT_ONCE)) {
            let (link, now) = floor.link(link);
            // The connection may have ended since.
            if let Some(info) = link.stack().info(now, id) {
                uncork_stat::put(&mut self.lines, &Connection::from(&info));
            }
        }
        if !self.left.is_empty() {
            return Some(self);
        }
        uncork_stat::put(&mut self.lines, &End::new());
        // The asker may be gone, or there may be no memory for a thread: then it finds the report without its end.
        let _ = thread::Builder::new().name("report".to_owned()).spawn(move || self.write());
        None
    }

    fn write(mut self) -> io::Result<()> {
        self.to.set_write_timeout(Some(PATIENCE))?;
        self.to.write_all(&self.lines)
    }
}

impl Floor {
    fn about(&mut self, age: Duration) -> Running {
        let mut counts = Counts::default();
        for link in self.links() {
            counts += Counts::from(link.stack().counters());
        }
        let frames_lost = self.links().iter_mut().filter_map(Link::lost).reduce(|a, b| a + b);
        let by_queue = self.links().iter_mut().filter_map(Link::by_queue).reduce(ByQueue::and);
        let programs = self.guest_count();
        let names: Vec<_> = self.links.iter().map(|link| link.name().to_owned()).collect();
        Running {
            pid: std::process::id(),
            does: format!(
                "an instance of {programs} {}",
                if programs == 1 { "process" } else { "processes" }
            ),
            device: names.join(", "),
            without: self.without.clone(),
            addresses: self.places().collect(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            counts,
            frames_lost,
            by_queue,
        }
    }
}
