//! The eBPF programs of uncork, and their loaders.
//!
//! Live tracing of TCP stalls ([`Tracer`]), options of other processes' sockets ([`tune`]), and the ownership of packets, by
//! the kernel or a user-space stack ([`owned`]). The programs are C (`src/bpf`), resolve the kernel's structures by name when
//! they are loaded (CO-RE), and attach to tracepoints, or to functions by BTF where a kernel lacks the tracepoint; no kprobes.
//! Their records are converted to the terms of `uncork-doctor`.
//!
//! Tracing programs go away with the [`Tracer`], or with this process; tuning programs are pinned, and stay
//! until they are undone.
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
