//! The guardian: the privileged half of a TCP stack in an unprivileged program.
//!
//! | the program asks for (`uncork-guardian`) | the guardian |
//! |---|---|
//! | the devices | has found them when it began ([`devices`]) |
//! | a packet socket | opens it, with a filter that lets in what this process owns |
//! | nothing | gives it queues of the devices, if there are any to be given (`guard/queueing.rs`) |
//! | a port, a connection | looks whether the program has that from the kernel, too ([`proof`]), and says to the kernel whose packets they are ([`steering`]) |
//! | an instance to attach to | brings the two together; what the program is granted is its instance's from then on (`guard/instances.rs`) |
//! | nothing any more, as it is dead | takes all that away, and lets the kernel reset its connections ([`reset`]) |
//!
//! It is one process with one loop ([`guard`]) and no files: what it has attached goes with its descriptors,
//! whatever ends it. Another one waits for its end, and resets what it cannot reset any more ([`heir`]). It believes a
//! program nothing: whoever knows the token may have a port that he has from the kernel, and of his table of
//! connections nothing counts but what he may have (`steering/pinning.rs`); for each of those, at most two segments without data leave.
#![forbid(unsafe_code)]

mod capabilities;
mod claims;
pub mod devices;
mod error;
mod groups;
mod guard;
pub mod heir;
mod instead;
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
