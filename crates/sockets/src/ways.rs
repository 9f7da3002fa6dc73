//! What passes between the stack and the kernel beside frames: where packets to an address go, and which
//! connections the stack has.

use std::net::IpAddr;

use uncork_neighbours::{self as neighbours, Answer, Neighbours, Question};
use uncork_stack::{Change, Found, Mac};

use crate::host::Entry;
use crate::link::Link;
use crate::world::World;

impl World {
    pub(crate) fn ways(&mut self) -> Option<&mut Neighbours> {
        if self.ways.is_none() {
            self.ways = Neighbours::open().ok();
        }
        self.ways.as_mut()
    }

    /// Returns the link of this number ([`Link::number`]), which is not its place among the present links where devices were put
    /// away before.
    fn numbered(&mut self, number: usize) -> Option<&mut Link> {
        self.links().iter_mut().find(|link| link.number() == number)
    }

    /// Asks the kernel where packets to an address go, for the stack of the link of this number.
    pub(crate) fn ask_way(&mut self, link: usize, remote: IpAddr) {
        let question = self.numbered(link).and_then(|link| link.question(remote));
        if let (Some(question), Some(ways)) = (question, self.ways()) {
            // Without an answer the stack asks again, until the caller that waits for it gives up.
            let _ = ways.ask(question);
        }
        self.hear_ways();
    }

    /// Looks further where routes have changed, and not all that go by them were looked at in one go.
    pub(crate) fn review_ways(&mut self) {
        if self.ways.as_ref().is_some_and(Neighbours::has_more) {
            self.hear_ways();
        }
    }

    /// Passes the kernel's answers, and what has changed of them, on to the stacks.
    pub(crate) fn hear_ways(&mut self) {
        let Some(ways) = &mut self.ways else { return };
        let mut answers = Vec::new();
        while let Ok(Some(answer)) = ways.poll() {
            answers.push(answer);
        }
        for (device, mac) in ways.take_devices() {
            for link in self.links().iter_mut().filter(|link| link.has_device(device)) {
                link.stack().set_mac(Mac(mac));
            }
        }
        for Answer { question: Question { remote, device, .. }, found } in answers {
            let found = match found {
                neighbours::Found::At { mac, mtu, .. } => Found::At { mac: Mac(mac), mtu },
                neighbours::Found::Elsewhere => Found::Elsewhere,
                neighbours::Found::Unreachable => Found::Unreachable,
                neighbours::Found::Lapsed => Found::Lapsed,
            };
            let has_asked = |link: &&mut Link| device.is_some_and(|device| link.has_device(device));
            for link in self.links().iter_mut().filter(has_asked) {
                let now = link.now();
                link.stack().set_neighbour(now, remote, found);
            }
        }
    }

    /// Keeps the list that the privileged half needs when this process dies.
    pub(crate) fn keep_list(&mut self, link: usize, change: Change) {
        let (place, entry) = match change {
            Change::Came { place, local, remote } => {
                let own = self.numbered(link).is_some_and(|link| !link.is_attached());
                let at = if own { self.host.enter(local, remote) } else { None };
                (place, Some(Entry { local, remote, at }))
            }
            Change::Over { place } => {
                let entry = self.numbered(link).and_then(|link| link.entry(place));
                let Some(Entry { local, remote, at }) = entry else { return };
                let (ends, at) = ((*local, *remote), at.take());
                // No peer has to be told of this process's death any more.
                if let Some(at) = at {
                    self.host.leave(at);
                }
                self.ports.is_closed(ends);
                if self.ports.has_much_to_say() {
                    self.say_over();
                }
                return;
            }
            Change::Went { place } => (place, None),
            Change::Left { .. } => return,
        };
        self.stands_there(link, place, entry);
    }

    /// Enters the connection that stands at this place from now on, or that none does any more.
    pub(crate) fn stands_there(&mut self, link: usize, place: u32, entry: Option<Entry>) {
        let Some(link) = self.numbered(link) else { return };
        let Some(Entry { local, remote, at }) = link.enter(place, entry) else { return };
        if let Some(at) = at {
            self.host.leave(at);
        }
        self.disown_connection(local, remote);
    }
}
