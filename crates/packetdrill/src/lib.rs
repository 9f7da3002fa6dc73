//! The stack as a shared object for packetdrill's `--so_filename`: packetdrill's scripts make
//! socket calls and say which packets must be sent and when, and this answers both with
//! [`uncork_stack`] instead of the kernel. docs/PACKETDRILL.md says how to run it.
//!
//! Time is virtual. packetdrill asks this object for the time and sleeps through it, so a script of
//! ten seconds takes milliseconds, and a busy machine changes no outcome: the clock advances when
//! packetdrill sleeps, when it waits for a packet, and by a microsecond whenever it reads the time.
//! Calls that block are made by packetdrill's second thread; [`world::Shared`] says how the two
//! agree on the time.
//!
//! `uncork-script` plays this project's own scripts on the same calls.
//!
//! | file | holds |
//! |---|---|
//! | `abi` | the C side: pointers become slices, results become errno. The only unsafe file |
//! | `world` | the clock, the stack, the packets that it has sent, and the waiting threads |
//! | `calls`, `waiting` | the semantics of socket calls; those that may block |
//! | `table`, `epoll`, `address` | the objects of descriptors; socket addresses |
//! | `options` | socket options, as crate `sockets` interprets them |
//! | `link` | a device with a limited rate |
//! | `segment` | cutting of trains, where a script wants to see segments |
//! | `settings` | the sysctls that a script has set, as settings of the stack |
#![deny(unsafe_code)]

mod abi;
mod address;
mod calls;
mod epoll;
mod link;
mod options;
mod segment;
mod settings;
mod table;
mod waiting;
pub mod world;
