//! Programs that stall: each writes its request in two parts and waits for the reply, over and over. It
//! prints its server's port, and then how many microseconds each request took. They do not use
//! TCP_NODELAY, and no library is preloaded into two of them.

/// The program for the interpreter of that name: `python3 -c`.
pub const PYTHON: &str = include_str!("stalls.py");

/// The program in C, to be linked statically.
pub const C: &str = include_str!("stalls.c");

/// The program in Go, which sets TCP_NODELAY by itself: one that stalls has cleared it.
pub const GO: &str = include_str!("stalls.go");
