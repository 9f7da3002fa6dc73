//! Reading another process's sockets out of its memory, for `uncork status`.
//!
//! The library publishes one block of words at an exported symbol; the rest is found from
//! there. Nothing runs in the other process and nothing is written to it.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::Socket;
use crate::config::{Bound, Hold, Scope, Settings, Spin};
use crate::kernel::state;
use crate::report::{LISTENS, ProcessReport, SCHEMA, StackReport};
use crate::reporting::{describe_record, describe_settings};
use crate::socket::flag;
use crate::whereabouts::Whereabouts;

/// Name of the exported symbol at which a process's published block begins.
pub const SYMBOL: &str = "uncork_published";

/// "uncork" and the number of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"uncork\0\x03");
/// Number of words in the block.
pub const WORDS: usize = 16;

/// Another process's memory.
pub trait Memory {
    /// Fills `into` from `address`.
    fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()>;
}

/// Why a published block could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The library in the process is of another build than this program.
    #[error("the library in that process is of another build ({0}) than this uncork ({ours})", ours = env!("CARGO_PKG_VERSION"))]
    OtherVersion(String),
    /// The library has been loaded but has not started to work.
    #[error("the library in that process has not started yet")]
    NotStarted,
    /// The memory could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Addresses of the tables in the publishing process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Address of the state bytes.
    pub states: u64,
    /// Address of the highest tracked descriptor (i32).
    pub highest: u64,
    /// Address of the pointers to blocks of [`Socket`]s.
    pub blocks: u64,
    /// Sockets in a block.
    pub block_len: u64,
}

/// Indices of the words that [`publish_stack`] sets.
const PLACES: usize = 13;
const WHEREABOUTS: usize = 14;

/// Adds where the sockets of a process with `--stack` are: the address of the table with a byte for each
/// descriptor, and that of the reasons.
pub fn publish_stack(block: &[AtomicU64; WORDS], places: u64, whereabouts: &Whereabouts) {
    block[PLACES].store(places, Relaxed);
    block[WHEREABOUTS].store(core::ptr::from_ref(whereabouts) as u64, Relaxed);
}

/// Fills the block, the magic word last.
pub fn publish(block: &[AtomicU64; WORDS], settings: &Settings, tables: Tables) {
    let spin = match settings.spin {
        Spin::Off => 0,
        Spin::Auto => u64::MAX,
        Spin::For(limit) => limit.as_nanos() as u64,
    };
    let words = [
        version(),
        size_of::<Socket>() as u64,
        settings.hold as u64,
        settings.scope as u64,
        settings.bound.0.as_nanos() as u64,
        spin,
        u64::from(settings.debug),
        u64::from(settings.autocork),
        tables.states,
        tables.highest,
        tables.blocks,
        tables.block_len,
    ];
    for (word, value) in block[1..].iter().zip(words) {
        word.store(value, Relaxed);
    }
    block[0].store(MAGIC, core::sync::atomic::Ordering::Release);
}

/// Returns the version as a word.
fn version() -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    u64::from_le_bytes(bytes)
}

fn words<const N: usize>(memory: &impl Memory, address: u64) -> std::io::Result<[u64; N]> {
    let mut bytes = vec![0; N * 8];
    memory.read(address, &mut bytes)?;
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
    }
    Ok(words)
}

/// Reads the block at `address` of another process, and all tracked sockets that it leads to, with listeners.
pub fn read(memory: &impl Memory, address: u64) -> Result<ProcessReport, Unreadable> {
    let block: [u64; WORDS] = words(memory, address)?;
    if block[0] == 0 {
        return Err(Unreadable::NotStarted);
    }
    if block[0] != MAGIC || block[1] != version() || block[2] != size_of::<Socket>() as u64 {
        let text = String::from_utf8_lossy(&block[1].to_le_bytes()).trim_end_matches('\0').into();
        return Err(Unreadable::OtherVersion(text));
    }
    let settings = settings_of(&block);
    let tables =
        Tables { states: block[9], highest: block[10], blocks: block[11], block_len: block[12] };
    let mut report = ProcessReport {
        schema: SCHEMA,
        settings: describe_settings(&settings),
        ..ProcessReport::default()
    };
    let mut highest = [0; 4];
    memory.read(tables.highest, &mut highest)?;
    let highest = i32::from_ne_bytes(highest).clamp(-1, 1 << 20);
    let mut states = vec![0; (highest + 1) as usize];
    memory.read(tables.states, &mut states)?;
    report.stack = read_stack(memory, (block[PLACES], block[WHEREABOUTS]), &states)?;
    for fd in (0..=highest).filter(|fd| states[*fd as usize] == state::TCP) {
        if let Some(socket) = read_socket(memory, &tables, fd)? {
            let mut socket_report = describe_record(fd, &socket, settings.hold);
            socket_report.open = true;
            if socket.is(flag::LISTENER) {
                LISTENS.clone_into(&mut socket_report.state);
                "it takes connections".clone_into(&mut socket_report.why);
            }
            report.sockets.push(socket_report);
        }
    }
    Ok(report)
}

/// Reads where the sockets on the stack are, and those that could have been on it.
fn read_stack(
    memory: &impl Memory,
    (places_at, whereabouts_at): (u64, u64),
    states: &[u8],
) -> Result<Option<StackReport>, Unreadable> {
    if whereabouts_at == 0 {
        return Ok(None);
    }
    let mut places = vec![0; states.len()];
    memory.read(places_at, &mut places)?;
    let mut image = vec![0; size_of::<Whereabouts>()];
    memory.read(whereabouts_at, &mut image)?;
    let open = (0..).zip(states.iter().zip(places));
    let open = open.filter(|(_, (state, _))| matches!(**state, state::TCP | state::STACK));
    Ok(Some(Whereabouts::from_image(&image).report(open.map(|(fd, (_, place))| (fd, place)))))
}

fn settings_of(block: &[u64; WORDS]) -> Settings {
    Settings {
        hold: [Hold::Kernel, Hold::User, Hold::Off][(block[3] as usize).min(2)],
        scope: [Scope::All, Scope::Nodelay][(block[4] as usize).min(1)],
        bound: Bound(Duration::from_nanos(block[5])),
        spin: match block[6] {
            0 => Spin::Off,
            u64::MAX => Spin::Auto,
            ns => Spin::For(Duration::from_nanos(ns)),
        },
        debug: block[7] as u8,
        autocork: block[8] != 0,
        ..Settings::default()
    }
}

/// Copies the plain counters of another process's record into one of our own.
fn read_socket(
    memory: &impl Memory,
    tables: &Tables,
    fd: i32,
) -> Result<Option<Socket>, Unreadable> {
    let (block, at) = (fd as u64 / tables.block_len.max(1), fd as u64 % tables.block_len.max(1));
    let [base]: [u64; 1] = words(memory, tables.blocks + block * 8)?;
    if base == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; size_of::<Socket>()];
    memory.read(base + at * size_of::<Socket>() as u64, &mut bytes)?;
    Ok(Some(Socket::from_image(&bytes)))
}
