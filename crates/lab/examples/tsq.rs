//! x
use std::time::Duration;
use uncork_lab::place::{Bottleneck, QueueSettings};
use uncork_lab::tsq::{Case, measure};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (rate, senders) = (a[0] * 1_000_000, a[1] as usize);
    for c in a[2..].chunks(3) {
        let case = Case { bottleneck: Bottleneck { rate, segmentation_offload: true }, settings: QueueSettings { limit_output_bytes: Some(c[0] as u32), tso_rtt_log: Some(c[1] as u32), gso_max_bytes: Some(c[2] as u32) }, senders };
        let m = measure(case, Duration::from_secs(2)).unwrap();
        println!("{} Mbit {senders} {c:?}: thr {:.1} shares {:.2?} ping p50 {:.2} p99 {:.2} req p50 {:.2} p99 {:.2} backlog {} {:.2}ms p99 {:.2}", rate/1_000_000, m.throughput/1e6, m.shares, m.ping.p50_ms, m.ping.p99_ms, m.request.p50_ms, m.request.p99_ms, m.backlog.p50_bytes, m.backlog.p50_ms, m.backlog.p99_ms);
    }
}
