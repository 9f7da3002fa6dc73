//! The published experiments on TCP's queues and acknowledgements, made anew.
//!
//! Each runs in network namespaces of its own ([`place`]), puts a load there ([`load`]), asks what
//! that does to others ([`probe`]) and to the queues ([`sample`]), and returns what it measured.
//! Nothing here prints.
#![forbid(unsafe_code)]

pub mod load;
pub mod place;
pub mod probe;
pub mod sample;
pub mod tsq;
