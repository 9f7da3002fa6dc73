//! All tests in one program: it is linked once, and tests that wait run beside tests that work.

mod af_xdp;
mod beside;
mod common;
mod decorators;
mod devices;
mod frames;
mod groups;
mod handed;
mod kernel;
mod kick;
mod mtu;
mod owned;
mod redirect;
mod shared;
mod stack;
