//! Who is behind an address on the link: ARP (RFC 826) and neighbour discovery (RFC 4861 §7.3) with
//! the states of the latter for both. Where addresses are shared with the kernel the same questions go to
//! whoever drives the stack, and are about where packets to an address go: the kernel routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::ethernet::Mac;

/// How long an answer is believed without a sign of life (REACHABLE_TIME, RFC 4861 §10).
const REACHABLE: Duration = Duration::from_secs(30);
/// Time between questions (RETRANS_TIMER).
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);
/// Questions before nobody is thought to be there (MAX_MULTICAST_SOLICIT).
const QUESTIONS: u8 = 3;
/// Neighbours that are kept. More than that on one link are made up.
const MOST: usize = 4096;
/// Where every remote address is asked for: as many as a server's peers may be.
const MOST_REMOTE: usize = 65_536;
/// Of so many the one that was heard of longest ago makes room: to look at all of them would cost more
/// than what is asked for.
const CANDIDATES: usize = 16;
/// How long the way back to who has sent a SYN is used before anybody asks: if he answers, that is asked
/// for at once, and if not, it was perhaps made up.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A neighbour; stays the same as long as he is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeighbourId {
    place: u32,
    generation: u32,
}

/// Where packets to an address go, as the kernel's tables have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// To this hardware address.
    At {
        /// The next hop's.
        mac: Mac,
        /// The longest packet that gets through to the end, if that is less than the device takes.
        mtu: Option<u16>,
    },
    /// Out of another device than this stack's. Who has come by this one is answered the way that he came, which is all that there
    /// is here; to others there is no way.
    Elsewhere,
    /// Nowhere: there is no route, or the next hop does not answer.
    Unreachable,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    generation: u32,
    mac: Option<Mac>,
    /// The longest packet, if it was told.
    mtu: Option<u16>,
    /// It is only known where his SYN came from.
    assumed: bool,
    /// And nobody knows better: [`Found::Elsewhere`].
    elsewhere: bool,
    /// Until when `mac` is believed.
    fresh_until: Instant,
    /// Questions that were asked and not answered, and when the next is due.
    asked: u8,
    ask_at: Option<Instant>,
    /// Connections that have something to send to him.
    waiting: Vec<u32>,
}

/// What an advertisement tells of a neighbour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) mac: Option<Mac>,
    /// It answers a question of ours.
    pub(crate) solicited: bool,
    /// It takes precedence over what is known.
    pub(crate) overrides: bool,
}

/// A question to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) address: IpAddr,
    /// Where he was; everybody is asked if that is not known.
    pub(crate) mac: Option<Mac>,
}

