//! An instance: a process with a stack that programs attach to (`uncork stack start`, `uncork run --stack=instance`).
//!
//! One thread, one loop: programs' commands are carried out, frames come in and leave, and programs are told. It waits
//! for nobody: a program that does not listen is told later, and what comes for it stays in the stack, whose windows
//! then shut.
//!
//! | file | holds |
//! |---|---|
//! | `floor` | all that an instance has, and a turn of it |
//! | `link` | a device's engine, and the owners of its connections |
//! | `guest` | a program: what it has, and what it is told |
//! | `commands` | a program's commands, carried out |
//! | `desks` | listeners, which several programs may share |
//! | `telling` | what has come to a connection, told to its program |
//! | `asked` | the instance's report on itself |
//! | `life` | devices, the guardian, sleep |
//!
//! No guest is trusted: a command about something that it may not have, or that does not exist, ends its attachment
//! ([`uncork_attach::Damaged`]), and nothing of any other guest's.
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
