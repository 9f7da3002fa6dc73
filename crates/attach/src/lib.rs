//! What a program and an instance of the stack say to each other, over memory that both have, and the
//! program's half of it.
//!
//! An instance is a process that has the devices and the connections of several programs (crate
//! `uncork-instance`). No call of a program's is a question to it: what is sent and what has come pass through two
//! rings, one each way, and the program keeps so much of each connection ([`Attached`]) that it can answer by itself
//! whether something can be read or written. Only who asks for what the stack alone knows (TCP_INFO), or takes a
//! connection away from it, waits for an answer.
//!
//! | file | holds |
//! |---|---|
//! | `memory` | the memory: a sealed file, mapped |
//! | `ring` | records one way through it |
//! | `bell` | waking the other side, if it sleeps |
//! | `record` | what records say |
//! | `terms` | how the two get to know each other, and the two ends of all that |
//! | `attached` | the program's half, with the operations of a stack |
//!
//! Neither side believes the other: a length or a number that cannot be is [`Damaged`], and ends the
//! attachment. What is read was copied first, so that it stays what was looked at.
#![forbid(unsafe_code)]

mod attached;
mod bell;
mod memory;
pub mod record;
mod ring;
mod terms;

pub use attached::Attached;
pub use record::{Command, Header, News};
pub use ring::{MOST_BYTES, RING_BYTES, Reader, Writer};
pub use terms::{Error, InstanceEnd, ProgramEnd, accept, offer};

/// The other side has written what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the shared memory has written what cannot be: {0}")]
pub struct Damaged(pub &'static str);

/// Octets of a connection that may be on their way to the program, or wait there to be read.
pub const WINDOW_BYTES: u32 = 256 << 10;

/// Longest buffer that a program may ask for, for a connection one way, in octets: net.core.wmem_max and rmem_max as Linux
/// has them by default.
pub const MOST_BUFFER_BYTES: u32 = 4 << 20;
