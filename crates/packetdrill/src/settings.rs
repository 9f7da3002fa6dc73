//! The sysctls of the network namespace in which packetdrill runs, as settings of the stack: the
//! suite's scripts set them with their own commands, which therefore need no change. The settings
//! of the device `tun0` by ethtool(8) and tc(8) are read, too.

use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_stack::{Algorithm, Config, FastOpen, FastOpenKeys};

use crate::link::Link;

/// The initial settings of a world.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings of the stack.
    pub config: Config,
    /// Capabilities of its device.
    pub device: Capabilities,
    /// Keys of Fast Open's cookies.
    pub keys: Option<FastOpenKeys>,
    /// Whether trains are cut into segments before the script sees them.
    pub segments: bool,
    /// A device with a limited rate; without, each packet has left when it was handed over.
    pub link: Option<Link>,
}

/// Largest packet that Linux hands to a device (GSO_LEGACY_MAX_SIZE), and the link's MTU.
const TRAIN_BYTES: u32 = 65_535;
const MTU: u16 = 1500;

impl Default for Settings {
    fn default() -> Self {
        let device = Capabilities {
            max_train_bytes: TRAIN_BYTES,
            // A TUN device takes each packet at once, and has nothing to report.
            reports_completions: false,
            ..Capabilities::plain(Medium::Ip, MTU)
        };
        Self {
            config: Config { pacing: false, ..Config::default() },
            device,
            keys: None,
            segments: false,
            link: None,
        }
    }
}

/// Reads the current settings of this namespace.
pub(crate) fn read() -> Settings {
    let mut settings = Settings::default();
    settings.set_all(&sysctl);
    settings.config.pacing = is_fair_queue();
    settings.segments = told("ethtool", &["-k", "tun0"]).contains("tcp-segmentation-offload: off");
    settings
}

impl Settings {
    /// Applies values that `sysctl` has under their names in `/proc/sys/net/ipv4`; others keep their defaults.
    pub fn set_all(&mut self, sysctl: &dyn Fn(&str) -> Option<String>) {
        let number = |name| number(sysctl, name);
        let config = &mut self.config;
        config.follow(sysctl);
        let triple = |name| sysctl(name).as_deref().and_then(triple);
        if let Some([_, first, most]) = triple("tcp_rmem") {
            config.receive_buffer_bytes = (first, most);
        }
        if let Some([_, first, most]) = triple("tcp_wmem") {
            config.send_buffer_bytes = (first, most);
        }
        let limit = number("tcp_limit_output_bytes").and_then(|bytes| u32::try_from(bytes).ok());
        set(&mut config.small_queue_bytes, limit);
        let interval = number("tcp_invalid_ratelimit").map(Duration::from_millis);
        set(&mut config.challenge_interval, interval);
        if let Some(segments) = number("tcp_min_tso_segs") {
            config.least_train_segments = u16::try_from(segments).unwrap_or(u16::MAX);
        }
        let switches = number("tcp_fastopen").and_then(|switches| u32::try_from(switches).ok());
        set(&mut config.fast_open, switches.map(FastOpen));
        if sysctl("tcp_congestion_control").is_some_and(|name| name.trim() == "reno") {
            config.congestion = Algorithm::NewReno;
        }
        self.keys = sysctl("tcp_fastopen_key").as_deref().and_then(FastOpenKeys::of_sysctl);
    }
}

/// Returns the current switches of Fast Open: scripts change them in the middle.
pub(crate) fn fast_open() -> Option<FastOpen> {
    number(&sysctl, "tcp_fastopen").and_then(|switches| u32::try_from(switches).ok()).map(FastOpen)
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

pub(crate) fn sysctl(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()
}

fn number(sysctl: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<u64> {
    sysctl(name)?.trim().parse().ok()
}

fn triple(text: &str) -> Option<[u32; 3]> {
    let values: Vec<u32> = text.split_whitespace().flat_map(u32::from_str).collect();
    values.try_into().ok()
}

/// Whether the script has given its device the queueing discipline that paces. If scripts/packetdrill
/// runs it, its arguments for tc(8) are in this file: the kernel may lack that discipline.
fn is_fair_queue() -> bool {
    let Some(path) = std::env::var_os("UNCORK_PACKETDRILL_QDISC") else { return false };
    let asked = std::fs::read_to_string(path).unwrap_or_default();
    asked.split_whitespace().next_back() == Some("fq")
}

/// Returns how often a script has asked ip(8) to flush metrics of peers, if scripts/packetdrill runs it.
pub(crate) fn times_flushed() -> u64 {
    let path = std::env::var_os("UNCORK_PACKETDRILL_FLUSHED");
    path.and_then(|path| std::fs::metadata(path).ok()).map_or(0, |file| file.len())
}

/// Returns the output of a command; empty if it cannot be run.
fn told(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
