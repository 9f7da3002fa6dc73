//! The stack as a shared object for packetdrill's `--so_filename`: packetdrill's scripts make
//! socket calls and say which packets must come out and when, and this answers both with
//! [`uncork_stack`] instead of the kernel. docs/PACKETDRILL.md says how to run it.
//!
//! Time is virtual. packetdrill asks this object for the time and sleeps through it, so a script
//! of ten seconds takes milliseconds, and a busy machine changes no outcome: the clock goes on when
//! packetdrill sleeps, when it waits for a packet, and by a microsecond whenever it asks. Calls
//! that block are made by packetdrill's second thread; [`world::Shared`] says how the two agree on
//! the time.
//!
//! `uncork-script` plays this project's own scripts on the same calls.
//!
//! | file | holds |
//! |---|---|
//! | `abi` | the C side: pointers become slices, results become errno. The only unsafe file |
//! | `world` | the clock, the stack, what it has sent, and who waits |
//! | `calls`, `waiting` | what a socket call means; those that may wait |
//! | `table`, `epoll`, `address` | what a descriptor stands for; names |
//! | `options` | socket options, as crate `sockets` understands them |
//! | `link` | a device that takes its time |
//! | `segment` | trains cut up, where a script wants to see segments |
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
