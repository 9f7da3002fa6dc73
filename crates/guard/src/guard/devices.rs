//! Devices that are renamed, go into another network namespace, or come back from there.

use uncork_bpf::owned::Presence;

use super::{Guard, sessions};
use crate::devices::is_there;
use crate::queues::Queues;

impl Guard {
    /// Handles a change to a device, which may be one of ours.
    pub(super) fn look_at_devices(&mut self) {
        self.links.silence();
        for at in 0..self.plan.devices.len() {
            let index = self.plan.devices[at].index;
            match self.steering.presence(index) {
                Presence::Here => self.name_anew(at),
                // That device is no more, and its number may be another's.
                Presence::Deleted => {}
                Presence::Elsewhere => self.lose_device(index),
                Presence::Nothing => self.find_device(at),
            }
        }
    }

    fn name_anew(&mut self, at: usize) {
        let device = &mut self.plan.devices[at];
        let Ok(name) = uncork_driver::name_of(device.index) else { return };
        if name != device.name {
            self.queues.iter_mut().for_each(|queues| queues.rename(device.index, &name));
            device.name = name;
        }
    }

    /// Handles a device that has gone into another network namespace, and its filter with it, which would withhold packets to the
    /// same ports from their owners there. Nothing arrives by it here any more. What is the stack's by it becomes the kernel's,
    /// for its return: programs that had it open keep their old sockets, which then receive nothing.
    fn lose_device(&mut self, device: i32) {
        self.steering.lose_device(device, &sessions(&self.peers));
        self.groups.forget(device);
        self.queues.iter_mut().for_each(|queues| Queues::lose(queues, device));
        for session in self.peers.iter_mut().filter_map(|peer| peer.session.as_mut()) {
            session.lose_device(device);
        }
    }

    /// Takes a lost device back if one with the same index and address is here again.
    fn find_device(&mut self, at: usize) {
        let known = &self.plan.devices[at];
        if is_there(known) && self.steering.find_device(known.index).is_ok() {
            self.name_anew(at);
        }
    }
}
