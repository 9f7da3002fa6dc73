//! The short paths that segments of a conversation take (`Config::short_ways`) cannot be told from
//! the general one: the same seed gives the same frames, the same events and the same figures.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Dice, Pair, Setup};
use uncork_stack::{Config, Counters, Ecn, Event, KeepAlive, SocketId, SocketOption};

use crate::common::{PORT, bytes, check, describe};

/// What can be seen of a conversation, and how many segments were predicted.
struct Seen {
    frames: Vec<String>,
    events: [Vec<Event>; 2],
    infos: Vec<String>,
    counters: [Counters; 2],
}

fn setup(seed: u64, dice: &mut Dice, short_ways: bool) -> Setup {
    let chance = |dice: &mut Dice, most: f64| if dice.hits(0.3) { most } else { 0.0 };
    let way = |dice: &mut Dice| Conditions {
        delay: Duration::from_micros(dice.below(30_000)),
        rate: dice.hits(0.5).then_some(20_000_000),
        loss: chance(dice, 0.05),
        reorder: chance(dice, 0.1),
        jitter: Duration::from_millis(3),
        duplicate: chance(dice, 0.05),
        corrupt: chance(dice, 0.03),
        mark_bytes: dice.hits(0.3).then_some(5_000),
        ..Conditions::default()
    };
    let ways = [way(dice), way(dice)];
    let config = Config {
        short_ways,
        ecn: if dice.hits(0.3) { Ecn::Asked } else { Ecn::Granted },
        timestamps: dice.hits(0.9),
        sack: dice.hits(0.9),
        pacing: dice.hits(0.8),
        autocork: dice.hits(0.8),
        restart_after_idle: dice.hits(0.8),
        ..Config::default()
    };
    let train = Capabilities {
        max_train_bytes: 65_000,
        completes_checksums: true,
        ..Capabilities::plain(Medium::Ip, 1500)
    };
    let mut device = || if dice.hits(0.3) { train } else { Capabilities::plain(Medium::Ip, 1500) };
    let devices = [device(), device()];
    let batch = 1 + dice.below(4) as usize;
    Setup { configs: [config.clone(), config], devices, ways, batch, seed, ipv6: false }
}

/// Has both sides write now and then, mostly little, and read what has come, mostly at once.
fn converse(seed: u64, short_ways: bool) -> Seen {
    let mut dice = Dice::new(seed);
    let mut pair = Pair::new(&setup(seed, &mut dice, short_ways));
    let frames = Rc::new(RefCell::new(Vec::new()));
    let record = frames.clone();
    pair.record(move |now, from, frame| {
        record.borrow_mut().push(format!("{} {frame:02x?}", describe(now, from, frame)));
    });
    let listener = pair.listen(PORT);
    let (client, server) = pair.connect(listener, PORT);
    let ends = [client, server];
    let mut infos = Vec::new();
    let (mut sent, mut read) = ([0; 2], [0; 2]);
    for side in [0, 1] {
        let option = SocketOption::NoDelay(dice.hits(0.5));
        pair.hosts[side].stack.set_option(pair.now, ends[side], option);
    }
    for _ in 0..150 {
        let side = usize::from(dice.hits(0.5));
        let meddles = seed.is_multiple_of(2) && dice.hits(0.1);
        if meddles {
            meddle(&mut pair, (side, ends[side]), &mut dice);
        }
        say(&mut pair, (side, ends[side]), &mut sent[side], &mut dice);
        if meddles && dice.hits(0.5) {
            pair.hosts[side].stack.release(pair.now, ends[side]);
        }
        let pause = if dice.hits(0.1) { 600_000 } else { 40_000 };
        let until = pair.now + Duration::from_micros(dice.below(pause));
        pair.run_until(until);
        for side in [0, 1] {
            if dice.hits(0.9) {
                let most = if dice.hits(0.9) { 65_536 } else { 100 };
                hear(&mut pair, (side, ends[side]), &mut read[side], most);
            }
            let now = pair.now;
            infos.push(format!("{:?}", pair.hosts[side].stack.info(now, ends[side])));
        }
    }
    for side in [0, 1] {
        pair.hosts[side].stack.close(pair.now, ends[side]);
    }
    pair.run_for(Duration::from_secs(100));
    let counters = [0, 1].map(|side| *pair.hosts[side].stack.counters());
    let events = [0, 1].map(|side| std::mem::take(&mut pair.hosts[side].events));
    Seen { frames: frames.take(), events, infos, counters }
}

fn say(pair: &mut Pair, (side, end): (usize, SocketId), sent: &mut usize, dice: &mut Dice) {
    let most = if dice.hits(0.9) { 400 } else { 20_000 };
    let count = 1 + dice.below(most) as usize;
    let more = dice.hits(0.05);
    let said = pair.hosts[side].stack.send(pair.now, end, bytes(*sent, count), more);
    *sent += said.unwrap_or(0);
}

/// Does something unusual, after which the conversation goes on.
fn meddle(pair: &mut Pair, (side, end): (usize, SocketId), dice: &mut Dice) {
    let now = pair.now;
    let stack = &mut pair.hosts[side].stack;
    let option = match dice.below(10) {
        0 => return stack.hold(now, end),
        1 => return stack.end_record(end),
        2 => {
            let _ = stack.peek(now, end, &mut [0; 10]);
            return;
        }
        3 => SocketOption::Cork(dice.hits(0.5)),
        4 => SocketOption::QuickAck(dice.hits(0.5)),
        5 => SocketOption::NotSentLowWater(dice.hits(0.5).then_some(300)),
        6 => SocketOption::SendBuffer(5_000),
        7 => SocketOption::MaxSegment(600),
        8 => SocketOption::KeepAlive(dice.hits(0.5).then_some(KeepAlive {
            idle: Duration::from_secs(1),
            interval: Duration::from_secs(1),
            probes: 5,
        })),
        _ => SocketOption::TrafficClass(0x20),
    };
    stack.set_option(now, end, option);
}

fn hear(pair: &mut Pair, (side, end): (usize, SocketId), read: &mut usize, most: usize) {
    let mut buffer = vec![0; most];
    if let Ok(count) = pair.hosts[side].stack.recv(pair.now, end, &mut buffer) {
        check(*read, &buffer[..count]);
        *read += count;
    }
}

#[test]
fn nobody_can_tell_which_way_a_segment_took() {
    let mut predicted = 0;
    for seed in 1..=160 {
        let mut short = converse(seed, true);
        let general = converse(seed, false);
        for counters in &mut short.counters {
            predicted += std::mem::take(&mut counters.predicted);
        }
        for (at, (one, other)) in short.frames.iter().zip(&general.frames).enumerate() {
            assert_eq!(one, other, "frame {at} of seed {seed}");
        }
        for (at, (one, other)) in short.infos.iter().zip(&general.infos).enumerate() {
            assert_eq!(one, other, "look {at} of seed {seed}");
        }
        assert_eq!(short.counters, general.counters, "counters of seed {seed}");
        assert_eq!(short.events, general.events, "news of seed {seed}");
        let counts = |seen: &Seen| (seen.frames.len(), seen.infos.len());
        assert_eq!(counts(&short), counts(&general), "seed {seed}");
    }
    // Otherwise nothing was tested.
    assert!(predicted > 2_000, "{predicted}");
}
