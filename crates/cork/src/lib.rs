//! The cork policy.
#![forbid(unsafe_code)]
