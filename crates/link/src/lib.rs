//! A link between two network namespaces with a delay, a rate, a queue and faults of its own.
//!
//! Debian's kernels have netem for that; not every kernel on which one would like to measure has it.
//! So this process holds the far ends of two TAP devices, one in each namespace, and carries frames
//! from one to the other: [`carry`] does that, [`queue`] is the pure part that decides which frame
//! arrives when, and [`path`] is what may be asked of each direction.
#![deny(unsafe_code)]

pub mod carry;
mod dice;
pub mod path;
mod priority;
pub mod queue;
mod tap;

pub use carry::{Settings, run};
pub use path::{Faults, Loss, Path, Reorder};
pub use queue::{Counts, Queue};
pub use tap::Layer;
