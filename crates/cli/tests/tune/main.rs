//! `uncork tune` on real sockets, routes, devices and settings, each in a namespace of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

#[path = "../common/mod.rs"]
mod common;
mod forbidden;
mod inside;
mod kernel;
mod met;
mod place;
mod privilege;
mod program;
mod routes;
mod small;
mod sockets;
mod standing;
mod status;
mod undo;
