//! The command line of `uncork lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use uncork_lab::kernels::QEMU;
use uncork_lab::socket;
use uncork_posix::config::parse_duration;

/// Run the experiments that show what TCP's queues and timers do
///
/// Each makes network namespaces of its own and removes them, also when it is interrupted; what a
/// run that was killed has left is removed by the next. The rest of the machine is not changed.
#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(super) experiment: Experiment,
}

#[derive(Debug, Subcommand)]
pub(super) enum Experiment {
    Nodelay(Nodelay),
    Tsq(Tsq),
    Quickack(Quickack),
    Kernels(Kernels),
    Link(Link),
}

impl Experiment {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nodelay(_) => "nodelay",
            Self::Tsq(_) => "tsq",
            Self::Quickack(_) => "quickack",
            Self::Kernels(_) => "kernels",
            Self::Link(_) => "link",
        }
    }

    /// Returns the programs that it runs, and the Debian package of each.
    pub(super) fn programs(&self) -> &'static [(&'static str, &'static str)] {
        const IP: (&str, &str) = ("ip", "iproute2");
        match self {
            Self::Nodelay(_) => &[IP, ("taskset", "util-linux")],
            Self::Tsq(_) => &[IP, ("tc", "iproute2"), ("ethtool", "ethtool")],
            Self::Quickack(_) | Self::Link(_) => &[IP],
            Self::Kernels(_) => &[(QEMU, "qemu-system-x86")],
        }
    }

    /// Returns whether it is useless without the privilege to create network namespaces.
    pub(super) fn needs_namespaces(&self) -> bool {
        !matches!(self, Self::Kernels(_))
    }
}

/// How much is measured, and how the result is told: the same for every experiment.
#[derive(Debug, Args)]
pub(super) struct Telling {
    /// Measure less, or less precisely, in less than 20 seconds
    #[arg(long)]
    pub(super) quick: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Write a page with plots, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
}

const NODELAY_HELP: &str = "\
Examples:
  sudo uncork lab nodelay --quick
  sudo uncork lab nodelay --html small-writes.html

Exit status: 0 done, 2 the command line is not understood, 3 no permission to make network
namespaces, 125 something failed, 130 interrupted.";

/// Measure what small writes cost, and what helps
///
/// The published experiment: a client sends logical packets of 15 and of 100 buffers of two bytes
/// and waits for the answer to each. With no option, TCP_NODELAY, TCP_CORK, header and payload, writev,
/// sendfile, as one write, and under uncork run, with --hold kernel and with --hold user; client and
/// server on one core, then on a core each, then with both trying before they sleep (--spin auto).
/// Takes about four minutes.
#[derive(Debug, Args)]
#[command(after_help = NODELAY_HELP)]
pub(super) struct Nodelay {
    #[command(flatten)]
    pub(super) telling: Telling,
}

const TSQ_HELP: &str = "\
Examples:
  sudo uncork lab tsq --quick
  sudo uncork lab tsq --html queues.html

Exit status: 0 done, 2 the command line is not understood, 3 no permission to make network
namespaces, 125 something failed, 130 interrupted.";

/// Measure what a bulk sender does to everybody behind it
///
/// One and eight connections send as fast as they may through a bottleneck of 100 Mbit/s and of
/// 1 Gbit/s, with and without segmentation offload. Beside them run a ping and a request of one
/// byte, and the queues are looked at: below TCP and in the sockets. That with what the kernel does
/// of itself, with the limit of 2012, with what `uncork tune small-queues` sets, with the same and
/// pacing, and by the limit from 4 MiB to 4 KiB. Takes about twelve minutes.
#[derive(Debug, Args)]
#[command(after_help = TSQ_HELP)]
pub(super) struct Tsq {
    /// What sets the senders' pace
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Congestion::Cubic)]
    pub(super) congestion: Congestion,

    #[command(flatten)]
    pub(super) telling: Telling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Congestion {
    Cubic,
    Bbr,
}

impl From<Congestion> for socket::Congestion {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Cubic => Self::Cubic,
            Congestion::Bbr => Self::Bbr,
        }
    }
}

const QUICKACK_HELP: &str = "\
Examples:
  sudo uncork lab quickack --quick
  sudo uncork lab quickack --html acks.html

Exit status: 0 done, 2 the command line is not understood, 3 no permission to make network
namespaces, 125 something failed, 130 interrupted.";

/// Measure when this kernel acknowledges what it receives
///
/// The reference run of `uncork ack`, the same with a reader that stays behind and with one that also
/// sends; and a client that asks, with a server that answers with 2, 3 and 5 segments: which ACKs are
/// late, from which segment on, and at which place in a reply. Takes ten seconds, or four.
#[derive(Debug, Args)]
#[command(after_help = QUICKACK_HELP)]
pub(super) struct Quickack {
    #[command(flatten)]
    pub(super) telling: Telling,
}

const KERNELS_HELP: &str = "\
KERNEL is a kernel image (vmlinuz, bzImage), a Debian package of one (linux-image-….deb), or the
name of an installed package. It needs a serial console and an initramfs, both built in, as
distributions' kernels have them. No root is needed but for this machine's own row; /dev/kvm is
used where it may be.

Examples:
  uncork lab kernels --quick linux-image-6.1.0-56-cloud-amd64_6.1.192-2_amd64.deb
  sudo uncork lab kernels --html kernels.html /boot/vmlinuz-*
  uncork lab kernels --bisect vmlinuz-6.1.55 vmlinuz-6.1.56 vmlinuz-6.1.57 vmlinuz-6.1.58

