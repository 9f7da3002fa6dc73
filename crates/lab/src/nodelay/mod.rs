//! The published small-write experiment: the cost of a logical packet of many small writes, by what
//! the program asks of TCP and by what else decides when the bytes leave.

mod experiment;
mod pattern;
mod place;
mod programs;
mod setting;

pub use experiment::{Measured, Plan, measure};
pub use pattern::{Asks, Cut, Pattern};
pub use place::Room;
pub use programs::{Figures, Options, Program, Server, Stage, client_args, run_args, server_args};
pub use setting::{Published, Setting, Who};
