//! Scripts of socket calls and segments: the inputs of a TCP from its program and its peer, its
//! expected output, and the times. One script is played on two hosts, which shows that what it asks of
//! the stack is what Linux does:
//!
//! - [`Ours`]: the stack, in virtual time, exact to the millisecond;
//! - [`Kernel`]: the kernel's sockets in a network namespace of their own, behind a TUN device whose
//!   other end this crate holds. In real time: [`Tolerance`] is how late something may be.
//!
//! ```text
//! scripts/*.tcp ─▶ language ─▶ play ─▶ Host ─┬─▶ Ours:   uncork-packetdrill ─▶ stack
//!                     segments ◀─▶ frames    └─▶ Kernel: sockets, TUN, packet socket
//!                       (conversation)
//! ```
//!
//! docs/PACKETDRILL.md describes the language.
#![forbid(unsafe_code)]

mod conversation;
mod host;
mod kernel;
mod language;
mod ours;
mod play;

pub use host::{Answer, Host, HostError, Sent, Tolerance};
pub use kernel::Kernel;
pub use language::{
    Badly, Call, Choice, Field, Line, Offered, Script, Segment, Setup, Side, Stamp, Step, Wanted,
};
pub use ours::Ours;
pub use play::{Failure, play};
