//! Reports of a running stack about itself and its connections (`uncork stack stat`): one line of JSON for itself,
//! one for each connection, and one that marks the end. Lines are made as they are read, so that a hundred thousand
//! connections neither need their memory at once nor hold up a turn.
#![forbid(unsafe_code)]

mod document;
mod lines;

pub use document::{Acks, ByQueue, Connection, Counts, Report, Running};
pub use lines::{End, put, read};
