//! What a running stack tells of itself and its connections (`uncork stack stat`): one line of JSON for itself, one
//! for each connection, and one that says that this was all. Lines are made as they are taken, so that a
//! hundred thousand connections neither need their memory at once nor hold up a turn.
#![forbid(unsafe_code)]

mod document;
mod lines;

pub use document::{Acks, ByQueue, Connection, Counts, Report, Running};
pub use lines::{End, put, read};
