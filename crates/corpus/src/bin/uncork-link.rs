//! `uncork-link`: a link with delay, rate, queue and loss between two network namespaces.
#![forbid(unsafe_code)]

use std::io::Write;

use anyhow::{Context, Result};
use clap::Parser;
use uncork_corpus::link::{Layer, Path, Settings, run};

/// Carries frames between two TAP devices, one in each namespace, until it is ended. Says `ready`
/// when both are there; giving them addresses is left to ip(8).
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A namespace, as `ip netns` knows it; given twice.
    #[arg(long, required = true)]
    namespace: Vec<String>,
    /// Name of the device in both.
    #[arg(long, default_value = "eth0")]
    device: String,
    /// TUN devices instead of TAP.
    #[arg(long)]
    bare_ip: bool,
    /// Segment trains cross whole.
    #[arg(long)]
    offload: bool,
    /// What happens from the first namespace to the second, and back, as JSON: `{"delay_us": 500,
    /// "rate": 10000000, "queue_bytes": 150000, "loss": {"data": [3], "least_bytes": 1}}`.
    #[arg(long, value_parser = path)]
    path: Vec<Path>,
}

fn path(text: &str) -> Result<Path, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let namespaces = arguments.namespace.try_into().ok().context("--namespace is wanted twice")?;
    let paths = arguments.path.try_into().ok().context("--path is wanted twice")?;
    let settings = Settings {
        namespaces,
        device: arguments.device,
        layer: if arguments.bare_ip { Layer::Ip } else { Layer::Ethernet },
        segmentation_offload: arguments.offload,
        paths,
    };
    run(settings, || {
        println!("ready");
        let _ = std::io::stdout().flush();
    })
}