/// All that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Whoever drives the stack is asked, and not the link.
    outside: bool,
    entries: Vec<Neighbour>,
    /// Where to look next for one that makes room.
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

    /// Who makes room.
    fn oldest(&mut self) -> usize {
        let count = self.entries.len();
        let first = self.hand;
        self.hand = (first + CANDIDATES) % count;
        let candidates = (first..first + CANDIDATES).map(|place| place % count);
        // One that connections wait for only if there is no other: they would not hear of it.
        let rank = |place: &usize| {
            let entry = &self.entries[*place];
            (!entry.waiting.is_empty(), entry.fresh_until)
        };
        candidates.min_by_key(rank).unwrap_or(0)
    }

    /// Whether this is still who it was.
    pub(crate) fn is_current(&self, id: NeighbourId) -> bool {
        self.entries.get(id.place as usize).is_some_and(|entry| entry.generation == id.generation)
    }

    /// His hardware address, if nobody need be asked for it.
    #[inline(always)]
    pub(crate) fn fresh(&self, id: NeighbourId, now: Instant) -> Option<Mac> {
        let entry = self.entries.get(id.place as usize)?;
        if entry.generation == id.generation && now < entry.fresh_until { entry.mac } else { None }
    }

    /// His hardware address. If it is not known he is asked for it, and if it is old he is asked
    /// whether it still holds.
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

    /// `place` has something for him once his address is known.
    pub(crate) fn wait(&mut self, id: NeighbourId, place: u32) {
        // Twice does no harm, it is only looked at again; but not as often as somebody tries.
        let waiting = &mut self.entries[id.place as usize].waiting;
        if waiting.last() != Some(&place) {
            waiting.push(place);
        }
    }

    /// Whether there is a way to him, be it an old one.
    pub(crate) fn is_known(&self, id: NeighbourId) -> bool {
        self.entries.get(id.place as usize).is_some_and(|entry| entry.mac.is_some())
    }

    /// Whether he was asked for and has not answered.
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

    /// He has said where he is. Gives the connections that have waited for that. With `make_known`
    /// he is remembered although nobody has asked.
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

    /// He says where he is, or that he is still there (RFC 4861 §7.2.5). Gives the connections that have waited for that.
    pub(crate) fn advertised(&mut self, address: IpAddr, told: Told, now: Instant) -> Vec<u32> {
        let Some(&place) = self.places.get(&address) else { return Vec::new() };
        let entry = &mut self.entries[place as usize];
        let mac = match (told.mac, entry.mac) {
            // Nothing is known of him, and nothing is told.
            (None, None) => return Vec::new(),
            (Some(mac), Some(known)) if mac != known && !told.overrides => {
                // Perhaps he has moved, and perhaps somebody pretends to be him: he is asked where he is when he is needed.
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

    /// What he has sent proves that he got what was sent to him (RFC 4861 §7.3.1). That the way back to
    /// his SYN works does not make it the one that the kernel would take: that is asked for now.
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

    /// A SYN from this address was handed over by `mac`: as long as nothing is known, the answer goes back
    /// there.
    pub(crate) fn assume(&mut self, id: NeighbourId, mac: Mac, now: Instant) {
        if let Some(entry) = self.entries.get_mut(id.place as usize)
            && (entry.mac.is_none() || entry.elsewhere)
        {
            entry.mac = Some(mac);
            entry.assumed = true;
            entry.fresh_until = now + HANDSHAKE;
        }
    }

    /// Whoever drives the stack says where packets to `address` go. Gives those that have waited for that,
    /// and whose neighbour it is.
    pub(crate) fn tell(
        &mut self,
        address: IpAddr,
        found: Found,
        now: Instant,
    ) -> Option<(NeighbourId, Vec<u32>)> {
        // Nobody has asked, or nobody knows any more that he has.
        let &place = self.places.get(&address)?;
        let entry = &mut self.entries[place as usize];
        (entry.mac, entry.mtu) = match found {
            Found::At { mac, mtu } => (Some(mac), mtu),
            Found::Elsewhere => (entry.mac, None),
            Found::Unreachable => (None, entry.mtu),
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
            // Connections that are open go on waiting. They must not ask again at once and for ever.
            entry.fresh_until = Instant::ZERO;
            self.ask_later(place as usize, now);
        }
        Some((id, waiting))
    }

    /// The longest packet that gets to him, if it was told.
    pub(crate) fn mtu(&self, id: NeighbourId) -> Option<u16> {
        self.entries.get(id.place as usize).and_then(|entry| entry.mtu)
    }

    /// Asks again whom it is time to ask. Gives the connections whose neighbour does not answer.
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
                    // That nobody outside says anything is no news of the neighbour.
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

    /// Whether there is a question to be sent.
    #[inline]
    pub(crate) fn has_question(&self) -> bool {
        !self.outside && !self.questions.is_empty()
    }

    /// A question to be sent, if there is one.
    pub(crate) fn poll_question(&mut self) -> Option<Question> {
        if self.outside { None } else { self.questions.pop() }
    }

    /// Whether there is a question to who drives the stack.
    #[inline]
    pub(crate) fn has_outside_question(&self) -> bool {
        self.outside && !self.questions.is_empty()
    }

    /// An address for which he is asked, if there is one.
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
        // While nothing is known an address is what is needed, and whichever comes is taken.
        assert!(neighbours.advertised(address, told(no_mac, true, true), at(1)).is_empty());
        assert_eq!(neighbours.advertised(address, told(Some(MAC), true, false), at(1)), [5]);
        neighbours.poll_question();
        // An answer without an address says that he is there.
        assert_eq!(neighbours.fresh(id, at(30_500)), None);
        neighbours.advertised(address, told(no_mac, true, false), at(30_000));
        assert_eq!(neighbours.fresh(id, at(59_000)), Some(MAC));
        // Another address makes it doubtful, and no more.
        neighbours.advertised(address, told(Some(other), true, false), at(31_000));
        assert_eq!(neighbours.fresh(id, at(31_000)), None);
        assert_eq!(neighbours.mac(id, at(31_000)), Some(MAC));
        let question = Question { address, mac: Some(MAC) };
        assert_eq!(neighbours.poll_question(), Some(question));
        // One that overrides is taken; not asked for, it is to be confirmed.
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
        // His router is another one by now.
        let other = Mac([2, 0, 0, 0, 0, 8]);
        neighbours.assume(id, other, now);
        assert_eq!(neighbours.mac(id, now), Some(other));
        neighbours.tell(address(), Found::Unreachable, now);
        assert_eq!(neighbours.mac(id, now), None);
        neighbours.tell(address(), Found::Elsewhere, now);
        assert!(!neighbours.is_known(id), "nobody has come from there");
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
