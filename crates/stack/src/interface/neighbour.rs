//! The neighbour cache: ARP (RFC 826) and neighbour discovery (RFC 4861 §7.3), with the states of the
//! latter for both. Where addresses are shared with the kernel, requests go to the driver of the stack
//! instead, and ask where packets to an address go: the kernel routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::ethernet::Mac;

/// How long an answer is valid without confirmation (REACHABLE_TIME, RFC 4861 §10).
const REACHABLE: Duration = Duration::from_secs(30);
/// Time between solicitations (RETRANS_TIMER).
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);
/// Solicitations before the neighbour is unreachable (MAX_MULTICAST_SOLICIT).
const QUESTIONS: u8 = 3;
/// Most entries of the cache. More than that on one link are made up.
const MOST: usize = 4096;
/// Most entries where every remote address has one: as many as a server may have peers.
const MOST_REMOTE: usize = 65_536;
/// Entries that are compared to evict the one that was heard of longest ago: comparing all would cost more
/// than resolving the evicted one again.
const CANDIDATES: usize = 16;
/// How long the way back to the sender of a SYN is used before it is resolved: a peer that answers
/// is resolved at once, and one that does not was perhaps spoofed.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Identifies a neighbour entry, for as long as it is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeighbourId {
    place: u32,
    generation: u32,
}

/// Where packets to an address go, according to the kernel's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// To this hardware address.
    At {
        /// The next hop's hardware address.
        mac: Mac,
        /// The path MTU, if it is less than the device's.
        mtu: Option<u16>,
    },
    /// Out of another device than this stack's. A peer whose packets have come by this device is answered the way that they
    /// came, the only one that there is here; others are unreachable.
    Elsewhere,
    /// Nowhere: there is no route, or the next hop does not answer.
    Unreachable,
    /// Where it was told last, but changes are no longer told: the kernel has dropped its entry. It is requested anew as soon
    /// as something is sent there, or comes from there; what has no connection any more is not.
    Lapsed,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    generation: u32,
    mac: Option<Mac>,
    /// The path MTU, if it was told.
    mtu: Option<u16>,
    /// `mac` is only the source of the peer's SYN, or what was told before the kernel dropped its entry.
    assumed: bool,
    /// The kernel routes by another device: [`Found::Elsewhere`].
    elsewhere: bool,
    /// Until when `mac` is valid.
    fresh_until: Instant,
    /// Number of unanswered solicitations, and when the next is due.
    asked: u8,
    ask_at: Option<Instant>,
    /// Connections that wait for this entry to be resolved.
    waiting: Vec<u32>,
}

/// The content of a neighbour advertisement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) mac: Option<Mac>,
    /// It answers a solicitation.
    pub(crate) solicited: bool,
    /// It overrides a known address.
    pub(crate) overrides: bool,
}

/// A solicitation to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) address: IpAddr,
    /// The last known address, to which it is sent; without one it is multicast or broadcast.
    pub(crate) mac: Option<Mac>,
}

/// The neighbour cache.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Requests go to the driver of the stack, not to the link.
    outside: bool,
    entries: Vec<Neighbour>,
    /// Where the next search for an entry to evict begins.
    hand: usize,
    places: BTreeMap<IpAddr, u32>,
    questions: Vec<Question>,
    next_question: Option<Instant>,
}

impl Neighbours {
    pub(crate) fn new(outside: bool) -> Self {
        Self { outside, ..Self::default() }
    }

    pub(crate) fn find_or_add(&mut self, address: IpAddr) -> NeighbourId {
        if let Some(&place) = self.places.get(&address) {
            let generation = self.entries[place as usize].generation;
            return NeighbourId { place, generation };
        }
        let fresh = Neighbour {
            address,
            generation: 0,
            mac: None,
            mtu: None,
            assumed: false,
            elsewhere: false,
            fresh_until: Instant::ZERO,
            asked: 0,
            ask_at: None,
            waiting: Vec::new(),
        };
        let most = if self.outside { MOST_REMOTE } else { MOST };
        let place = if self.entries.len() < most {
            self.entries.push(fresh);
            self.entries.len() - 1
        } else {
            let place = self.oldest();
            let old = &mut self.entries[place];
            let generation = old.generation.wrapping_add(1);
            self.places.remove(&old.address);
            *old = Neighbour { generation, ..fresh };
            place
        };
        let generation = self.entries[place].generation;
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        self.places.insert(address, place);
        NeighbourId { place, generation }
    }

