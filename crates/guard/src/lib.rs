//! The guard daemon, called the guardian throughout: the privileged process of a user-space TCP stack, which opens devices and
//! steers packets for unprivileged programs. The crate `uncork-guardian` is its protocol and those programs' client library.
//!
//! | a program asks for (`uncork-guardian`) | the guardian |
//! |---|---|
//! | the devices | tells those that it found when it began ([`devices`]) |
//! | a packet socket | opens it, with a filter that lets in what this process owns |
//! | nothing | gives it queues of the devices, if any are free (`guard/queueing.rs`) |
//! | a port, a connection | checks that the program has that from the kernel, too ([`proof`]), and tells the kernel whose packets they are ([`steering`]) |
//! | an instance to attach to | brings the two together; what the program is granted is its instance's from then on (`guard/instances.rs`) |
//! | nothing any more, as it is dead | takes all that away, and lets the kernel reset its connections ([`reset`]) |
//!
//! It is one process with one loop ([`guard`]) and no files: what it has attached goes with its descriptors, however it ends.
//! Another process waits for its end, and resets what it no longer can ([`heir`]). It trusts nothing that a program says. With
//! the token a program may have a port that the kernel has given it; and of its table of connections, only those count that it
//! may have (`steering/pinning.rs`), for each of which at most two segments without data are sent.
#![forbid(unsafe_code)]

mod capabilities;
mod claims;
pub mod devices;
mod error;
mod groups;
mod guard;
pub mod heir;
mod instead;
mod ipsec;
mod limits;
mod links;
mod peer;
mod proof;
mod queues;
mod reset;
mod rings;
mod seclusion;
mod session;
mod steering;
mod turns;
mod watch;
mod work;

pub use error::Error;
pub use guard::{Guard, Plan, permitted};
pub use limits::{Limits, RINGS_BYTES};
pub use queues::Share;
pub use seclusion::{seclude, seclude_instance};
