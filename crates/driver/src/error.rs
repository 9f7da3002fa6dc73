//! Errors of opening a port.

use std::io;

use crate::af_xdp::Locked;

/// Why a port could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A privilege is missing.
    #[error("{doing} needs {capability}: run as root, or give the program that capability")]
    Privilege {
        /// What was attempted.
        doing: &'static str,
        /// The capability's name in capabilities(7).
        capability: &'static str,
    },
    /// There is no such device in this network namespace.
    #[error("there is no network device {0} in this network namespace (ip link lists them)")]
    NoDevice(String),
    /// The device is down.
    #[error("the network device {0} is down: ip link set {0} up")]
    Down(String),
    /// The kernel does not accept such a name.
    #[error(
        "{0:?} is no name of a network device: it has 1 to 15 octets, and no blank, colon or slash"
    )]
    Name(String),
    /// A device of this name exists, and is of another kind.
    #[error(
        "{device} is there, and is no {wanted} device of one queue: use a packet socket (--driver packet) or AF_XDP \
         (--driver xdp) on it, or give another name to a {wanted} that is made"
    )]
    Other {
        /// The device.
        device: String,
        /// The kind that it would have to be.
        wanted: &'static str,
    },
    /// Something else holds the device.
    #[error("the device {0} is held by another program: end that, or name another device")]
    Busy(String),
    /// The device's link type is not one that the stack speaks.
    #[error("{device} is of a kind ({kind}, ARPHRD) that carries neither Ethernet nor bare IP")]
    Medium {
        /// The device.
        device: String,
        /// Its link type (ARPHRD_*, linux/if_arp.h).
        kind: u16,
    },
    /// The kernel lacks a feature.
    #[error("this kernel has no {feature}: it needs Linux {since}, built with {option}")]
    Feature {
        /// The missing feature.
        feature: &'static str,
        /// The first kernel that has it.
        since: &'static str,
        /// Its option in the kernel's configuration.
        option: &'static str,
    },
    /// The device has fewer queues.
    #[error("{device} has no queue {queue}: it has {queues} (ethtool -l {device}), counted from 0")]
    NoQueue {
        /// The device.
        device: String,
        /// Number of the queue that was asked for.
        queue: u32,
        /// How many queues there are.
        queues: u32,
    },
    /// Received frames whose checksums are not filled in cannot be told from others.
    #[error(
        "the driver of {device} ({driver}) hands on frames whose checksums are not filled in, and does \
         not tell AF_XDP which: use a packet socket"
    )]
    Checksums {
        /// The device.
        device: String,
        /// Name of its driver.
        driver: String,
    },
    /// The memory of frames has to be locked, and the limit on that is too low.
    #[error(
        "{0}: ulimit -l {kib} in the shell that starts it (where that is refused: sudo prlimit --pid $$ \
         --memlock={bytes}), or give the program CAP_IPC_LOCK",
        kib = .0.enough_bytes() >> 10,
        bytes = .0.enough_bytes()
    )]
    Locked(Locked),
    /// No memory for the rings.
    #[error(
        "the kernel has no {bytes} octets of memory for the rings: end what has it (ps aux --sort=-rss), or let the \
         control group have more (systemctl set-property UNIT MemoryMax=BYTES)"
    )]
    Memory {
        /// Length of all rings of the port, in octets.
        bytes: usize,
    },
    /// DPDK has refused the device.
    #[error("DPDK cannot use {device}: {said}")]
    Refused {
        /// The device, as DPDK names it.
        device: String,
        /// DPDK's message, or what is missing.
        said: String,
    },
    /// The settings are impossible.
    #[error("{0}")]
    Settings(&'static str),
    /// Any other error of the system.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl OpenError {
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { doing, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_locked_memory_is_said_with_the_limit_that_is_enough() {
        // 2,112 chunks of 2 KiB, and a login's limit on many machines, all of which other processes may have used.
        let locked = Locked { device: "eth0".to_owned(), bytes: 2112 << 11, limit_bytes: 64 << 10 };
        assert_eq!(
            OpenError::Locked(locked).to_string(),
            "AF_XDP has to lock 4224 KiB of memory for a queue of eth0, and this user may lock 64 KiB in all: ulimit \
             -l 4288 in the shell that starts it (where that is refused: sudo prlimit --pid $$ --memlock=4390912), or \
             give the program CAP_IPC_LOCK"
        );
        // A limit may be any number of octets, but ulimit counts in KiB.
        let odd = Locked { device: "eth0".to_owned(), bytes: 4096, limit_bytes: 1025 };
        assert_eq!(odd.enough_bytes(), 6 << 10);
        let all = Locked { device: "eth0".to_owned(), bytes: 4096, limit_bytes: u64::MAX };
        assert_eq!(all.enough_bytes(), u64::MAX >> 10 << 10);
    }
}
