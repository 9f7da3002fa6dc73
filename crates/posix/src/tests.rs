//! Tests of what a call means, against a fake kernel.
