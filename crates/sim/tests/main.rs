//! All of them in one program: it is linked once, and what waits is beside what works.

mod chaos;
mod common;
mod fast_open;
mod queues;
mod short_ways;
mod throughput;
mod transfer;
mod udp;
