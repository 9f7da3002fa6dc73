//! Why a port could not be opened.

use std::io;

/// Why a port could not be opened. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A privilege is missing.
    #[error("{doing} needs {capability}: run as root, or give the program that capability")]
    Privilege {
        /// What was attempted.
        doing: &'static str,
        /// Its name in capabilities(7).
        capability: &'static str,
    },
    /// There is no such device in this network namespace.
    #[error("there is no network device {0} in this network namespace (ip link lists them)")]
    NoDevice(String),
    /// It is there, and down.
    #[error("the network device {0} is down: ip link set {0} up")]
    Down(String),
    /// The kernel takes no such name.
    #[error(
        "{0:?} is no name of a network device: it has 1 to 15 octets, and no blank, colon or slash"
    )]
    Name(String),
    /// Something else holds the device.
    #[error("the device {0} is held by another program: end that, or name another device")]
    Busy(String),
    /// The device carries what the stack does not speak.
    #[error("{device} is of a kind ({kind}, ARPHRD) that carries neither Ethernet nor bare IP")]
    Medium {
        /// The device.
        device: String,
        /// Its kind, a number of linux/if_arp.h.
        kind: u16,
    },
    /// The kernel lacks something.
    #[error("this kernel has no {feature}: it needs Linux {since}, built with {option}")]
    Feature {
        /// What is missing.
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
        /// The one that was asked for.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// Checksums of what comes cannot be told to be right.
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
    /// No memory for the rings.
    #[error("the kernel has no {bytes} octets for the rings: ask for fewer or shorter slots")]
    Memory {
        /// Of both rings, in octets.
        bytes: usize,
    },
    /// DPDK has refused the device.
    #[error("DPDK cannot use {device}: {said}")]
    Refused {
        /// The device, as DPDK names it.
        device: String,
        /// What DPDK says, or what is missing.
        said: String,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Settings(&'static str),
    /// Anything else.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl OpenError {
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { doing, error }
    }
}
