//! What one direction of a network does to frames: delay, rate, queue, loss and other faults.
//!
//! Pure: frames and times in, frames out. [`Path`] is the configuration, [`Queue`] decides when each
//! frame arrives. A link between namespaces, a driver that disturbs, and any other user that wants
//! repeatable conditions have one for each direction.
#![forbid(unsafe_code)]

mod dice;
mod path;
mod queue;

pub use path::{Faults, Loss, Path, Reorder};
pub use queue::{Arrived, Counts, Queue};
