//! Devices by DPDK: its virtual ones, and NICs that the kernel has left to it. With the feature `dpdk` only.
//!
//! The port of last resort for speed: DPDK's own drivers fill and empty the queues of a NIC from user space, with no
//! system call and nobody else on the device. On a device that the kernel keeps (net_af_packet) it is a packet
//! socket with more around it; our own ([`crate::af_packet`]) does more there: trains, checksums, completions.
//!
//! **Nothing wakes.** DPDK is asked, again and again. Whoever sleeps between two questions does not hear of a frame
//! that comes meanwhile: [`Driver::rest_at_most`](crate::Driver::rest_at_most) is an eighth of the time for which
//! nothing has come, and no more than a millisecond. So an idle engine looks a thousand times a second, and one that
//! works hardly rests.
//!
//! **Nobody tells when a frame has left.** DPDK's drivers free buffers when they need descriptors, not when a frame has
//! gone: there are no completions, and so neither small queues nor autocorking.
//!
//! **DPDK is started once a process**, by the first port, and stays. Further ports share it. Without huge pages for
//! virtual devices (`--no-huge`), with them for the PCI bus, never with a file: nothing is left of a process that was
//! killed. DPDK would bind the thread to a processor, write a log, and listen for questions: it does not.
//!
//! **What the device does itself** is what it says it can: checksums, trains (TSO), each both ways or not at all.
//! Longer frames than a buffer may come in several, and are copied together.

mod environment;
mod ffi;
mod kernel;
mod leaving;
mod name;
mod port;

pub use port::{Port, Settings, Statistics};
