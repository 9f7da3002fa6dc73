//! Connections of the stack that become the kernel's.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Uid, fchown};
use rustix::process::geteuid;
use uncork_handover::{self as handover, Family};
use uncork_stack::Snapshot;

use super::Guard;
use crate::steering::plain;
use uncork_closing::ClosedApart;

/// Upper limit for the octets in a buffer of a stack, and in one of the kernel's that was sized without a privilege.
const MOST_BYTES: u32 = 32 << 20;

impl Guard {
    /// Has the kernel take over a connection of this peer's. The peer gets the socket once it is connected and out of repair
    /// mode: on a socket of its own it would have that mode as well, which lets one bind and listen where another program does.
    pub(super) fn take_over(
        &mut self,
        at: usize,
        snapshot: &Snapshot,
        inet6: bool,
        queues: Option<&ClosedApart>,
    ) -> Result<ClosedApart, String> {
        let ends = (plain(snapshot.local), plain(snapshot.remote));
        if !self.steering.is_its(self.session(at)?, &ends) {
            return Err(format!("no connection from {} to {} was owned", ends.0, ends.1));
        }
        let counts = [
            snapshot.unread_bytes,
            snapshot.receive_window_bytes,
            snapshot.unacknowledged_bytes,
            snapshot.unsent_bytes,
        ];
        if counts.into_iter().any(|count| count > MOST_BYTES) {
            return Err("no connection has so many octets in its queues".to_owned());
        }
        let family = if inet6 { Family::Inet6 } else { Family::OfAddress };
        let uid = self.peers[at].uid.ok_or("it is not known whose program this is")?;
        let why = |error: handover::Error| error.to_string();
        let socket = handover::open(snapshot, family).map_err(why)?;
        give_to(&socket, uid)?;
        let filled = match queues {
            Some(memory) => handover::octets(memory.as_fd())
                .map_err(|error| format!("what is in its queues cannot be read: {error}"))
                .and_then(|mut octets| {
                    handover::fill(socket.as_fd(), snapshot, &mut octets).map_err(why)
                }),
            None => handover::fill(socket.as_fd(), snapshot, &mut io::empty()).map_err(why),
        };
        filled?;
        self.steering.give_back(ends)?;
        if let Some(instance) = self.instance_of(at)? {
            self.session_mut(instance)?.gave_away(&ends);
        }
        self.session_mut(at)?.gave_away(&ends);
        handover::start(socket.as_fd(), snapshot).map_err(why)?;
        Ok(ClosedApart::new(socket, &self.passed.of(Some(uid))))
    }
}

/// Makes a socket count as its program's, not as this process's, where the kernel asks whose it is: sockets that share a port
/// (SO_REUSEPORT) have to be of the same user.
fn give_to(socket: &OwnedFd, uid: u32) -> Result<(), String> {
    if uid == geteuid().as_raw() {
        return Ok(());
    }
    fchown(socket, Some(Uid::from_raw(uid)), None)
        .map_err(|error| format!("the connection cannot be given to its user: {error}"))
}
