//! Answers to `uncork stack stat`, over a stream that the guardian has passed on.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use uncork_stack::SocketId;
use uncork_stat::{ByQueue, Connection, Counts, End, Running};

use crate::Sockets;
use crate::link::Link;
use crate::outside::Outside;
use crate::parts::Part;
use crate::table::{Kind, Place};
use crate::world::World;

/// How long a client may take to read what it is told.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are looked at while the stack is locked: some ten microseconds.
const AT_ONCE: usize = 16;

impl<O: Outside> Sockets<O> {
    /// Starts to tell each client that has asked.
    pub(crate) fn answer_askers(&self, part: Part) {
        while let Some(asker) = self.with(part, |world| world.host.next_asker()).flatten() {
            self.outside.start_telling(asker);
        }
    }

    /// Tells a client everything. It takes as long as the other end takes to read it, and holds no other thread up.
    pub fn tell(&self, to: OwnedFd) {
        // A client that is gone, or does not read, is its own affair. (SIGPIPE is blocked in this thread.)
        let _ = self.tell_all(UnixStream::from(to));
    }

    fn tell_all(&self, mut to: UnixStream) -> io::Result<()> {
        to.set_write_timeout(Some(PATIENCE))?;
        let mut lines = Vec::new();
        let Some(running) = self.with_all(World::about).into_iter().reduce(together) else {
            return Ok(());
        };
        uncork_stat::put(&mut lines, &running);
        for part in self.all() {
            let places = self.with(part, World::connections).unwrap_or_default();
            for places in places.chunks(AT_ONCE) {
                self.with(part, |world| {
                    for connection in places.iter().filter_map(|place| world.connection(*place)) {
                        uncork_stat::put(&mut lines, &connection);
                    }
                });
                to.write_all(&lines)?;
                lines.clear();
            }
        }
        uncork_stat::put(&mut lines, &End::new());
        to.write_all(&lines)
    }
}

/// Adds up what two threads' parts tell. Whichever part the guardian has asked, the whole process is told of.
fn together(mut one: Running, other: Running) -> Running {
    if one.device.is_empty() {
        one.device = other.device;
    }
    one.without.extend(other.without);
    one.without.sort_unstable();
    one.without.dedup();
    one.addresses.extend(other.addresses);
    one.addresses.sort_unstable();
    one.addresses.dedup();
    one.age_ms = one.age_ms.max(other.age_ms);
    one.counts += other.counts;
    one.frames_lost = one.frames_lost.into_iter().chain(other.frames_lost).reduce(|a, b| a + b);
    one.by_queue = one.by_queue.into_iter().chain(other.by_queue).reduce(ByQueue::and);
    one
}

impl World {
    fn about(&mut self) -> Running {
        let age = self.begun.elapsed();
        let listens = |kind: &Kind| match kind {
            Kind::Listener(listener) if !listener.on.is_empty() => Some(listener.local),
            _ => None,
        };
        let addresses = self.table.iter().filter_map(|(_, socket)| listens(&socket.kind)).collect();
        let mut counts = Counts::default();
        for link in self.links() {
            counts += Counts::from(link.stack().counters());
        }
        let frames_lost = self.links().iter_mut().filter_map(Link::lost).reduce(|a, b| a + b);
        let by_queue = self.links().iter_mut().filter_map(Link::by_queue).reduce(ByQueue::and);
        let by_queue = by_queue.map(|by_queue| by_queue.without(self.host.unused_queues()));
        let lost: Vec<_> = self.links().iter().filter_map(Link::lost_device).collect();
        let without = self.host.missing_devices().iter().cloned().chain(lost).collect();
        let devices: Vec<_> = self.links().iter().map(|link| link.name.clone()).collect();
        Running {
            pid: std::process::id(),
            does: name(),
            device: devices.join(", "),
            without,
            addresses,
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            counts,
            frames_lost,
            by_queue,
        }
    }

    fn connections(&mut self) -> Vec<Place> {
        let places =
            |(link, ids): (usize, Vec<SocketId>)| ids.into_iter().map(move |id| Place { link, id });
        let links = self.links().iter_mut().map(|link| link.stack().all());
        links.enumerate().flat_map(places).collect()
    }

    /// Returns what is told of a connection, which may have ended since.
    fn connection(&mut self, place: Place) -> Option<Connection> {
        let (link, now) = self.link(place).ok()?;
        let slot = link.slot(place.id);
        let mut told = Connection::from(&link.stack().info(now, place.id)?);
        told.fd = slot.and_then(|slot| self.table.descriptor(slot));
        Some(told)
    }
}

/// The program's name at its start: in a root directory without /proc, as nginx and others make theirs, only the name of
/// the answering thread is known otherwise.
static STARTED_AS: OnceLock<String> = OnceLock::new();

/// Remembers the name of the program's first thread, as that begins.
pub(crate) fn remember_name() {
    if let Ok(name) = nix::sys::prctl::get_name() {
        STARTED_AS.get_or_init(|| name.to_string_lossy().into_owned());
    }
}

fn name() -> String {
    match fs::read_to_string("/proc/self/comm") {
        Ok(name) => name.trim_end().to_owned(),
        Err(_) => STARTED_AS.get().map_or("?", String::as_str).to_owned(),
    }
}
