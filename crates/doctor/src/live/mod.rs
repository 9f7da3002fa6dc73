//! Live tracing.
mod event;
pub use event::*;
