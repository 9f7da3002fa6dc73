use std::time::Duration;
use uncork_lab::place::{Bottleneck, QueueSettings};
use uncork_lab::tsq::{Case, measure};
fn main() {
    for rate in [100_000_000u64, 1_000_000_000] {
        for senders in [1usize, 8] {
            for (limit, log, gso) in [(None,None,None),(Some(131072),None,None),(Some(8192),Some(0),None),(Some(8192),Some(0),Some(6000)),(Some(65536),Some(0),Some(16000))] {
                let case = Case { bottleneck: Bottleneck { rate, segmentation_offload: true }, settings: QueueSettings { limit_output_bytes: limit, tso_rtt_log: log, gso_max_bytes: gso }, senders };
                let m = measure(case, Duration::from_secs(3)).unwrap();
                println!("{} Mbit {senders} {limit:?} {log:?} {gso:?}: thr {:.1} shares {:.2?} ping p50 {:.2} p99 {:.2} req p50 {:.2} p99 {:.2} backlog {} {:.2}ms p99 {:.2}", rate/1_000_000, m.throughput/1e6, m.shares, m.ping.p50_ms, m.ping.p99_ms, m.request.p50_ms, m.request.p99_ms, m.backlog.p50_bytes, m.backlog.p50_ms, m.backlog.p99_ms);
            }
        }
    }
}
