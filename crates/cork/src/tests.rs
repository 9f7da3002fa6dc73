//! The policy seen from outside: bursts in, decisions out.

use proptest::prelude::*;

use super::*;

const NO_LIMITS: Limits = Limits { writes: 0, bytes: u32::MAX, predict: true };

/// Plays a burst of `writes` writes and returns the numbers of those that were sent unheld.
fn burst(cork: &mut Cork, writes: u16) -> Vec<u16> {
    let sent = (1..=writes).filter(|_| cork.handle_write(2, NO_LIMITS) != Verdict::Hold).collect();
    cork.handle_end(false);
    sent
}

#[test]
fn a_new_socket_holds_every_write() {
    let mut cork = Cork::default();
    assert_eq!(burst(&mut cork, 15), []);
}

#[test]
fn a_steady_rhythm_sends_the_last_write_without_holding_it() {
    for length in [1, 2, 15, 100] {
        let mut cork = Cork::default();
        assert_eq!(burst(&mut cork, length), []);
        assert_eq!(burst(&mut cork, length), []);
        assert_eq!(burst(&mut cork, length), [length]);
        assert_eq!(cork.rhythm().predicted(), Some(length));
    }
}

#[test]
fn a_wrong_prediction_is_unlearnt_at_once_and_harder_to_get_again() {
    let mut cork = Cork::default();
    for _ in 0..3 {
        burst(&mut cork, 2);
    }
    assert_eq!(burst(&mut cork, 5), [2], "the prediction that turned out wrong");
    for _ in 0..4 {
        assert_eq!(burst(&mut cork, 2), [], "four bursts of evidence are asked for now");
    }
    assert_eq!(burst(&mut cork, 2), [2]);
}

#[test]
fn connections_of_one_request_teach_their_siblings_together() {
    let mut family = Rhythm::default();
    for _ in 0..2 {
        let mut cork = Cork::with_rhythm(family);
        assert_eq!(burst(&mut cork, 2), []);
        family.learn_from(cork.rhythm());
    }
    let mut cork = Cork::with_rhythm(family);
    assert_eq!(burst(&mut cork, 2), [2]);
}

#[test]
fn a_burst_that_the_timer_broke_is_no_evidence() {
    let mut cork = Cork::default();
    for _ in 0..10 {
        cork.handle_write(2, NO_LIMITS);
        cork.handle_end(true);
    }
    assert_eq!(cork.rhythm().predicted(), None);
}

#[test]
fn without_prediction_every_write_is_held() {
    let mut cork = Cork::default();
    for _ in 0..10 {
        assert_eq!(cork.handle_write(2, Limits { predict: false, ..NO_LIMITS }), Verdict::Hold);
        cork.handle_end(false);
    }
}

#[test]
fn the_limits_send_what_is_held() {
    let mut cork = Cork::default();
    let limits = Limits { writes: 3, bytes: u32::MAX, predict: true };
    let verdicts: Vec<_> = (0..6).map(|_| cork.handle_write(1, limits)).collect();
    let third = Verdict::Send(Reason::Writes);
    assert_eq!(verdicts[..3], [Verdict::Hold, Verdict::Hold, third]);
    assert_eq!(verdicts[3..], verdicts[..3]);

    let mut cork = Cork::default();
    let limits = Limits { writes: 0, bytes: 100, predict: true };
    assert_eq!(cork.handle_write(60, limits), Verdict::Hold);
    assert_eq!(cork.handle_write(60, limits), Verdict::Send(Reason::Bytes));
    assert_eq!(cork.bytes(), 0);
    assert_eq!(cork.handle_write(60, limits), Verdict::Hold);
}

#[test]
fn an_endless_burst_saturates_and_predicts_nothing() {
    let mut cork = Cork::default();
    for _ in 0..2 {
        for _ in 0..70_000 {
            assert_eq!(cork.handle_write(1_000_000, NO_LIMITS), Verdict::Hold);
        }
        assert_eq!(cork.bytes(), Cork::MAX_BYTES);
        cork.handle_end(false);
    }
    assert_eq!(cork.rhythm().predicted(), None);
}

