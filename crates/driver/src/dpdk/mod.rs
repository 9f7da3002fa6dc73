//! Devices by DPDK: its virtual ones, and NICs that the kernel has released to it. With the feature `dpdk` only.
//!
//! The port of last resort for speed: DPDK's own drivers fill and empty the queues of a NIC from user space, with no
//! system call and nobody else on the device. On a device that the kernel keeps (net_af_packet) it is a packet
//! socket with more around it; our own ([`crate::af_packet`]) does more there: trains, checksums, completions.
//!
//! **Nothing wakes.** DPDK has to be polled. A thread that sleeps between two polls does not notice a frame
//! that comes meanwhile: [`Driver::rest_at_most`](crate::Driver::rest_at_most) is an eighth of the time for which
//! nothing has come, and no more than a millisecond. So an idle engine polls a thousand times a second, and a busy
//! one hardly rests.
//!
//! **No completions.** DPDK's drivers free buffers when they need descriptors, not when a frame has
//! left: so there are neither small queues nor autocorking.
//!
//! **DPDK is started once a process**, by the first port, and stays. Further ports share it. Without huge pages for
//! virtual devices (`--no-huge`), with them for the PCI bus, never with a file: nothing is left of a process that was
//! killed. By default DPDK would bind the thread to a processor, write a log, and listen for telemetry; here it does not.
//!
//! **Offloads** are used as the device reports them: checksums, trains (TSO), each both ways or not at all.
//! Frames that are longer than a buffer may come in several, and are joined by copying.

mod environment;
mod ffi;
mod kernel;
mod leaving;
mod name;
mod port;

pub use port::{Port, Settings, Statistics};
