//! What a socket call means.
#![forbid(unsafe_code)]
pub mod config;
pub mod published;
pub mod report;