#[derive(Clone, Debug)]
enum Event {
    Write(usize),
    Push,
    End(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0usize..100_000).prop_map(Event::Write),
        1 => Just(Event::Push),
        3 => any::<bool>().prop_map(Event::End),
    ];
    proptest::collection::vec(event, 0..300)
}

proptest! {
    #[test]
    fn the_packed_word_loses_nothing(events in events(), writes in 0u16..8, bytes in 1u32..1 << 20) {
        let limits = Limits { writes, bytes, predict: true };
        let mut cork = Cork::default();
        let mut packed = Cork::default().to_bits();
        for event in events {
            let mut other = Cork::from_bits(packed);
            match event {
                Event::Write(n) => {
                    prop_assert_eq!(cork.handle_write(n, limits), other.handle_write(n, limits));
                }
                Event::Push => {
                    cork.handle_push();
                    other.handle_push();
                }
                Event::End(timed_out) => {
                    cork.handle_end(timed_out);
                    other.handle_end(timed_out);
                }
            }
            prop_assert_eq!(cork, other);
            packed = other.to_bits();
        }
    }

    #[test]
    fn the_short_cut_decides_as_the_policy_does(
        events in events(), bytes in 1u32..1 << 20,
    ) {
        let limits = Limits { writes: 0, bytes, predict: true };
        let mut cork = Cork::default();
        for event in events {
            match event {
                Event::Write(n) => {
                    let short = Cork::hold_another(cork.to_bits(), n, bytes);
                    let verdict = cork.handle_write(n, limits);
                    if let Some(bits) = short {
                        prop_assert_eq!(verdict, Verdict::Hold);
                        prop_assert_eq!(Cork::from_bits(bits), cork);
                    }
                }
                Event::Push => cork.handle_push(),
                Event::End(timed_out) => cork.handle_end(timed_out),
            }
        }
    }

    #[test]
    fn the_short_cut_of_one_write_a_packet_decides_as_the_policy_does(
        bursts in proptest::collection::vec((1u16..3, 1usize..30), 1..60),
    ) {
        let limits = Limits { writes: 0, bytes: 1 << 16, predict: true };
        let mut cork = Cork::default();
        for (writes, repeated) in bursts {
            for _ in 0..repeated {
                for _ in 0..writes {
                    let short = Cork::send_only(cork.to_bits());
                    let verdict = cork.handle_write(100, limits);
                    if let Some(bits) = short {
                        prop_assert_eq!(verdict, Verdict::Send(Reason::Predicted));
                        prop_assert_eq!(Cork::from_bits(bits), cork);
                    }
                }
                let short = Cork::end_only(cork.to_bits());
                cork.handle_end(false);
                if let Some(bits) = short {
                    prop_assert_eq!(Cork::from_bits(bits), cork);
                }
            }
        }
        // The short cut must be reachable.
        let mut cork = Cork::default();
        for _ in 0..20 {
            cork.handle_write(100, limits);
            cork.handle_end(false);
        }
        let sent = Cork::send_only(cork.to_bits());
        prop_assert!(sent.and_then(Cork::end_only).is_some());
    }

    #[test]
    fn held_bytes_never_reach_the_limit_and_an_ended_burst_holds_none(
        events in events(), bytes in 1u32..1 << 20,
    ) {
        let mut cork = Cork::default();
        for event in events {
            match event {
                Event::Write(n) => {
                    cork.handle_write(n, Limits { writes: 0, bytes, predict: true });
                    prop_assert!(cork.is_open());
                }
                Event::Push => cork.handle_push(),
                Event::End(timed_out) => {
                    cork.handle_end(timed_out);
                    prop_assert!(!cork.is_open());
                    prop_assert_eq!(cork.bytes(), 0);
                }
            }
            prop_assert!(cork.bytes() < bytes);
        }
    }
}
