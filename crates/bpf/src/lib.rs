//! The eBPF programs of uncork, and what loads them.
//!
//! Live tracing of TCP stalls ([`Tracer`]), options of other people's sockets ([`tune`]), and whose a
//! packet is, the kernel's or a user-space stack's ([`owned`]). The programs are C (`src/bpf`), find the
//! kernel's structures by name when they are loaded (CO-RE), and attach to tracepoints, or to
//! functions by BTF where a kernel lacks the tracepoint; no kprobes. What they tell is read into the terms of `uncork-doctor`.
//!
//! What traces goes away with the [`Tracer`], or with this process; what tunes is pinned, and stays
//! until it is undone.
#![deny(unsafe_code)]

mod bytes;
mod hooks;
mod load;
pub mod namespaces;
pub mod owned;
mod privilege;
mod record;
mod told;
mod tracer;
pub mod tune;

pub use hooks::{Absent, Hook, Lack, Target};
pub use privilege::{Capability, has, missing_capabilities};
pub use told::{Stack, Told};
pub use tracer::{Error, Rest, Settings, Tracer};
