//! An existing device, by an AF_XDP socket on each of its queues.

use uncork_bpf::owned::{self, Engine, Ours, Owned};
use uncork_driver::af_xdp::{Nature, Port, Queues, Settings};
use uncork_driver::{Driver, OpenError};
use uncork_stack::Mac;

use super::{Hold, Opened, Place};
use crate::error::Error;

pub(super) fn open(place: &Place) -> Result<Opened, Error> {
    place.refuse_mtu()?;
    place.refuse_host()?;
    let Nature { index, queues, marks } = Nature::of(&place.device)?;
    let settings = owned::Settings { ethernet: true, neighbours: true };
    let owned = Owned::load(settings)?;
    let mut redirect = owned.redirect_for(Engine::ONLY, owned::Queues { count: queues, marks })?;
    let open = |queue| Port::open(&Settings { queue, ..Settings::new(&place.device) });
    let ports = (0..queues).map(open).collect::<Result<Vec<Port>, OpenError>>()?;
    for port in &ports {
        redirect.enter(port.queue(), port.socket())?;
    }
    for ours in &place.addresses {
        owned.own(Ours::Address(ours.address))?;
    }
    // From here on the kernel does not see the stack's frames.
    redirect.attach(index).map_err(Error::of_device(&place.device))?;
    let mac = Mac(ports[0].mac());
    let how = if ports.iter().all(Port::is_zero_copy) { "AF_XDP, zero copy" } else { "AF_XDP" };
    Ok(Opened {
        driver: join(ports)?,
        device: place.device.clone(),
        how: how.into(),
        mac,
        note: None,
        owned: Some(Hold::Sockets(owned, redirect)),
    })
}

/// Joins the ports; a single one needs no polling in turn.
fn join(mut ports: Vec<Port>) -> Result<Box<dyn Driver>, OpenError> {
    match ports.pop() {
        Some(port) if ports.is_empty() => Ok(Box::new(port)),
        last => {
            ports.extend(last);
            Ok(Box::new(Queues::new(ports)?))
        }
    }
}
