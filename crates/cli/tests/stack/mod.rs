//! `uncork stack`: programs of the kernel's talk to servers on our stack, and it to theirs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

mod connect;
#[cfg(feature = "dpdk")]
mod dpdk;
mod ending;
mod http;
mod place;
mod refused;
mod stat;
mod streams;
