//! Diagnosis of TCP connections: from what a connection did to what is wrong with it.
//!
//! The doctor is fed segments in the order in which they were captured ([`Doctor::segment`]), and
//! asked once for its [`report`](Doctor::finish). It reads no file and no clock, and prints
//! nothing.
//!
//! ```text
//! Segment ─▶ connection ─▶ stall (why did this data come now?) ─▶ tally ─▶ verdict ─▶ Report
//!                └─▶ direction (flight, ACKs, window)  └─▶ message, exchange
//! ```
#![forbid(unsafe_code)]

mod clock;
mod connection;
mod direction;
mod doctor;
mod exchange;
mod flight;
mod histogram;
mod hosts;
pub mod live;
mod median;
mod message;
pub mod remedy;
mod report;
mod room;
mod stall;
mod tally;
#[cfg(test)]
mod tests;
mod ticks;
mod verdict;

pub use doctor::{Doctor, Settings};
pub use histogram::Histogram;
pub use report::*;
