//! Connections played segment by segment, and what the doctor must say of them.

mod stalls;
mod trace;
