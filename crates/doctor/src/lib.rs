//! From what a connection did to what is wrong with it.
//!
//! The doctor is fed segments in the order in which they were captured ([`Doctor::segment`]), and
//! asked once for its [`report`](Doctor::finish). It reads no file and no clock, and prints
//! nothing.
#![forbid(unsafe_code)]

mod report;

pub use report::*;
