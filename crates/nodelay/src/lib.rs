//! The published small-write experiment, as two programs.
//!
//! The client sends *logical packets*, each made of several buffers of two bytes and one `write(2)`
//! a buffer, and waits for a reply of two bytes after each packet. The server counts the `read(2)`
//! calls that receiving them takes. What TCP does with the small writes then shows in the client's
//! time and in the server's count.
//!
//! Both ends use plain `write(2)` and `read(2)` (the standard library's `TcpStream` would use
//! `send` and `recv`) because that is what the experiment is about, and both go through libc so
//! that a preloaded library sees them.

#![forbid(unsafe_code)]

pub mod client;
mod error;
mod output;
pub mod server;
mod wire;

/// Bytes of one buffer, and so of one small write.
pub const BUFFER_BYTES: usize = 2;

/// Bytes of the reply that follows each logical packet.
pub const REPLY_BYTES: usize = 2;

/// Port of both programs when none is given.
pub const DEFAULT_PORT: u16 = 5001;

/// Logical packets of a run when no number is given.
pub const DEFAULT_PACKETS: u64 = 10_000;

/// Buffers of a logical packet when no number is given.
pub const DEFAULT_BUFFERS: u32 = 15;

/// Most buffers that one logical packet may have: both ends keep a whole packet in memory.
const MAX_BUFFERS: i64 = 1_000_000;

/// Most logical packets of a run: keeps every count of bytes within 64 bits.
const MAX_PACKETS: u64 = 1_000_000_000_000;

/// Returns the bytes of a logical packet of `buffers` buffers.
const fn packet_bytes(buffers: u32) -> usize {
    buffers as usize * BUFFER_BYTES
}
