//! The options that eBPF may set on other processes' sockets.

use std::fmt;
use std::time::Duration;

/// The longest name of a congestion control (TCP_CA_NAME_MAX, including its NUL).
pub const LONGEST_NAME_BYTES: usize = 16;

/// An option and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cure {
    /// TCP_NODELAY.
    NoDelay,
    /// The longest delay of an ACK (TCP_BPF_DELACK_MAX).
    DelackMax(Duration),
    /// TCP_NOTSENT_LOWAT, in bytes.
    NotsentLowat(u32),
    /// The shortest retransmission timeout (TCP_BPF_RTO_MIN).
    RtoMin(Duration),
    /// SO_MAX_PACING_RATE, in bytes a second.
    Pacing(u32),
    /// TCP_CONGESTION: the name of a congestion control.
    Congestion(String),
}

/// The kernel's names of the options, in the order of `settings.h`.
pub(super) const NAMES: [&str; 6] = [
    "TCP_NODELAY",
    "TCP_BPF_DELACK_MAX",
    "TCP_NOTSENT_LOWAT",
    "TCP_BPF_RTO_MIN",
    "SO_MAX_PACING_RATE",
    "TCP_CONGESTION",
];

impl Cure {
    /// Returns its number in `settings.h`.
    pub(super) fn index(&self) -> usize {
        match self {
            Self::NoDelay => 0,
            Self::DelackMax(_) => 1,
            Self::NotsentLowat(_) => 2,
            Self::RtoMin(_) => 3,
            Self::Pacing(_) => 4,
            Self::Congestion(_) => 5,
        }
    }

    /// Returns the option's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAMES[self.index()]
    }

    /// Returns the value in the programs' layout.
    pub(super) fn value(&self) -> [u8; LONGEST_NAME_BYTES] {
        let mut value = [0; LONGEST_NAME_BYTES];
        let number = match self {
            Self::NoDelay => 1,
            Self::DelackMax(time) | Self::RtoMin(time) => {
                u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
            }
            Self::NotsentLowat(number) | Self::Pacing(number) => *number,
            Self::Congestion(name) => {
                let length = name.len().min(LONGEST_NAME_BYTES - 1);
                value[..length].copy_from_slice(&name.as_bytes()[..length]);
                return value;
            }
        };
        value[..4].copy_from_slice(&number.to_ne_bytes());
        value
    }
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::NoDelay => write!(f, "{name} on"),
            Self::DelackMax(time) | Self::RtoMin(time) => write!(f, "{name} {time:?}"),
            Self::NotsentLowat(bytes) => write!(f, "{name} {bytes} bytes"),
            Self::Pacing(rate) => write!(f, "{name} {rate} bytes/s"),
            Self::Congestion(congestion) => write!(f, "{name} {congestion}"),
        }
    }
}
