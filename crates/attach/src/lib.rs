//! The protocol between a program and an instance of the stack, over memory that both share, and the
//! program's half of it.
//!
//! An instance is a process that has the devices and the connections of several programs (crate
//! `uncork-instance`). A program's calls are not questions to it: what is sent and what has come pass through two
//! rings, one each way, and the program keeps enough of each connection ([`Attached`]) to know by itself
//! whether it can be read or written. Only calls that ask for what the stack alone knows (TCP_INFO), or take a
//! connection away from it, wait for an answer.
//!
//! | file | holds |
//! |---|---|
//! | `memory` | the memory: a sealed file, mapped |
//! | `ring` | records in one direction through it |
//! | `bell` | waking the other side, if it sleeps |
//! | `record` | what records mean |
//! | `terms` | how the two meet, and the two ends of an attachment |
//! | `attached` | the program's half, with the operations of a stack |
//!
//! Neither side trusts the other: an impossible length or number is [`Damaged`], and ends the
//! attachment. What is read is copied first, so that it stays what was checked.
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

/// The other side has written something impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the shared memory has written what cannot be: {0}")]
pub struct Damaged(pub &'static str);

/// Octets of a connection that may be on their way to the program, or wait there to be read.
pub const WINDOW_BYTES: u32 = 256 << 10;

/// Largest buffer that a program may ask for, for one direction of a connection, in octets: net.core.wmem_max and rmem_max as
/// Linux has them by default.
pub const MOST_BUFFER_BYTES: u32 = 4 << 20;