    /// Returns the place of the entry to evict.
    fn oldest(&mut self) -> usize {
        let count = self.entries.len();
        let first = self.hand;
        self.hand = (first + CANDIDATES) % count;
        let candidates = (first..first + CANDIDATES).map(|place| place % count);
        // One that connections wait for only if there is no other: nothing would wake them.
        let rank = |place: &usize| {
            let entry = &self.entries[*place];
            (!entry.waiting.is_empty(), entry.fresh_until)
        };
        candidates.min_by_key(rank).unwrap_or(0)
    }

    /// Returns whether the identifier still means this entry.
    pub(crate) fn is_current(&self, id: NeighbourId) -> bool {
        self.entries.get(id.place as usize).is_some_and(|entry| entry.generation == id.generation)
    }

    /// Returns the hardware address, if it is valid without a new solicitation.
    #[inline(always)]
    pub(crate) fn fresh(&self, id: NeighbourId, now: Instant) -> Option<Mac> {
        let entry = self.entries.get(id.place as usize)?;
        if entry.generation == id.generation && now < entry.fresh_until { entry.mac } else { None }
    }

    /// Returns the hardware address. If it is not known it is solicited, and if it is stale a
    /// solicitation asks whether it still holds.
    #[inline]
    pub(crate) fn mac(&mut self, id: NeighbourId, now: Instant) -> Option<Mac> {
        let entry = &self.entries[id.place as usize];
        if now < entry.fresh_until { entry.mac } else { self.mac_of_old(id, now) }
    }

    fn mac_of_old(&mut self, id: NeighbourId, now: Instant) -> Option<Mac> {
        let entry = &mut self.entries[id.place as usize];
        if entry.ask_at.is_none() {
            entry.asked = 0;
            self.ask(id.place as usize, now);
        }
        self.entries[id.place as usize].mac
    }

    /// Makes `place` wait until the address is known.
    pub(crate) fn wait(&mut self, id: NeighbourId, place: u32) {
        // A duplicate is harmless, as it only causes another look; but there must not be one for each attempt.
        let waiting = &mut self.entries[id.place as usize].waiting;
        if waiting.last() != Some(&place) {
            waiting.push(place);
        }
    }

    /// Returns whether a hardware address is known, even a stale one.
    pub(crate) fn is_known(&self, id: NeighbourId) -> bool {
        self.entries.get(id.place as usize).is_some_and(|entry| entry.mac.is_some())
    }

    /// Returns whether solicitations went unanswered.
    pub(crate) fn is_hopeless(&self, id: NeighbourId) -> bool {
        let entry = self.entries.get(id.place as usize);
        entry.is_some_and(|entry| {
            entry.mac.is_none() && (entry.ask_at.is_none() || entry.asked == 0)
        })
    }

    fn ask(&mut self, place: usize, now: Instant) {
        let entry = &mut self.entries[place];
        entry.asked += 1;
        self.questions.push(Question { address: entry.address, mac: entry.mac });
        self.ask_later(place, now);
    }

    fn ask_later(&mut self, place: usize, now: Instant) {
        let next = now + QUESTION_INTERVAL;
        self.entries[place].ask_at = Some(next);
        self.next_question = Some(self.next_question.map_or(next, |first| first.min(next)));
    }

    /// Records an address from ARP or a solicitation, and returns the connections that waited for it.
    /// With `make_known` an entry is added even if nothing needed one.
    pub(crate) fn learn(
        &mut self,
        address: IpAddr,
        mac: Mac,
        now: Instant,
        make_known: bool,
    ) -> Vec<u32> {
        if !make_known && !self.places.contains_key(&address) {
            return Vec::new();
        }
        let id = self.find_or_add(address);
        let entry = &mut self.entries[id.place as usize];
        entry.mac = Some(mac);
        entry.fresh_until = now + REACHABLE;
        entry.ask_at = None;
        entry.asked = 0;
        std::mem::take(&mut entry.waiting)
    }

