//! Loads the programs, attaches them, and reads what they report.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use uncork_doctor::live::Event;

use crate::hooks::Absent;
use crate::load::Chosen;
use crate::namespaces;
use crate::privilege::{NO_SYS, has_sys};
use crate::record;
use crate::told::Told;

/// Values of the map `scope`.
const WHOLE: u32 = 1;
const CHILDREN_ONLY: u32 = 2;
/// Length of the head of an iterator's record, which a `struct track` follows.
const HEAD_BYTES: usize = 16;

/// Errors that make tracing impossible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Where the kernel has its type information is not mounted.
    #[error("{NO_SYS}")]
    NoSys,
    /// The kernel has no type information.
    #[error(
        "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux): \
         {0}"
    )]
    NoTypes(libbpf_rs::Error),
    /// The kernel refuses the programs.
    #[error("the kernel does not take the tracing programs: {0:#}")]
    Refused(libbpf_rs::Error),
    /// A program without which tracing is impossible cannot run.
    #[error("{0}")]
    Absent(Absent),
    /// Any other error.
    #[error("tracing failed: {0:#}")]
    Other(#[from] libbpf_rs::Error),
    /// The iterator could not be read.
    #[error("the traced sockets could not be read: {0}")]
    Read(#[from] std::io::Error),
}

/// Settings of the tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether to capture the stack of a write that is held back.
    pub stacks: bool,
    /// Bytes that are held for less are counted, not reported.
    pub least_hold: Duration,
    /// The PID namespace of the process numbers, by its inode; `None` for the initial one.
    pub pid_namespace: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { stacks: false, least_hold: Duration::from_millis(1), pid_namespace: None }
    }
}