Exit status: 0 done, 1 a kernel did not come up, 2 the command line is not understood or a
KERNEL is none, 125 something failed, 130 interrupted.";

/// Measure when other kernels acknowledge what they receive
///
/// Boots each kernel in a virtual machine (QEMU) whose only program is uncork itself, makes the
/// runs of `uncork lab quickack` there over the loopback device, and prints a row for each kernel,
/// beside one for this machine's own. Takes 10 seconds a kernel, and what it takes to boot.
#[derive(Debug, Args)]
#[command(after_help = KERNELS_HELP)]
pub(super) struct Kernels {
    /// The first kernel of an ordered list that differs from the first of all
    ///
    /// Boots the first and the last, and if they differ, as few as possible between them.
    #[arg(long)]
    pub(super) bisect: bool,

    /// 40 segments instead of 100 each: 4 seconds
    #[arg(long)]
    pub(super) quick: bool,

    /// Do not use KVM, also where it may be used
    #[arg(long)]
    pub(super) emulate: bool,

    /// How long a kernel may take to come up [default: 60s, emulated 300s]
    #[arg(long, value_name = "DURATION", value_parser = limit)]
    pub(super) limit: Option<Duration>,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Write a page with plots, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,

    /// What to boot
    #[arg(required = true, value_name = "KERNEL", value_hint = ValueHint::FilePath)]
    pub(super) kernels: Vec<String>,
}

const LINK_HELP: &str = "\
A value holds for both directions; NEAR/FAR gives one for what the near end sends and one for
what the far end does: --delay 5ms/20ms, --loss 0/0.01.

Examples:
  sudo uncork lab link --delay 20ms --rate 10M
  sudo uncork lab link --loss 0.01 -- ping -c 3 10.79.0.2

Exit status: 0 done, that of COMMAND if there is one (128 + N if signal N ended it),
2 the command line is not understood, 3 no permission to make network namespaces,
125 something failed.";

/// Join two network namespaces by a link with a delay, a rate and faults
///
/// For kernels without netem, or to keep a test away from the machine's own network. The link is
/// there until Ctrl-C, or until COMMAND, which runs at its near end, has ended. Frames and what
/// became of them are counted at the end.
#[derive(Debug, Args)]
#[command(after_help = LINK_HELP)]
pub(super) struct Link {
    /// From one end to the other: 0 to 10s
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = both(delay))]
    pub(super) delay: Both<Duration>,

    /// Bits a second, with k, M or G: 1k to 100G [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = both(rate))]
    pub(super) rate: Option<Both<u64>>,

    /// What may wait for the rate, in bytes; a frame that finds it full is lost
    #[arg(long, value_name = "BYTES", default_value = "1000000", requires = "rate")]
    #[arg(value_parser = both(bytes))]
    pub(super) queue: Both<u64>,

    /// Share of frames that are lost: 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = both(share))]
    pub(super) loss: Both<f64>,

    /// Share of frames that arrive late enough to be overtaken
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = both(share))]
    pub(super) reorder: Both<f64>,

    /// How much later those arrive
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = both(delay))]
    pub(super) late_by: Both<Duration>,

    /// Share of frames that arrive twice
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = both(share))]
    pub(super) dup: Both<f64>,

    /// Share of frames in which a bit is turned
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = both(share))]
    pub(super) corrupt: Both<f64>,

    /// Where the dice start: the same number loses the same frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Print the counts as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Runs at the near end
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

/// A value for what the near end sends, and one for what the far end sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Both<T> {
    pub(super) near: T,
    pub(super) far: T,
}

/// Parses `a` for both, or `a/b`.
fn both<T: Copy + Send + Sync + 'static>(
    one: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Both<T>, String> + Clone + Send + Sync + 'static {
    move |text| {
        let (near, far) = text.split_once('/').unwrap_or((text, text));
        Ok(Both { near: one(near)?, far: one(far)? })
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(10);
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if time > LONGEST { Err("more than 10s".to_owned()) } else { Ok(time) }
}

fn limit(text: &str) -> Result<Duration, String> {
    const RANGE: std::ops::RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(3600);
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if RANGE.contains(&time) { Ok(time) } else { Err("not from 1s to 3600s".to_owned()) }
}

fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok();
    let rate = number.and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| (1_000..=100_000_000_000).contains(rate))
        .ok_or_else(|| "not a rate from 1k to 100G, in bits a second".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number of bytes".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "not a share from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_for_both_directions_and_two_are_near_and_far() {
        let ms = Duration::from_millis;
        assert_eq!(both(delay)("5ms"), Ok(Both { near: ms(5), far: ms(5) }));
        assert_eq!(both(delay)("0/20ms"), Ok(Both { near: ms(0), far: ms(20) }));
        assert_eq!(both(rate)("10M/1G").unwrap().far, 1_000_000_000);
        assert_eq!(both(share)("0.01/1").unwrap().near, 0.01);
    }

    #[test]
    fn what_is_no_value_is_said() {
        for text in ["", "-1", "0.5M", "101G", "999", "99999999999999999999G", "10X"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "-0.1", "1.1", "NaN", "inf", "1%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert!(delay("11s").is_err() && delay("").is_err() && both(delay)("1ms/").is_err());
    }
}
