//! An instance: a process with a stack that programs attach to (`uncork stack start`, `uncork run --stack=instance`).
//!
//! One thread, one loop: what programs have said is done, frames come in and leave, and programs are told. It waits
//! for nobody: a program that does not listen is told later, and what comes for it stays in the stack, whose windows
//! shut then.
//!
//! | file | holds |
//! |---|---|
//! | `floor` | everything, and a turn of it |
//! | `link` | a device's engine, and whose its connections are |
//! | `guest` | a program: what it has, and what it is told |
//! | `commands` | what it says, done |
//! | `desks` | listeners, which several programs may share |
//! | `telling` | what has come to a connection, told |
//! | `asked` | what it tells of itself |
//! | `life` | devices, the guardian, sleep |
//!
//! No guest is believed: what it says of what it may not, or of what is not there, ends its attachment
//! ([`uncork_attach::Damaged`]), and nothing of anybody else's.
#![forbid(unsafe_code)]

mod asked;
mod commands;
mod desks;
mod floor;
mod guest;
mod life;
mod link;
mod permitted;
mod telling;
#[cfg(test)]
mod tests;

pub use floor::{Floor, Host};
pub use life::{Error, Settings, run};
pub use link::Link;
