//! Queues of devices on their way to who has opened the devices.

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
    /// Gives queues that are free to who is to have them.
    pub(super) fn hand_out_queues(&mut self) {
        let instances = self.instance_count();
        while let Some(queues) = &mut self.queues {
            let Some((queue, engine)) = queues.next(&sessions(&self.peers), instances) else {
                return;
            };
            match queues.give(queue, engine) {
                Ok((device, handed)) => {
                    // Who does not take it is about to be buried.
                    let _ = self.say_queue(engine, device, handed);
                }
                Err(error) => queues.put_off(queue, &error),
            }
        }
    }

    /// Why a process has fewer queues than it is to have; of one with several stacks, all that holds for any.
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

    /// An engine is gone: others may have its queues.
    pub(super) fn free_queues(&mut self, engine: Engine) {
        if let Some(queues) = &mut self.queues {
            queues.free(engine);
            self.hand_out_queues();
        }
    }

    /// The time has come for those that could not be given.
    pub(super) fn hand_out_again(&mut self) {
        self.queues.iter_mut().for_each(Queues::try_again);
        self.hand_out_queues();
    }

    /// How long it is until queues are to be handed out again that could not be opened.
    pub(super) fn queueing_again(&self) -> Option<Duration> {
        self.queues.as_ref()?.retry()
    }
}
