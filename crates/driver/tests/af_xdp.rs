//! The kernel's own TCP talks to the stack over AF_XDP, and what is not the stack's goes on as before.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use common::echo::echo;
use common::{KERNELS, Link, OURS, skipped};
use uncork_bpf::owned::{Ours, Owned, Redirect, Settings};
use uncork_driver::af_xdp::{self, Nature, Port};

/// The program and a socket on our end, where the stack has an address of its own.
fn open(link: &Link, settings: af_xdp::Settings) -> (Owned, Port) {
    let opened = link.ours.within(move || {
        let Nature { index, queues, marks } = Nature::of(&settings.device)?;
        let ours = Settings { ethernet: true, neighbours: true };
        let mut owned = Owned::load_redirecting(ours, Redirect { queues, marks })?;
        let port = Port::open(&settings)?;
        owned.enter(settings.queue, port.socket())?;
        owned.own(Ours::Address(OURS.into()))?;
        owned.redirect(index)?;
        Ok((owned, port))
    });
    opened.unwrap()
}

fn link(label: &str) -> Link {
    let link = Link::new(label);
    link.kernels.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    link
}

#[test]
fn the_stack_echoes_over_af_xdp() {
    if skipped("the_stack_echoes_over_af_xdp") {
        return;
    }
    let link = link("xdp");
    let (_owned, mut port) = open(&link, af_xdp::Settings::new("eth0"));
    echo(&mut port, &link.kernels, 30_000_000);
    let statistics = port.statistics().unwrap();
    assert!(statistics.received > 1000, "{statistics:?}");
}
