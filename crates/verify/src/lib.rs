//! What a change to a device's queue does to the connections that use it, measured before and after.
//!
//! [`Watch`] observes the existing traffic without touching it: the kernel's own figures of each
//! connection over the device, its queue and its counters. [`rounds`] measures alternately with and
//! without the change, and [`judge`], a pure function, says whether it helped. docs/TUNE.md says
//! what can be found out this way, and what cannot.
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
