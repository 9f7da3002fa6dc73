//! What a change to a device's queue does to the connections that run over it, measured before and
//! after.
//!
//! [`Watch`] looks at the traffic that there is, without touching it: the kernel's own figures of
//! each connection over the device, its queue and its counters. [`rounds`] looks in turns with and
//! without the change, and [`judge`], a pure function, says whether it helped. docs/TUNE.md has what
//! can be known so, and what not.
#![forbid(unsafe_code)]

mod load;
mod rounds;
mod seen;
mod verdict;
mod watch;

pub use load::Load;
pub use rounds::{Round, Times, rounds};
pub use seen::{Seen, Spread};
pub use verdict::{Verdict, judge};
pub use watch::{BUSY_SHARE, Watch};
