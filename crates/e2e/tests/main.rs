//! All of them in one program: what waits is beside what works, and what measures time is alone among all.

mod cpython;
mod edges;
mod on_stack;
mod programs;
mod stack;
mod streams;
