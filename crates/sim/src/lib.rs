//! Two stacks and a network between them, in virtual time.
//!
//! Nothing happens by itself, and all randomness comes from the seed: a [`Pair`] advances from one
//! moment at which anything can happen to the next, so that a minute of waiting costs nothing, and what
//! went wrong once goes wrong again.
//!
//! ```text
//! Stack ─▶ Way: device queue ─▶ rate ─▶ faults ─▶ delay ─▶ Stack
//!              └─ completion when the last bit has left
//! ```
#![forbid(unsafe_code)]

mod dice;
mod pair;
mod way;

pub use dice::Dice;
pub use pair::{ADDRESSES, Host, Pair, Setup};
pub use way::{Conditions, Tally};
