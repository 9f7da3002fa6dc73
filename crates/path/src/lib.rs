//! What one direction of a network does to frames: delay, rate, queue, loss and other faults.
//!
//! Pure: frames and times in, frames out. [`Path`] is what may be asked for, [`Queue`] decides which
//! frame arrives when. A link between namespaces, a driver that disturbs and whatever else wants the
//! same weather every time has one for each direction.
#![forbid(unsafe_code)]

mod dice;
mod path;
mod queue;

pub use path::{Faults, Loss, Path, Reorder};
pub use queue::{Arrived, Counts, Queue};
