//! Scripts of socket calls and segments: what a TCP is told by its program and by its peer, and what it
//! must say, and when. One script is played on two hosts, so that what it asks of the stack is shown to
//! be what Linux does:
//!
//! - [`Ours`]: the stack, in virtual time, exact to the millisecond;
//! - [`Kernel`]: the kernel's sockets in a network namespace of their own, behind a TUN device of which
//!   this crate holds the other end. In real time: how late something may be is [`Tolerance`].
//!
//! ```text
//! scripts/*.tcp ─▶ language ─▶ play ─▶ Host ─┬─▶ Ours:   uncork-packetdrill ─▶ stack
//!                     segments ◀─▶ frames    └─▶ Kernel: sockets, TUN, packet socket
//!                       (conversation)
//! ```
//!
//! docs/PACKETDRILL.md tells how a script is written.
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
