//! All tests in one program: it is linked once, and tests that wait run beside tests that work.

mod acknowledging;
mod closing;
mod common;
mod deferral;
mod detaching;
mod fast_open;
mod fast_open_server;
mod frto;
mod handshake;
mod host;
mod joining;
mod memory;
mod predicting;
mod readiness;
mod recovering;
mod routers;
mod sending;
mod shared;
mod transitions;
