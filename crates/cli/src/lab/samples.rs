//! Made-up results as large as real ones, for tests of their presentation.

use serde_json::json;
use uncork_lab::kernels::{Accelerator, Failed, Identity, RUNS as KERNEL_RUNS, Shown};
use uncork_lab::nodelay::{self, Figures, Setting as Small};
use uncork_lab::plan::{self, Outcome, Plan};
use uncork_lab::probe::Times;
use uncork_lab::quickack::{RUNS, Told};
use uncork_lab::sample::{Queued, Waiting};
use uncork_lab::socket::Congestion;
use uncork_lab::tsq::{Case, Measured, Setting};

use super::kernels::Row;

/// Returns all that the full plan measures.
pub(super) fn tsq() -> Outcome {
    let plan = Plan::new(false, Congestion::Cubic);
    let all = |cases: &[Case]| cases.iter().map(|case| row(*case)).collect();
    Outcome { compared: all(&plan.compared), sweep: all(&plan.sweep) }
}

fn row(case: Case) -> plan::Row {
    let fast = case.bottleneck.rate > 100_000_000;
    let ping_ms = match (case.setting, case.senders) {
        (Setting::Kernel | Setting::Limit(4_194_304), 1) => 11.3,
        (Setting::Kernel | Setting::Limit(_), 8) => 159.0,
        (Setting::Paced, _) => 0.03,
        (Setting::LimitAndTrains(bytes), _) => f64::from(bytes) / 12_500.0,
        _ => 0.51,
    };
    let times = |p50_ms: f64| Times { count: 200, p50_ms, p99_ms: p50_ms * 1.19, max_ms: 160.0 };
    let bytes = |p50_bytes| Waiting { p50_bytes, p99_bytes: p50_bytes * 1212 / 1000 };
    let large = if case.senders == 8 { 5 } else { 1 };
    let queued = Queued {
        count: 400,
        backlog: bytes(121_215 * large),
        backlog_p50_ms: 9.7,
        backlog_p99_ms: 11.76,
        sockets: bytes(435_900 * large),
        unsent: bytes(343_295 * large),
    };
    let measured = Measured {
        throughput: if fast { 952.6e6 } else { 95.5e6 },
        least_share: 0.15,
        largest_share: 4.73,
        ping: times(ping_ms),
        request: times(ping_ms * 1.005),
        queued,
    };
    let tuned = if case.setting == Setting::Tuned {
        vec!["net.ipv4.tcp_limit_output_bytes: 4194304 to 6264".to_owned()]
    } else {
        Vec::new()
    };
    let settings = case.setting.settings(case.bottleneck.rate, case.senders);
    plan::Row { case, settings, tuned, measured }
}

/// Returns all rows of the small writes.
pub(super) fn nodelay() -> Vec<nodelay::Measured> {
    let rows = [15, 100].into_iter().flat_map(Small::all);
    rows.map(|setting| {
        let us = if setting.stalls() { 43_355.2 } else { 36.62 };
        let figures = |us: f64, buffers: f64| Figures {
            us_per_packet: us,
            bytes_per_ms: buffers * 2e3 / us,
            writes_per_packet: buffers,
            segments_per_packet: 14.22,
            reads_per_packet: 11.87,
        };
        let buffers = f64::from(setting.pattern.buffers);
        nodelay::Measured {
            setting,
            one_core: figures(us, buffers),
            two_cores: Some(figures(us * 6.0, buffers)),
            two_cores_spinning: Some(figures(us * 2.0, buffers)),
            published: setting.published(),
        }
    })
    .collect()
}

/// Returns three kernels: this machine's, one with a long name in an emulated machine, and one that did not boot.
pub(super) fn kernels() -> Vec<Row> {
    let shown = |release: &str, accelerator| Shown {
        identity: Identity {
            release: release.to_owned(),
            version: "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)".to_owned(),
            signature: String::new(),
        },
        accelerator,
        no_kvm: None,
        boot_seconds: Some(9.5),
        runs: quickack().into_iter().take(KERNEL_RUNS.len()).collect(),
    };
    let failed = Failed {
        sentence: "it has said nothing for 300 seconds, the last line being about its root device"
            .to_owned(),
        console: vec!["Kernel panic".to_owned()],
    };
    let emulated = shown("6.1.0-56-cloud-amd64", Some(Accelerator::Emulation));
    let package = "linux-image-6.1.0-56-cloud-amd64.deb";
    vec![
        Row::of(None, Ok(shown("6.18.44", None))),
        Row::of(Some(package.to_owned()), Ok(emulated)),
        Row::of(Some("/boot/vmlinuz-6.1.55".to_owned()), Err(failed)),
    ]
}

/// Returns all runs, one of them with a thousand segments.
pub(super) fn quickack() -> Vec<Told> {
    RUNS.iter()
        .map(|run| {
            let replies = if run.client.ends_with("-s 10000") { 333 } else { 35 };
            let segments = replies * run.reply_segments.unwrap_or(1);
            let delay = |number: usize| if number % 17 == 16 { 42.3 } else { 0.024 };
            Told {
                run: *run,
                ack_delays_ms: (0..segments).map(|number| Some(delay(number))).collect(),
                verdict: json!({ "late": segments / 17 }),
                sentence: "ACKs 1 to 18 in 0.024 ms, from 19 on 42.0 ms: quick-ACK credits spent"
                    .to_owned(),
            }
        })
        .collect()
}
