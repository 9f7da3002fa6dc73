//! Labelled captures of stalls.
//!
//! [`scenario`] defines what is made: which real programs communicate over which link ([`uncork_link`]),
//! where that is captured, and which mistake was built into them. [`make`] makes it, and writes the labels
//! ([`label`]) from what the programs were built to do and from what the client measured with and without
//! the cure. Nothing here depends on the doctor's verdict.
#![forbid(unsafe_code)]

pub mod broken;
pub mod capture;
pub mod label;
pub mod make;
mod network;
pub mod program;
pub mod rewrite;
mod running;
pub mod scenario;
