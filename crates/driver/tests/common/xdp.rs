//! Sockets of AF_XDP on our end of a link.
#![allow(dead_code, reason = "each test program uses a part")]

use uncork_bpf::owned::{Ours, Owned, Redirect, Settings};
use uncork_driver::af_xdp::{self, Nature, Port};

use super::{Link, OURS};

/// An address of the stack's own, and neighbours that it finds by itself.
pub(crate) const ALONE: Settings = Settings { ethernet: true, neighbours: true };

pub(crate) fn settings() -> af_xdp::Settings {
    af_xdp::Settings::new("eth0")
}

/// The program and a socket on one queue of our end, where the stack has an address of its own.
pub(crate) fn open(link: &Link, settings: af_xdp::Settings) -> (Owned, Port) {
    let (owned, port) = open_with(link, settings, ALONE);
    owned.own(Ours::Address(OURS.into())).unwrap();
    (owned, port)
}

/// The same with nothing that is the stack's yet.
pub(crate) fn open_with(link: &Link, settings: af_xdp::Settings, ours: Settings) -> (Owned, Port) {
    let opened = link.ours.within(move || {
        let Nature { index, queues, marks } = Nature::of(&settings.device)?;
        let mut owned = Owned::load_redirecting(ours, Redirect { queues, marks })?;
        let port = Port::open(&settings)?;
        owned.enter(port.queue(), port.socket())?;
        owned.redirect(index)?;
        Ok((owned, port))
    });
    opened.unwrap()
}
