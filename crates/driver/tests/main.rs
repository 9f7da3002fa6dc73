//! All of them in one program: it is linked once, and what waits is beside what works.

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