/// The running programs, which end when this is dropped.
pub struct Tracer {
    // Dropped in this order: no program runs any more when the maps go.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<Vec<u8>>>>,
    object: Object,
    absent: Vec<Absent>,
    /// Whether the iterator over the sockets that are left covers all namespaces, not just one.
    tells_all: bool,
    /// Number of records that could not be read: the programs and this reader differ.
    unread: u64,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Loads and attaches the programs. Nothing is traced until a process is named.
    ///
    /// # Errors
    ///
    /// [`Error`] says what is missing.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        // libbpf does not print; our own errors say what happened.
        libbpf_rs::set_print(None);
        let kernel = Btf::from_vmlinux()
            .map_err(|error| if has_sys() { Error::NoTypes(error) } else { Error::NoSys })?;
        let mut chosen = Chosen::of(&kernel);
        let object = chosen.load(&settings)?;
        let links = chosen.attach(&object)?;
        if let Some(absent) = chosen.essential_absent() {
            return Err(Error::Absent(absent.clone()));
        }
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let events = map(&object, "events")?;
        let mut builder = RingBufferBuilder::new();
        let into = Rc::clone(&inbox);
        builder.add(&events, move |bytes| {
            into.borrow_mut().push(bytes.to_vec());
            0
        })?;
        let ring = builder.build()?;
        let tells_all = chosen.runs("sockets_left");
        let absent = chosen.absent;
        Ok(Self { links, ring, inbox, object, absent, tells_all, unread: 0 })
    }

    /// Returns the programs that do not run on this kernel.
    #[must_use]
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Traces a process: the sockets that it has, those that it opens, and its children's.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn trace(&self, pid: u32) -> Result<(), Error> {
        self.name(pid, WHOLE)
    }

    /// Traces the processes that this one will start, but not this one.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn trace_children_of(&self, pid: u32) -> Result<(), Error> {
        self.name(pid, CHILDREN_ONLY)
    }

    fn name(&self, pid: u32, how: u32) -> Result<(), Error> {
        let scope = map(&self.object, "scope")?;
        Ok(scope.update(&pid.to_ne_bytes(), &how.to_ne_bytes(), MapFlags::ANY)?)
    }

    /// Returns the processes that are traced now.
    #[must_use]
    pub fn traced(&self) -> Vec<u32> {
        let Ok(scope) = map(&self.object, "scope") else { return Vec::new() };
        let whole = |key: &Vec<u8>| {
            let how = scope.lookup(key, MapFlags::ANY).ok().flatten();
            how.is_some_and(|how| how == WHOLE.to_ne_bytes())
        };
        let keys = scope.keys().filter(whole);
        keys.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?))).collect()
    }

    /// Begins to trace the sockets that the named processes have already.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn find_open(&self) -> Result<(), Error> {
        let name = "descriptors_open";
        if self.absent.iter().any(|absent| absent.hook.program == name) {
            return Ok(());
        }
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let Some(program) = program else { return Ok(()) };
        let mut nothing = Vec::new();
        Iter::new(&program.attach()?)?.read_to_end(&mut nothing)?;
        Ok(())
    }

    /// Waits at most `timeout` for reports, and returns them.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Told>, Error> {
        match self.ring.poll(timeout) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            other => other?,
        }
        // Records of sockets that end do not wake the reader.
        self.ring.consume()?;
        let told = std::mem::take(&mut *self.inbox.borrow_mut());
        Ok(told.iter().filter_map(|bytes| self.read(bytes)).collect())
    }

    /// Returns what was not reported yet, the sockets that are left included, and detaches.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn finish(mut self) -> Result<Rest, Error> {
        let tracks = map(&self.object, "tracks")?;
        let track_bytes = tracks.value_size() as usize;
        let name = if self.tells_all { "sockets_left" } else { "sockets_left_in" };
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let bytes = match program {
            Some(program) if self.tells_all => read(&program.attach_iter(tracks.as_fd())?)?,
            Some(program) => {
                let link = program.attach()?;
                namespaces::in_each(|| read(&link))?.concat()
            }
            None => Vec::new(),
        };
        let records = bytes.chunks_exact(HEAD_BYTES + track_bytes);
        let left: Vec<Told> = records.filter_map(|record| self.read(record)).collect();
        // Detaching takes a while, and what ends meanwhile must not be missed: so it comes last.
        // A socket that was left just now may be reported a second time.
        self.links.clear();
        let known: HashSet<u64> = left.iter().filter_map(ended).collect();
        let mut events = self.poll(Duration::ZERO)?;
        events.retain(|told| ended(told).is_none_or(|socket| !known.contains(&socket)));
        events.extend(left);
        let (dropped, refused) = self.losses();
        Ok(Rest { events, dropped: dropped + self.unread, refused })
    }

    fn read(&mut self, bytes: &[u8]) -> Option<Told> {
        let told = record::read(bytes);
        self.unread += u64::from(told.is_none());
        told
    }

    /// Returns the events that found no room, and the sockets that could not be traced for want of memory.
    fn losses(&self) -> (u64, u64) {
        let Some(bss) = self.object.maps().find(|map| is_section(map.name(), ".bss")) else {
            return (0, 0);
        };
        let found = bss.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let bytes = found.unwrap_or_default();
        let word = |at: usize| {
            let word = bytes.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        };
        (word(1).unwrap_or(0), word(2).unwrap_or(0))
    }
}

fn read(iterator: &Link) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    Iter::new(iterator)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the socket of a record that ends it.
fn ended(told: &Told) -> Option<u64> {
    match told {
        Told::Event { event: Event::Socket(socket), .. } => Some(socket.socket),
        _ => None,
    }
}

/// The last reports, at the end of tracing.
#[derive(Debug)]
pub struct Rest {
    /// Stalls that had not been fetched, and all sockets.
    pub events: Vec<Told>,
    /// Number of events that were lost because they came faster than they were fetched.
    pub dropped: u64,
    /// Number of sockets that could not be traced, for want of memory in the kernel.
    pub refused: u64,
}

/// Whether a map is this section's: libbpf puts the object's name before that of the section.
pub(crate) fn is_section(map: &OsStr, section: &str) -> bool {
    map.as_encoded_bytes().ends_with(section.as_bytes())
}

fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let found = object.maps().find(|map| map.name() == name);
    let map = found.ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("the programs have no map {name}"),
        )
    })?;
    Ok(MapHandle::try_from(&map)?)
}
