//! What an unprivileged program and the guardian of its stack say to each other, and the program's half.
//!
//! The guardian is a process with the privileges that a stack in user space needs: it opens packet sockets,
//! says to the kernel which packets are the stack's, and when the program dies resets its connections
//! (crate `uncork-guard`). Whoever knows the [`Place`] may ask it, over a Unix socket (SOCK_SEQPACKET, abstract,
//! so of one network namespace): one message a datagram, JSON, descriptors beside them (SCM_RIGHTS). Each
//! process has one connection; its end is taken for the process's.
//!
//! Where programs attach to instances (`uncork stack start`), the stack is in processes of its own, which are served as a
//! program with a stack of its own is; what their programs ask for is theirs.
//!
//! The program's half ([`Client`]) never waits longer than [`PATIENCE`], raises no signal, and does not
//! panic. It makes its system calls itself, so that it can be used inside of functions that a preloaded
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
