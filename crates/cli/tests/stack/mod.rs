//! `uncork stack`: kernel clients talk to servers on our stack, and the stack to kernel servers.
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
