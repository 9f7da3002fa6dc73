//! The first programs on the user-space stack: four small servers, a client, and queries about
//! them while they run.
//!
//! ```text
//!  talk/      protocols: echo, discard, chargen, http; over any stream.rs
//!  server.rs  many conversations on our stack, on an engine;  kernel.rs: the same on kernel sockets
//!  connect.rs one connection between standard input and output
//!  device/    which device, by which port, with which addresses
//!  stat/      queries about each connection of a running one, over a Unix socket
//! ```
#![forbid(unsafe_code)]

mod connect;
mod device;
mod error;
mod kernel;
pub mod pattern;
mod run;
mod server;
mod signals;
pub mod stat;
mod stream;
mod talk;

pub use connect::Ended;
pub use device::{Kind, Place};
pub use error::Error;
pub use run::{Connect, Ready, Serve, connect, serve, serve_on_kernel};
pub use talk::Service;
pub use uncork_stack::Cidr;
