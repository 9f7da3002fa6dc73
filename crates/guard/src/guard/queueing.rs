//! Queues of devices on their way to the programs that have opened the devices.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use uncork_bpf::owned::Engine;
use uncork_driver::af_xdp::Handed;
use uncork_guardian::Reply;

use super::passing::UNASKED;
use super::{Guard, sessions};
use crate::queues::Queues;

impl Guard {
    /// Gives free queues to the engines that are to have them.
    pub(super) fn hand_out_queues(&mut self) {
        let instances = self.instance_count();
        while let Some(queues) = &mut self.queues {
            let Some((queue, engine)) = queues.next(&sessions(&self.peers), instances) else {
                return;
            };
            match queues.give(queue, engine) {
                Ok((device, handed)) => {
                    // A program that does not take it is about to be buried.
                    let _ = self.say_queue(engine, device, handed);
                }
                Err(error) => queues.put_off(queue, &error),
            }
        }
    }

    /// Returns why a process has fewer queues than it should; for one with several stacks, the reasons of all of them.
    pub(super) fn missing_queues(&self, pid: u32) -> Vec<String> {
        let Some(queues) = &self.queues else { return Vec::new() };
        let its = self.peers.iter().filter(|peer| peer.pid == Some(pid));
        let its = its.filter_map(|peer| peer.session.as_ref());
        let all: BTreeSet<_> =
            its.flat_map(|session| queues.missing(session, self.instance_count())).collect();
        all.into_iter().collect()
    }

    fn instance_count(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    fn say_queue(&mut self, engine: Engine, device: i32, handed: Handed) -> io::Result<()> {
        let Handed { socket, frames, description } = handed;
        let mut say = |reply: Reply, descriptor: OwnedFd| {
            let is_it = |peer: &&mut crate::peer::Peer| {
                peer.session.as_ref().is_some_and(|session| session.engine == engine)
            };
            let peer = self.peers.iter_mut().find(is_it).ok_or(io::ErrorKind::NotFound)?;
            peer.say(UNASKED, reply, Some(descriptor))
        };
        say(Reply::Queue { device, socket: description }, socket)?;
        say(Reply::Frames, frames)
    }

    /// Frees the queues of an engine that is gone: others may have them.
    pub(super) fn free_queues(&mut self, engine: Engine) {
        if let Some(queues) = &mut self.queues {
            queues.free(engine);
            self.hand_out_queues();
        }
    }

    /// Retries queues that could not be given out, as it is time.
    pub(super) fn hand_out_again(&mut self) {
        self.queues.iter_mut().for_each(Queues::try_again);
        self.hand_out_queues();
    }

    /// Returns how long until queues that could not be opened are to be retried.
    pub(super) fn queueing_again(&self) -> Option<Duration> {
        self.queues.as_ref()?.retry()
    }
}
