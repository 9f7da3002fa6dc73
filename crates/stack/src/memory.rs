//! Storage for bytes and connections: nothing is allocated per packet, and nothing is kept for a
//! connection that has no data.

mod pool;
mod queue;
mod ring;
mod slab;

pub(crate) use pool::{LEAST_BYTES, Pool};
pub(crate) use queue::Queue;
pub(crate) use ring::Ring;
pub(crate) use slab::Slab;