    /// Handles a neighbour advertisement (RFC 4861 §7.2.5), and returns the connections that waited for it.
    pub(crate) fn advertised(&mut self, address: IpAddr, told: Told, now: Instant) -> Vec<u32> {
        let Some(&place) = self.places.get(&address) else { return Vec::new() };
        let entry = &mut self.entries[place as usize];
        let mac = match (told.mac, entry.mac) {
            // Nothing is known, and nothing is told.
            (None, None) => return Vec::new(),
            (Some(mac), Some(known)) if mac != known && !told.overrides => {
                // It may have moved, or another node may be spoofing it: the entry becomes stale, to be verified on its next use.
                entry.fresh_until = entry.fresh_until.min(now);
                return Vec::new();
            }
            (told, known) => told.or(known),
        };
        if told.solicited {
            entry.fresh_until = now + REACHABLE;
            entry.ask_at = None;
            entry.asked = 0;
        } else if mac != entry.mac {
            entry.fresh_until = Instant::ZERO;
            entry.ask_at = None;
        }
        entry.mac = mac;
        std::mem::take(&mut entry.waiting)
    }

    /// Confirms that the neighbour is reachable, as new data or ACKs from the peer prove it (RFC 4861 §7.3.1). That the
    /// way back to its SYN works does not make it the kernel's route: that is requested now.
    #[inline(always)]
    pub(crate) fn confirm(&mut self, id: NeighbourId, now: Instant) {
        let place = id.place as usize;
        if let Some(entry) = self.entries.get_mut(place)
            && entry.generation == id.generation
            && entry.mac.is_some()
        {
            entry.fresh_until = now + REACHABLE;
            if entry.assumed {
                self.confirm_assumed(place, now);
            } else if !self.outside {
                entry.ask_at = None;
            }
        }
    }

    #[inline(never)]
    fn confirm_assumed(&mut self, place: usize, now: Instant) {
        let entry = &mut self.entries[place];
        entry.assumed = false;
        if entry.ask_at.is_none() {
            self.ask(place, now);
        } else if !self.outside {
            entry.ask_at = None;
        }
    }

    /// Records that a SYN from this address came from `mac`: as long as nothing better is known, the answer
    /// goes back there.
    pub(crate) fn assume(&mut self, id: NeighbourId, mac: Mac, now: Instant) {
        if let Some(entry) = self.entries.get_mut(id.place as usize)
            && (entry.mac.is_none() || entry.elsewhere)
        {
            entry.mac = Some(mac);
            entry.assumed = true;
            entry.fresh_until = now + HANDSHAKE;
        }
    }

    /// Records what the driver of the stack says about the way to `address`. Returns the neighbour, and the
    /// connections that waited for it; nothing if they are to go on as before.
    pub(crate) fn tell(
        &mut self,
        address: IpAddr,
        found: Found,
        now: Instant,
    ) -> Option<(NeighbourId, Vec<u32>)> {
        // There was no request, or its entry has been evicted.
        let &place = self.places.get(&address)?;
        let entry = &mut self.entries[place as usize];
        (entry.mac, entry.mtu) = match found {
            Found::At { mac, mtu } => (Some(mac), mtu),
            Found::Elsewhere => (entry.mac, None),
            Found::Unreachable => (None, entry.mtu),
            Found::Lapsed => {
                // Whichever comes first, what is sent or what confirms it, requests it.
                entry.assumed = entry.mac.is_some();
                entry.fresh_until = entry.fresh_until.min(now);
                return None;
            }
        };
        entry.assumed = false;
        entry.elsewhere = found == Found::Elsewhere;
        entry.asked = 0;
        let waiting = std::mem::take(&mut entry.waiting);
        let id = NeighbourId { place, generation: entry.generation };
        if entry.mac.is_some() {
            entry.fresh_until = now + REACHABLE;
            entry.ask_at = None;
        } else {
            // Open connections go on waiting. They must not cause requests without a pause.
            entry.fresh_until = Instant::ZERO;
            self.ask_later(place as usize, now);
        }
        Some((id, waiting))
    }

    /// Returns the path MTU, if it was told.
    pub(crate) fn mtu(&self, id: NeighbourId) -> Option<u16> {
        self.entries.get(id.place as usize).and_then(|entry| entry.mtu)
    }

