//! `uncork doctor`: what was found, for people and for programs.

pub(crate) mod page;
pub(crate) mod table;
mod words;

#[cfg(test)]
mod samples;
