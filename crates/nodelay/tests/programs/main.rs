//! The two real programs, run as a user runs them.

#[cfg(test)]
mod common;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod json;
#[cfg(test)]
mod trouble;
