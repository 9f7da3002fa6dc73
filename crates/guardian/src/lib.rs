//! The guardian's protocol, and the client library with which an unprivileged program speaks it.
//!
//! The guardian itself is the daemon in the crate `uncork-guard`: the privileged process that opens devices and steers packets.
//! It opens packet sockets, tells the kernel which packets are the stack's, and resets a program's connections when the program
//! dies. A program that knows the [`Place`] may ask it, over a Unix socket (SOCK_SEQPACKET, abstract, so confined to one network
//! namespace): one message per datagram, in JSON, with descriptors alongside (SCM_RIGHTS). Each process has one connection, whose
//! end is taken for the end of the process.
//!
//! Where programs attach to instances (`uncork stack start`), the stacks are in processes of their own, which are served like a
//! program with a stack of its own; what their programs ask for belongs to them.
//!
//! The client ([`Client`]) never waits longer than [`PATIENCE`] (or [`INSISTENCE`] times that for a connection to be taken over),
//! raises no signal, and does not panic. It makes its system calls itself, so it can be used inside functions that a preloaded
//! library has put in front of them.
#![deny(unsafe_code)]

pub mod channel;
mod client;
mod device;
mod error;
pub mod mailbox;
mod message;
mod octets;
mod place;
pub mod shared;
pub mod table;

pub use client::{Client, INSISTENCE, PATIENCE, Word, look};
pub use device::{Address, Device};
pub use error::Error;
pub use message::{Answer, Ends, Question, Reply, Request, VERSION};
pub use octets::Octets;
pub use place::{INSTANCE_VARIABLE, Place, STAY_VARIABLE, THREADS_VARIABLE, Token, VARIABLE};
pub use table::{Entry, Table};
