//! Any conversation: each twelve octets are a segment between a few ends, near where the last ones
//! were, so that the input reaches what only plausible connections do.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use uncork_doctor::{Doctor, Settings};
use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Malformed, Segment, SeqNumber, Unread};

fuzz_target!(|input: &[u8]| {
    let settings = Settings { every_connection: true, ..Settings::default() };
    let mut doctor = Doctor::new(settings);
    let mut now = Duration::from_secs(1_700_000_000);
    let mut next = [SeqNumber(0xffff_f000), SeqNumber(1)];
    for octets in input.chunks_exact(12) {
        let [what, pace, ticks, flags, to_seq, far_seq, to_ack, far_ack, low, high, window, option] =
            *octets
        else {
            return;
        };
        match pace & 0x1f {
            // A capture's clock may be set back, or to nonsense.
            30 => now = now.saturating_sub(Duration::from_millis(ticks.into())),
            31 => now = Duration::from_secs(253_402_300_799),
            exponent => now += Duration::from_nanos(u64::from(ticks) << exponent),
        }
        let from = usize::from(what & 1);
        let payload_bytes = match pace >> 5 {
            7 => u32::from(u16::from_le_bytes([low, high])) << 14,
            _ => u32::from(u16::from_le_bytes([low, high])),
        };
        let far =
            |near: u8, far: u8| (i32::from(near.cast_signed()) << (far & 0x1f)).cast_unsigned();
        let flags = Flags(flags);
        let mut ends = [end(what >> 1 & 3, 40_000), end(what >> 3 & 1, 8080)];
        ends.rotate_left(from);
        let seq = next[from] + far(to_seq, far_seq);
        let segment = Segment {
            source: ends[0],
            destination: ends[1],
            seq,
            ack: flags.has(Flags::ACK).then(|| next[1 - from] + far(to_ack, far_ack)),
            flags,
            window: u16::from(window) << 8,
            payload_bytes: if what & 0x80 == 0 { payload_bytes } else { 0 },
            mss: (option & 1 != 0).then_some(u16::from(option) << 3),
            window_scale: (option & 2 != 0).then_some(option >> 4 & 14),
            timestamps: (option & 4 != 0).then_some((u32::from(window), 0)),
            sack: (option & 8 != 0).then_some((seq, seq + u32::from(window))),
            sack_permitted: option & 16 != 0,
            congestion_experienced: option & 32 != 0,
            option_lies: option & 64 != 0,
        };
        next[from] = segment.seq_end();
        doctor.segment(now, &segment);
    }
    doctor.unread(Unread::Malformed(Malformed::TcpOption));
    let report = doctor.finish();
    let stalls: u64 = report.connections.iter().map(|connection| connection.stalls).sum();
    assert_eq!(stalls, report.summary.stalls);
    if let Err(error) = serde_json::to_string(&report) {
        panic!("it has no JSON: {error}");
    }
});

/// Returns one of a few ends, of both families.
fn end(which: u8, port: u16) -> Endpoint {
    let address = match which {
        2 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        which => IpAddr::V4(Ipv4Addr::new(10, 0, 0, which)),
    };
    Endpoint { address, port: port + u16::from(which) }
}
