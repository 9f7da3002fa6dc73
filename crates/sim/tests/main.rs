//! All tests in one program: it is linked once, and tests that wait run beside tests that work.

mod chaos;
mod common;
mod fast_open;
mod queues;
mod short_ways;
mod throughput;
mod transfer;
mod udp;