    /// Repeats the solicitations that are due. Returns the connections whose neighbour does not answer.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<u32> {
        let mut unreachable = Vec::new();
        if self.next_question.is_none_or(|next| next > now) {
            return unreachable;
        }
        self.next_question = None;
        for place in 0..self.entries.len() {
            let entry = &mut self.entries[place];
            match entry.ask_at {
                Some(due) if due <= now && entry.mac.is_none() && entry.waiting.is_empty() => {
                    entry.ask_at = None;
                }
                Some(due) if due <= now && entry.asked >= QUESTIONS => {
                    entry.ask_at = None;
                    entry.asked = 0;
                    // That the driver says nothing does not mean that the neighbour is gone.
                    if self.outside && entry.mac.is_some() {
                        entry.fresh_until = now + REACHABLE;
                        continue;
                    }
                    entry.mac = None;
                    unreachable.append(&mut entry.waiting);
                }
                Some(due) if due <= now => self.ask(place, now),
                Some(due) => {
                    self.next_question =
                        Some(self.next_question.map_or(due, |first| first.min(due)));
                }
                None => {}
            }
        }
        unreachable
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next_question
    }

    /// Returns whether there is a solicitation to send.
    #[inline]
    pub(crate) fn has_question(&self) -> bool {
        !self.outside && !self.questions.is_empty()
    }

    /// Takes the next solicitation to send, if there is one.
    pub(crate) fn poll_question(&mut self) -> Option<Question> {
        if self.outside { None } else { self.questions.pop() }
    }

    /// Returns whether there is a request for the driver of the stack.
    #[inline]
    pub(crate) fn has_outside_question(&self) -> bool {
        self.outside && !self.questions.is_empty()
    }

    /// Takes the next address for which the driver is asked, if there is one.
    pub(crate) fn poll_outside_question(&mut self) -> Option<IpAddr> {
        if self.outside { self.questions.pop().map(|question| question.address) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use uncork_packet::Instant;
    use uncork_wire::ethernet::Mac;

    use super::{Found, Neighbours, Question, Told};

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

    fn address() -> IpAddr {
        "10.0.0.7".parse().unwrap()
    }

    #[test]
    fn who_is_not_known_is_asked_three_times_and_then_not_reachable() {
        let mut neighbours = Neighbours::default();
        let id = neighbours.find_or_add(address());
        let mut now = Instant::ZERO;
        assert_eq!(neighbours.mac(id, now), None);
        neighbours.wait(id, 5);
        for _ in 0..3 {
            let question = Question { address: address(), mac: None };
            assert_eq!(neighbours.poll_question(), Some(question));
            assert_eq!(neighbours.poll_question(), None);
            now = neighbours.next_timeout().unwrap();
            let unreachable = neighbours.handle_timeout(now);
            assert_eq!(unreachable.is_empty(), now < Instant::from_millis(3000));
        }
        assert_eq!(neighbours.next_timeout(), None);
    }

    #[test]
    fn an_address_that_is_old_is_used_while_it_is_asked_for() {
        let mut neighbours = Neighbours::default();
        let id = neighbours.find_or_add(address());
        neighbours.mac(id, Instant::ZERO);
        neighbours.wait(id, 5);
        assert_eq!(neighbours.learn(address(), MAC, Instant::ZERO, false), [5]);
        neighbours.poll_question();
        let later = Instant::from_millis(29_000);
        assert_eq!((neighbours.mac(id, later), neighbours.poll_question()), (Some(MAC), None));
        neighbours.confirm(id, later);
        let later = later + Duration::from_secs(31);
        assert_eq!(neighbours.mac(id, later), Some(MAC));
        assert_eq!(neighbours.poll_question().and_then(|question| question.mac), Some(MAC));
    }

    #[test]
    fn an_advertisement_confirms_what_is_known_and_replaces_it_only_if_it_says_so() {
        // RFC 4861 §7.2.5.
        let address: IpAddr = "fe80::7".parse().unwrap();
        let (no_mac, other) = (None, Mac([2, 0, 0, 0, 0, 9]));
        let told = |mac, solicited, overrides| Told { mac, solicited, overrides };
        let mut neighbours = Neighbours::default();
        let at = Instant::from_millis;
        assert!(neighbours.advertised(address, told(Some(MAC), true, true), at(0)).is_empty());
        let id = neighbours.find_or_add(address);
        assert_eq!(neighbours.mac(id, at(0)), None);
        neighbours.wait(id, 5);
        // While nothing is known, any address that comes is taken.
        assert!(neighbours.advertised(address, told(no_mac, true, true), at(1)).is_empty());
        assert_eq!(neighbours.advertised(address, told(Some(MAC), true, false), at(1)), [5]);
        neighbours.poll_question();
        // An answer without an address confirms the known one.
        assert_eq!(neighbours.fresh(id, at(30_500)), None);
        neighbours.advertised(address, told(no_mac, true, false), at(30_000));
        assert_eq!(neighbours.fresh(id, at(59_000)), Some(MAC));
        // Another address without the override flag makes the entry stale, and no more.
        neighbours.advertised(address, told(Some(other), true, false), at(31_000));
        assert_eq!(neighbours.fresh(id, at(31_000)), None);
        assert_eq!(neighbours.mac(id, at(31_000)), Some(MAC));
        let question = Question { address, mac: Some(MAC) };
        assert_eq!(neighbours.poll_question(), Some(question));
        // One with the override flag is taken; an unsolicited one has yet to be confirmed.
        neighbours.advertised(address, told(Some(other), false, true), at(31_500));
        assert_eq!(neighbours.mac(id, at(31_500)), Some(other));
        assert!(neighbours.poll_question().is_some() && neighbours.fresh(id, at(31_500)).is_none());
        neighbours.advertised(address, told(Some(other), true, true), at(31_600));
        assert_eq!(neighbours.fresh(id, at(31_600)), Some(other));
    }

    #[test]
    fn an_answer_that_nobody_has_asked_for_is_not_kept() {
        let mut neighbours = Neighbours::default();
        neighbours.learn(address(), MAC, Instant::ZERO, false);
        assert!(neighbours.places.is_empty());
        let id = neighbours.find_or_add(address());
        assert!(neighbours.is_current(id));
    }

    #[test]
    fn whose_way_leads_over_another_device_is_answered_where_he_came_from() {
        let now = Instant::ZERO;
        let mut neighbours = Neighbours::new(true);
        let id = neighbours.find_or_add(address());
        neighbours.assume(id, MAC, now);
        neighbours.confirm(id, now);
        assert_eq!(neighbours.poll_outside_question(), Some(address()));
        neighbours.tell(address(), Found::Elsewhere, now);
        assert_eq!(neighbours.mac(id, now), Some(MAC));
        // Its router has changed meanwhile.
        let other = Mac([2, 0, 0, 0, 0, 8]);
        neighbours.assume(id, other, now);
        assert_eq!(neighbours.mac(id, now), Some(other));
        neighbours.tell(address(), Found::Unreachable, now);
        assert_eq!(neighbours.mac(id, now), None);
        neighbours.tell(address(), Found::Elsewhere, now);
        assert!(!neighbours.is_known(id), "nobody has come from there");
    }

    #[test]
    fn what_has_lapsed_is_used_and_requested_once_it_is_needed() {
        let at = Instant::from_millis;
        let told = || {
            let mut neighbours = Neighbours::new(true);
            let id = neighbours.find_or_add(address());
            neighbours.mac(id, at(0));
            assert_eq!(neighbours.poll_outside_question(), Some(address()));
            neighbours.tell(address(), Found::At { mac: MAC, mtu: Some(1400) }, at(0));
            assert!(neighbours.tell(address(), Found::Lapsed, at(10)).is_none());
            assert_eq!(neighbours.poll_outside_question(), None, "nothing has needed it");
            (neighbours, id)
        };
        // By what is sent.
        let (mut neighbours, id) = told();
        assert_eq!(neighbours.fresh(id, at(20)), None);
        assert_eq!((neighbours.mac(id, at(20)), neighbours.mtu(id)), (Some(MAC), Some(1400)));
        assert_eq!(neighbours.poll_outside_question(), Some(address()));
        assert_eq!(neighbours.mac(id, at(21)), Some(MAC));
        assert_eq!(neighbours.poll_outside_question(), None, "it is requested already");
        // By what has come, which would keep it fresh without end.
        let (mut neighbours, id) = told();
        neighbours.confirm(id, at(20));
        assert_eq!(neighbours.poll_outside_question(), Some(address()));
        let other = Mac([2, 0, 0, 0, 0, 8]);
        neighbours.tell(address(), Found::At { mac: other, mtu: None }, at(30));
        assert_eq!(neighbours.fresh(id, at(30)), Some(other));
        neighbours.confirm(id, at(40));
        assert_eq!(neighbours.poll_outside_question(), None);
    }

    #[test]
    fn who_is_waited_for_does_not_make_room_for_others() {
        let mut neighbours = Neighbours::default();
        let id = neighbours.find_or_add(address());
        neighbours.mac(id, Instant::ZERO);
        neighbours.wait(id, 5);
        for number in 0..2 * super::MOST as u32 {
            neighbours.find_or_add(std::net::Ipv4Addr::from(0x0b00_0000 + number).into());
        }
        assert!(neighbours.is_current(id));
        assert_eq!(neighbours.learn(address(), MAC, Instant::ZERO, false), [5]);
    }
}
