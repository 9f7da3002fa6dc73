//! All tests in one program: it is linked once, and tests that wait run beside tests that work.

mod common;
mod death;
mod expiry;
mod grants;
mod instances;
mod moves;
mod proofs;
mod queues;
mod taking;
mod turns;
mod whence;
