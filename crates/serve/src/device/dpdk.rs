//! A DPDK device.

use uncork_bpf::owned::{self, Owned};
use uncork_driver::dpdk::{Port, Settings};
use uncork_stack::Mac;

use super::{Hold, Opened, Place, own_mac, seen_by_kernel};
use crate::error::Error;

pub(super) fn open(place: &Place) -> Result<Opened, Error> {
    let port = Port::open(&Settings { mtu: place.mtu, ..Settings::new(&place.device) })?;
    let mut mac = Mac(port.mac());
    let mut host = None;
    match port.tap() {
        Some(tap) => {
            host = Some(place.set_up_host(tap)?);
            // That address is the one of the kernel's end, too.
            mac = own_mac()?;
        }
        None => place.refuse_host()?,
    }
    let (owned, trouble) = match port.reads_along() {
        Some(index) => keep_from_kernel(place, index),
        None => (None, None),
    };
    let note = [port.advice(), trouble.as_ref().map(seen_by_kernel)].into_iter().flatten();
    let note = note.collect::<Vec<_>>().join("; ");
    Ok(Opened {
        device: port.name().to_owned(),
        how: format!("DPDK, {}", port.driver()).into(),
        mac,
        note: (!note.is_empty()).then_some(note),
        owned: owned.map(Hold::Packets).or(host.map(Hold::Host)),
        driver: Box::new(port),
    })
}

/// Keeps frames from the kernel, on whose device DPDK has a packet socket: the kernel is not to see what the stack owns.
fn keep_from_kernel(place: &Place, index: i32) -> (Option<Owned>, Option<owned::Error>) {
    match Owned::load(owned::Settings { ethernet: true, neighbours: true }) {
        Ok(owned) => place.own(Some(owned), index, None),
        Err(error) => (None, Some(error)),
    }
}
