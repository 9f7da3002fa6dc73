//! A link between two network namespaces with a delay, a rate, a queue and faults of its own.
//!
//! Debian's kernels have netem for that; not every kernel to be measured has it.
//! So this process holds the far ends of two TAP devices, one in each namespace, and carries frames
//! from one to the other: [`carry`] does that, on a thread of its own with
//! [`Carrier`]; `uncork-path` decides when each frame arrives.
#![deny(unsafe_code)]

mod carrier;
pub mod carry;
mod priority;
mod tap;

pub use carrier::Carrier;
pub use carry::{Settings, run};
pub use priority::raise as go_first;
pub use tap::Layer;
pub use uncork_path::{Counts, Faults, Loss, Path, Queue, Reorder};
