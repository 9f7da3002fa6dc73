//! Medians and spreads.

pub(crate) use uncork_lab::stats::{Spread, median, quantile, sorted};
