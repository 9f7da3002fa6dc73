//! The published experiments on TCP's queues, small writes and acknowledgements, repeated.
//!
//! Each runs in network namespaces of its own ([`place`]), creates a load there ([`load`]),
//! measures its effect on others ([`probe`]) and on the queues ([`sample`]), and returns the
//! measurements. Nothing here prints.
#![deny(unsafe_code)]

pub mod contest;
pub mod cores;
pub mod kernels;
pub mod load;
pub mod nodelay;
mod pacing;
pub mod place;
pub mod plan;
pub mod probe;
pub mod process;
pub mod quickack;
pub mod rest;
pub mod sample;
pub mod socket;
pub mod stalling;
pub mod stats;
pub mod tsq;
