//! Random segments: nothing may panic, and what is reported must add up.

use std::time::Duration;

use proptest::prelude::*;
use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Segment, SeqNumber};

use crate::{Doctor, Settings};

/// Generates a segment near where the conversation is, and how long it comes after the one before.
fn step() -> impl Strategy<Value = (u64, bool, u8, i32, i32, u32, u8)> {
    let flags = prop_oneof![
        8 => Just(Flags::ACK.0),
        8 => Just(Flags::ACK.0 | Flags::PSH.0),
        1 => Just(Flags::SYN.0),
        1 => Just(Flags::SYN.0 | Flags::ACK.0),
        1 => Just(Flags::FIN.0 | Flags::ACK.0),
        1 => any::<u8>(),
    ];
    let near = || prop_oneof![6 => Just(0), 2 => -3000i32..3000, 1 => any::<i32>()];
    let bytes = prop_oneof![3 => Just(0u32), 3 => 1u32..200, 3 => Just(1448), 1 => 0u32..1 << 30];
    let pause = prop_oneof![0u64..1000, 20_000u64..300_000, any::<u64>()];
    (pause, any::<bool>(), flags, near(), near(), bytes, any::<u8>())
}

proptest! {
    #[test]
    fn a_conversation_without_sense_has_a_report_that_adds_up(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let settings = Settings { every_connection: true, ..Settings::default() };
        let mut doctor = Doctor::new(settings);
        let ends = [1, 2].map(|host| Endpoint { address: [10, 0, 0, host].into(), port: 80 });
        let mut next = [SeqNumber(u32::MAX - 5000), SeqNumber(0)];
        let mut micros = 1_700_000_000_000_000_u64;
        let count = steps.len() as u64;
        for (pause, from, flags, to_seq, to_ack, payload_bytes, window) in steps {
            let from = usize::from(from);
            // Now and then the clock is set, but not beyond the year 9999.
            micros = micros.wrapping_add(pause) % 253_402_300_799_000_000;
            let flags = Flags(flags);
            let ack = next[1 - from] + to_ack.cast_unsigned();
            let segment = Segment {
                source: ends[from],
                destination: ends[1 - from],
                seq: next[from] + to_seq.cast_unsigned(),
                ack: flags.has(Flags::ACK).then_some(ack),
                flags,
                window: u16::from(window),
                payload_bytes,
                mss: flags.has(Flags::SYN).then_some(1460),
                window_scale: flags.has(Flags::SYN).then_some(7),
                timestamps: Some((u32::from(window), 0)),
                sack: None,
                sack_permitted: false,
                congestion_experienced: false,
                option_lies: false,
            };
            next[from] = segment.seq_end();
            doctor.segment(Duration::from_micros(micros), &segment);
        }
        let report = doctor.finish();
        prop_assert_eq!(report.summary.segments, count);
        prop_assert_eq!(report.summary.connections, report.connections.len() as u64);
        let stalls: u64 = report.connections.iter().map(|connection| connection.stalls).sum();
        prop_assert_eq!(report.summary.stalls, stalls);
        prop_assert!(serde_json::to_string(&report).is_ok());
    }
}
