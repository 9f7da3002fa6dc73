//! The published experiments on TCP's queues and acknowledgements, made anew.
//!
//! Each runs in network namespaces of its own ([`place`]), puts a load there ([`load`]), asks what
//! that does to others ([`probe`]) and to the queues ([`sample`]), and returns what it measured.
//! Nothing here prints.
#![deny(unsafe_code)]

pub mod kernels;
pub mod load;
mod pacing;
pub mod place;
pub mod plan;
pub mod probe;
pub mod quickack;
pub mod sample;
pub mod socket;
pub mod tsq;
