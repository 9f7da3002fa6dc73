//! What `uncork tune` changes outside of a process, and how each of it is undone.
//!
//! A [`Plan`] says what is going to be changed, [`apply`] writes each change into the [`Journal`]
//! and then makes it, [`list`] says what is in force, [`undo`] sets it back. What was changed by
//! others in the meantime is reported, and left alone.
#![deny(unsafe_code)]

pub mod bpffs;
pub mod change;
pub mod device;
pub mod journal;
pub mod netns;
pub mod scope;
pub mod small_queues;

mod apply;
mod error;
mod list;
mod plan;
mod privilege;
mod undo;

pub use apply::{Applied, apply, check};
pub use error::Error;
pub use journal::Journal;
pub use list::{Item, Line, Standing, Stray, list, strays};
pub use plan::{Plan, Request, SocketPlan};
pub use privilege::{missing_after, missing_capabilities, missing_for_ping, missing_for_undoing};
pub use scope::Prefix;
pub use uncork_bpf::tune::{Cure, LONGEST_NAME_BYTES, Outcome};
pub use undo::{One, Undone, undo, undo_all};
