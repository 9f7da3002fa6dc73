//! AF_XDP sockets on our end of a link.
#![allow(dead_code, reason = "each test program uses a part")]

use uncork_bpf::owned::{Engine, Ours, Owned, Queues, Redirect, Settings};
use uncork_driver::af_xdp::{self, Nature, Port};

use super::{Link, OURS};

/// An address of the stack's own, and neighbours that it finds by itself.
pub(crate) const ALONE: Settings = Settings { ethernet: true, neighbours: true };

pub(crate) fn settings() -> af_xdp::Settings {
    af_xdp::Settings::new("eth0")
}

/// What is the stack's, and the program that redirects it.
pub(crate) struct Hold {
    pub(crate) owned: Owned,
    pub(crate) redirect: Redirect,
}

impl Hold {
    /// Loads both in this thread's network namespace, with nothing owned yet and no socket.
    pub(crate) fn load(ours: Settings) -> anyhow::Result<Self> {
        let Nature { queues, marks, .. } = Nature::of("eth0")?;
        let owned = Owned::load(ours)?;
        let redirect = owned.redirect_for(Engine::ONLY, Queues { count: queues, marks })?;
        Ok(Self { owned, redirect })
    }
}

/// Opens the program and a socket on one queue of our end, where the stack has its own address.
pub(crate) fn open(link: &Link, settings: af_xdp::Settings) -> (Hold, Port) {
    let (hold, port) = open_with(link, settings, ALONE);
    hold.owned.own(Ours::Address(OURS.into())).unwrap();
    (hold, port)
}

/// Like [`open`], with nothing that is the stack's yet.
pub(crate) fn open_with(link: &Link, settings: af_xdp::Settings, ours: Settings) -> (Hold, Port) {
    let opened = link.ours.within(move || {
        let mut hold = Hold::load(ours)?;
        let port = Port::open(&settings)?;
        hold.redirect.enter(port.queue(), port.socket())?;
        hold.redirect.attach(port.index())?;
        Ok((hold, port))
    });
    opened.unwrap()
}
