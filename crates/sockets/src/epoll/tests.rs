use std::sync::Arc;

use super::*;
use crate::asked::Asked;
use crate::table::{Kind, Table};

const SET: RawFd = 5;
const FD: RawFd = 7;
const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const NOTHING: [u32; 0] = [];

fn elsewhere() -> Kind {
    let id = uncork_stack::SocketId::from_u64(0);
    Kind::Elsewhere { place: crate::table::Place { link: 0, id }, owner: None }
}

/// A socket in a table, and a set.
struct Rig {
    table: Table,
    sets: Sets,
    slot: Slot,
}

impl Rig {
    fn new() -> Self {
        let mut table = Table::default();
        let slot = table.add(Socket::new(elsewhere(), false, Arc::new(Asked::default())));
        table.bind(FD, slot);
        Self { table, sets: Sets::default(), slot }
    }

    fn add(&mut self, events: u32) -> Result<(), Errno> {
        let socket = self.table.get(self.slot).unwrap();
        self.sets.add(SET, (self.slot, socket), FD, Happened { events, data: 42 })
    }

    fn change(&mut self, events: u32) -> Result<(), Errno> {
        let socket = self.table.get(self.slot).unwrap();
        self.sets.change(SET, (self.slot, socket), FD, Happened { events, data: 43 })
    }

    /// Notes that something happens; returns the sets that are woken for it.
    fn happens(&mut self) -> Vec<RawFd> {
        let mut woken = Vec::new();
        let socket = self.table.get(self.slot).unwrap();
        self.sets.note(self.slot, socket, |set| woken.push(set));
        woken
    }

    /// Gives the member a herald.
    fn appoint(&mut self) -> Herald {
        let herald = Herald::new(7, crate::parts::Part::FIRST);
        let socket = self.table.get(self.slot).unwrap();
        self.sets.appoint(herald, (self.slot, socket), (SET, FD));
        herald
    }

    fn hear(&mut self, herald: Herald, events: u32) -> Option<RawFd> {
        let slot = *self.sets.heralds.get(&herald)?;
        let socket = self.table.get(slot).unwrap();
        self.sets.hear(herald, (slot, socket), events)
    }

    /// Looks once at all candidates, while `ready` holds.
    fn look(&mut self, ready: u32) -> Vec<u32> {
        let mut told = Vec::new();
        for _ in 0..self.sets.candidates(SET) {
            let candidate = self.sets.next(SET).unwrap();
            let Some(socket) = self.table.get(candidate.slot) else { continue };
            told.extend(self.sets.tell(SET, candidate, socket, ready));
        }
        told.into_iter().map(|told| told.events).collect()
    }
}

#[test]
fn a_level_is_told_for_as_long_as_it_holds() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    assert_eq!(rig.look(IN | OUT), [IN]);
    assert_eq!(rig.look(IN | OUT), [IN], "nobody has read");
    assert_eq!(rig.look(OUT), NOTHING);
    assert_eq!(rig.look(IN), NOTHING, "nothing has happened that would make one look");
    assert_eq!(rig.happens(), [SET]);
    assert_eq!(rig.look(IN), [IN]);
}

#[test]
fn an_edge_is_told_once() {
    let mut rig = Rig::new();
    rig.add(IN | OUT | EDGE).unwrap();
    assert_eq!(rig.look(OUT), [OUT], "what holds when it is entered is told");
    assert_eq!(rig.look(OUT), NOTHING);
    rig.happens();
    assert_eq!(rig.look(IN | OUT), [IN | OUT], "with all that holds");
    rig.happens();
    rig.happens();
    assert_eq!(rig.look(IN), [IN], "two things that have happened are one event");
    assert_eq!(rig.look(IN), NOTHING);
}

