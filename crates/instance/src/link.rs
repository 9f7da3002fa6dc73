//! A link: a device's engine, the owners of its connections, and their entries in the guardian's table.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use uncork_attach::record::Ends;
use uncork_driver::{Driver, Redirected};
use uncork_engine::{Engine, Instant, Program};
use uncork_guardian::Entry;
use uncork_neighbours::Question;
use uncork_stack::{Change, Cidr, Config, Event, Mac, SocketId, Stack, State};
use uncork_stat::ByQueue;

use crate::floor::Host;

/// How long an ACK waits for a program's answer: most answer sooner, and a peer with more to say may wait for it (Nagle).
const PATIENCE: Duration = Duration::from_micros(250);

/// The owner of a connection: the guest's index, and the number that the connection has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) guest: usize,
    pub(crate) number: u32,
}

/// A connection's entry in the guardian's table.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) ends: Ends,
    pub(crate) entry: Option<Entry>,
}

/// What happens in a turn. Connections are in the guardian's table before anything of theirs leaves: a peer that has its SYN-ACK
/// is told if this process dies at that instant.
struct News<'a> {
    events: Vec<Event>,
    changes: VecDeque<(Change, Option<Listed>)>,
    host: &'a mut dyn Host,
}

impl Program for News<'_> {
    fn on_event(&mut self, _: &mut Stack, _: Instant, event: Event) {
        self.events.push(event);
    }

    fn on_turn(&mut self, stack: &mut Stack, _: Instant) {
        while let Some(change) = stack.poll_change() {
            let listed = match change {
                Change::Came { local, remote, .. } => {
                    let ends = Ends { local, remote };
                    Some(Listed { ends, entry: self.host.enter(ends) })
                }
                _ => None,
            };
            self.changes.push_back((change, listed));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// A device, with its engine.
pub struct Link {
    name: String,
    /// Its index.
    pub(crate) device: u32,
    engine: Engine<Box<dyn Driver + Send>>,
    addresses: Vec<Cidr>,
    /// Owners of connections, by the connection's place in the stack.
    owners: Vec<Option<(SocketId, Owner)>>,
    listed: Vec<Option<Listed>>,
    /// Connections that have come and gone in turns, with the entries that they already have.
    changes: VecDeque<(Change, Option<Listed>)>,
    news: Vec<Event>,
    /// Whether its device is gone.
    gone: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// Returns the configuration of its stack, unless another one is wanted.
    #[must_use]
    pub fn config() -> Config {
        // The stack is not told what its programs have looked at.
        Config { hands_on: true, answer_patience: PATIENCE, ..Config::of_programs() }
    }

    /// Makes a stack on a device, whose addresses it shares with the kernel. `seed` are bytes that nobody can guess.
    #[must_use]
    pub fn new(
        (name, device): (String, u32),
        driver: Box<dyn Driver + Send>,
        mac: Mac,
        addresses: Vec<Cidr>,
        config: Config,
        seed: [u8; 32],
    ) -> Self {
        let mut stack = Stack::new(config, driver.capabilities(), mac, seed);
        for &address in &addresses {
            stack.add_address(address);
        }
        Self {
            name,
            device,
            engine: Engine::new(driver, stack),
            addresses,
            owners: Vec::new(),
            listed: Vec::new(),
            changes: VecDeque::new(),
            news: Vec::new(),
            gone: false,
        }
    }

    /// Sets for how long frames may wait for others, at most ([`Engine::moderate`]).
    pub fn moderate(&mut self, longest: Duration) {
        self.engine.moderate(longest);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many frames came and found no room.
    pub(crate) fn lost(&mut self) -> Option<u64> {
        self.engine.driver().lost()
    }

    /// Returns what came by AF_XDP queues of its own.
    pub(crate) fn by_queue(&mut self) -> Option<ByQueue> {
        let Redirected { queues, frames } = self.engine.driver().redirected()?;
        Some(ByQueue::new(&self.name, &queues, frames))
    }

    pub(crate) fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Returns its stack.
    pub fn stack(&mut self) -> &mut Stack {
        self.engine.stack()
    }

    /// Tells whether the peer's last octet has come, or the connection no longer exists.
    pub(crate) fn has_peer_ended(&mut self, id: SocketId) -> bool {
        use State::{Established, FinWait1, FinWait2, SynReceived, SynSent};
        let state = self.stack().state(id).unwrap_or(State::Closed);
        !matches!(state, SynSent | SynReceived | Established | FinWait1 | FinWait2)
    }

    /// Returns the question about the next hop to this address.
    pub(crate) fn question(&self, remote: IpAddr) -> Question {
        Question::by(self.device, self.addresses.iter().map(|ours| ours.address), remote)
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|ours| ours.address == address)
    }

    pub(crate) fn bind(&mut self, id: SocketId, owner: Owner) {
        *slot(&mut self.owners, place(id)) = Some((id, owner));
    }

    pub(crate) fn unbind(&mut self, id: SocketId) {
        if let Some(slot) = self.owners.get_mut(place(id) as usize)
            && slot.is_some_and(|(other, _)| other == id)
        {
            *slot = None;
        }
    }

    pub(crate) fn owner(&self, id: SocketId) -> Option<Owner> {
        let (other, owner) = (*self.owners.get(place(id) as usize)?)?;
        (other == id).then_some(owner)
    }

    /// Takes the owner of the connection that stood at this place, which has gone.
    pub(crate) fn owner_at(&mut self, place: u32) -> Option<Owner> {
        self.owners.get_mut(place as usize)?.take().map(|(_, owner)| owner)
    }

    pub(crate) fn listed(&mut self, place: u32) -> Option<&mut Listed> {
        self.listed.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn list(&mut self, place: u32, listed: Option<Listed>) -> Option<Listed> {
        std::mem::replace(slot(&mut self.listed, place), listed)
    }

    /// Takes in what has come, unless that is `moderated` and may wait for more, and sends what may leave; tells whether anything
    /// has happened.
    pub(crate) fn turn(
        &mut self,
        host: &mut dyn Host,
        events: &mut Vec<Event>,
        moderated: bool,
    ) -> io::Result<bool> {
        if self.gone {
            events.extend(std::iter::from_fn(|| self.engine.stack().poll_event()));
            return Ok(false);
        }
        let (news, changes) = (std::mem::take(&mut self.news), std::mem::take(&mut self.changes));
        let mut happened = News { events: news, changes, host };
        let turned = if moderated {
            self.engine.turn_moderated(&mut happened)
        } else {
            self.engine.turn(&mut happened)
        };
        events.append(&mut happened.events);
        (self.news, self.changes) = (happened.events, happened.changes);
        turned
    }

    /// Ends all connections, as the device is gone.
    pub(crate) fn lose(&mut self) {
        let now = self.now();
        let stack = self.engine.stack();
        let all: Vec<_> = stack.sockets().collect();
        all.into_iter().for_each(|id| stack.abort(now, id));
        self.gone = true;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Resets all connections. What has come since is the kernel's, which answers it, too.
    pub(crate) fn abort_all(&mut self) {
        let now = self.now();
        self.stack().abort_all(now);
        // A device that is gone takes nothing.
        let _ = self.engine.send_last();
    }

    /// Returns the next connection that has come or gone; if it came in a turn, with the entry that it already has.
    pub(crate) fn next_change(&mut self) -> Option<(Change, Option<Listed>)> {
        let of_turns = self.changes.pop_front();
        of_turns.or_else(|| Some((self.engine.stack().poll_change()?, None)))
    }

    pub(crate) fn rest(&mut self) -> (Option<BorrowedFd<'_>>, Option<Duration>) {
        if self.gone {
            return (None, None);
        }
        self.engine.rest()
    }
}

fn slot<T>(all: &mut Vec<Option<T>>, place: u32) -> &mut Option<T> {
    let at = place as usize;
    if all.len() <= at {
        all.resize_with((at + 1).next_power_of_two(), || None);
    }
    &mut all[at]
}

/// Returns a connection's place in its stack: the lower half of its number.
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn place(id: SocketId) -> u32 {
    id.as_u64() as u32
}
