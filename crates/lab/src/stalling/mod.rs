//! Programs that stall: each writes its request in two parts and waits for the reply, over and over.
//! It prints the port of its server, and then how many microseconds each request took. They know nothing
//! of TCP_NODELAY, and no library is preloaded into two of them.

/// For the interpreter of that name: `python3 -c`.
pub const PYTHON: &str = include_str!("stalls.py");

/// To be linked statically.
pub const C: &str = include_str!("stalls.c");

/// Go sets TCP_NODELAY by itself: one that stalls has taken it off.
pub const GO: &str = include_str!("stalls.go");
