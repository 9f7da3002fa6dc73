//! All of them in one program: it is linked once, and what waits is beside what works.

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