#[test]
fn one_shot_waits_to_be_armed_again_even_for_errors() {
    let mut rig = Rig::new();
    rig.add(IN | ONE_SHOT).unwrap();
    assert_eq!(rig.look(IN), [IN]);
    assert!(rig.happens().is_empty());
    assert_eq!(rig.look(IN | HUP), NOTHING);
    rig.change(IN | ONE_SHOT).unwrap();
    assert_eq!(rig.look(IN | HUP), [IN | HUP]);
}

/// A worker freed what its listener's event pointed to, and got the event again.
#[test]
fn what_comes_either_way_is_one_event_of_one_member() {
    let mut rig = Rig::new();
    rig.add(IN | ONE_SHOT).unwrap();
    let herald = rig.appoint();
    assert_eq!(rig.look(0), NOTHING);
    rig.happens();
    assert_eq!(rig.hear(herald, IN), None, "it is to be looked at already");
    assert_eq!(rig.look(IN), [IN]);
    assert_eq!(rig.hear(herald, IN), None, "it was told");
    assert_eq!(rig.look(IN), NOTHING);
    rig.change(IN | ONE_SHOT).unwrap();
    assert_eq!(rig.look(0), NOTHING);
    assert_eq!(rig.hear(herald, IN | HUP), Some(SET));
    assert_eq!(rig.look(0), [IN | HUP]);
    assert!(rig.happens().is_empty(), "nor is it told what comes by the stack then");
    assert_eq!(rig.look(IN), NOTHING);
}

#[test]
fn by_edges_what_a_herald_says_in_the_same_call_is_told_already() {
    let mut rig = Rig::new();
    rig.add(IN | EDGE).unwrap();
    let herald = rig.appoint();
    assert_eq!(rig.look(IN), [IN]);
    assert!(rig.sets.has_told_listeners());
    assert_eq!(rig.hear(herald, IN), None);
    rig.sets.forget_told();
    assert_eq!(rig.look(IN), NOTHING);
    assert_eq!(rig.hear(herald, IN), Some(SET), "another one has come");
    assert_eq!(rig.look(0), [IN]);
    rig.sets.forget_told();
    rig.change(IN).unwrap();
    assert_eq!(rig.hear(herald, IN), None);
    assert_eq!(rig.look(0), [IN]);
    assert!(!rig.sets.has_told_listeners(), "the kernel's level is told when it is asked again");
    assert_eq!(rig.look(0), NOTHING);
}

#[test]
fn a_herald_goes_with_its_member() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    let herald = rig.appoint();
    let socket = rig.table.get(rig.slot).unwrap();
    rig.sets.remove(SET, socket, FD).unwrap();
    assert_eq!(rig.hear(herald, IN), None);
    rig.add(IN).unwrap();
    let herald = rig.appoint();
    let (_, socket) = rig.table.unbind(FD).unwrap();
    rig.sets.forget_socket(&socket);
    assert_eq!(rig.hear(herald, IN), None);
    assert!(rig.sets.heralds.is_empty());
}

#[test]
fn errors_are_told_without_being_asked_for() {
    let mut rig = Rig::new();
    rig.add(EDGE | IN).unwrap();
    assert_eq!(rig.look(HUP), [HUP]);
    rig.change(0).unwrap();
    assert_eq!(rig.look(IN | HUP), [HUP], "not even if nothing was asked for");
}

#[test]
fn a_member_is_entered_once_and_known_by_its_descriptor() {
    let mut rig = Rig::new();
    assert_eq!(rig.change(IN), Err(Errno::ENOENT));
    rig.add(IN).unwrap();
    assert_eq!(rig.add(IN), Err(Errno::EEXIST));
    let slot = rig.slot;
    rig.table.bind(FD + 1, slot);
    let socket = rig.table.get(slot).unwrap();
    let what = Happened { events: IN, data: 1 };
    assert_eq!(rig.sets.add(SET, (slot, socket), FD + 1, what), Ok(()), "a duplicate is another");
    assert_eq!(rig.look(IN), [IN, IN]);
}

