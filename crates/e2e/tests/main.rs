//! One program: waiting tests run beside working ones, and tests that measure time run alone.

mod cpython;
mod edges;
mod on_stack;
mod programs;
mod stack;
mod streams;