#[test]
fn one_that_was_closed_or_taken_out_is_not_told() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    rig.happens();
    let socket = rig.table.get(rig.slot).unwrap();
    rig.sets.remove(SET, socket, FD).unwrap();
    assert_eq!(rig.look(IN), NOTHING);
    rig.add(IN).unwrap();
    let (_, socket) = rig.table.unbind(FD).unwrap();
    rig.sets.forget_socket(&socket);
    // Another socket takes its place in the table.
    let slot = rig.table.add(Socket::new(elsewhere(), false, Arc::new(Asked::default())));
    rig.table.bind(FD, slot);
    assert_eq!(slot.at(), rig.slot.at());
    assert!(rig.table.get(rig.slot).is_none(), "its name is none of the other's");
    rig.slot = slot;
    assert_eq!(rig.look(IN), NOTHING);
}

/// A server that took as many events as it got read a connection twice, and heard EAGAIN.
#[test]
fn one_that_comes_in_the_place_of_a_closed_one_is_told_once() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    rig.happens();
    let (_, socket) = rig.table.unbind(FD).unwrap();
    rig.sets.forget_socket(&socket);
    let slot = rig.table.add(Socket::new(elsewhere(), false, Asked::default().into()));
    rig.table.bind(FD, slot);
    assert_eq!(slot.at(), rig.slot.at());
    assert!(rig.table.get(rig.slot).is_none(), "its name is none of the other's");
    rig.slot = slot;
    rig.add(IN).unwrap();
    assert_eq!(rig.look(IN), [IN]);
}

/// Three million of them took 70 MiB, and then half a second of the first wait.
#[test]
fn who_enters_and_removes_again_and_again_without_waiting_leaves_nothing_behind() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    let slot = rig.slot;
    let what = Happened { events: IN, data: 1 };
    for at in 0..10_000 {
        let other = FD + 1 + at % 3;
        let socket = rig.table.get(slot).unwrap();
        rig.sets.add(SET, (slot, socket), other, what).unwrap();
        let socket = rig.table.get(slot).unwrap();
        rig.sets.remove(SET, socket, other).unwrap();
        let queue = &rig.sets.all[&SET];
        assert!(queue.ready.len() < 100 && queue.dead.len() < 100);
    }
    assert_eq!(rig.sets.candidates(SET), 1);
    let socket = rig.table.get(slot).unwrap();
    rig.sets.add(SET, (slot, socket), FD + 1, what).unwrap();
    assert_eq!(rig.look(IN), [IN, IN], "what is there is told, and once in a call");
    assert_eq!(rig.look(IN), [IN, IN]);
    // One that is closed leaves its ticket as well.
    for _ in 0..10_000 {
        let slot = rig.table.add(Socket::new(elsewhere(), false, Asked::default().into()));
        rig.table.bind(FD + 9, slot);
        let socket = rig.table.get(slot).unwrap();
        rig.sets.add(SET, (slot, socket), FD + 9, what).unwrap();
        let (_, socket) = rig.table.unbind(FD + 9).unwrap();
        rig.sets.forget_socket(&socket);
    }
    assert!(rig.sets.all[&SET].ready.len() < 100);
    assert_eq!(rig.look(IN), [IN, IN]);
}

#[test]
fn one_socket_in_two_sets_wakes_both() {
    let mut rig = Rig::new();
    rig.add(IN).unwrap();
    let socket = rig.table.get(rig.slot).unwrap();
    let what = Happened { events: IN, data: 1 };
    rig.sets.add(SET + 10, (rig.slot, socket), FD, what).unwrap();
    assert_eq!(rig.look(0), NOTHING);
    let candidate = rig.sets.next(SET + 10).unwrap();
    let socket = rig.table.get(rig.slot).unwrap();
    rig.sets.tell(SET + 10, candidate, socket, 0);
    assert_eq!(rig.happens(), [SET, SET + 10]);
}
