//! Errors that keep a guardian from starting.

use std::io;

use uncork_bpf::owned;
use uncork_driver::OpenError;
use uncork_driver::af_xdp::Locked;

/// Why a guardian cannot start. Each is one sentence that says what mends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A privilege is missing.
    #[error(
        "a stack in user space needs {0}: run uncork as root (sudo uncork run --stack -- setpriv \
         --reuid=USER --init-groups COMMAND), or sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep \
         $(command -v uncork)"
    )]
    Privilege(String),
    /// The kernel is too old.
    #[error(
        "this kernel cannot say which packets are a stack's (tcx): boot Linux 6.6 or later (uname -r), \
         or run the program without --stack"
    )]
    TooOld,
    /// There is no such device.
    #[error("there is no network device {0} here: ip -brief link lists those that there are")]
    NoDevice(String),
    /// The device is not up.
    #[error("the network device {0} is down: ip link set {0} up")]
    Down(String),
    /// The device has no address.
    #[error("the network device {0} has no address: ip address add ADDRESS/PREFIX dev {0}")]
    NoAddress(String),
    /// The device is not an Ethernet one.
    #[error(
        "the network device {0} is not an Ethernet one, which the stack needs: name another with --dev \
         (ip -brief link)"
    )]
    NotEthernet(String),
    /// There is no device to choose from.
    #[error(
        "no Ethernet device is up and has an address: ip link set DEVICE up and ip address add \
         ADDRESS/PREFIX dev DEVICE, or name one with --dev (ip -brief address)"
    )]
    NoDevices,
    /// The filters cannot say whose packets are whose.
    #[error("{0}")]
    Steering(owned::Error),
    /// A device has an XDP program.
    #[error(
        "the network device {device} has an XDP program already (bpftool prog show id {program} says which): \
         detach that, or leave out --driver=xdp"
    )]
    Occupied {
        /// Its name.
        device: String,
        /// Number of the program.
        program: u32,
    },
    /// AF_XDP needs one privilege more on a device that does not fill in checksums.
    #[error(
        "AF_XDP on the network device {0}, a veth, needs CAP_PERFMON, too: run uncork as root, or sudo setcap \
         cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v uncork), or leave out --driver=xdp"
    )]
    Perfmon(String),
    /// A device's driver has no XDP.
    #[error(
        "the driver of the network device {0} has no XDP of its own, and without that AF_XDP is no better than a \
         packet socket: leave out --driver=xdp, or name another device with --dev"
    )]
    NoXdp(String),
    /// A device has fewer queues than each process is to get.
    #[error(
        "the network device {device} has {there}, and each process is to get {wanted} of them: ask for no more \
         (--queues={queues}), or give the device more (ethtool -L {device} combined {wanted})",
        there = counted(*.queues)
    )]
    Queues {
        /// Its name.
        device: String,
        /// How many it has.
        queues: u32,
        /// How many each process is to get.
        wanted: u32,
    },
    /// AF_XDP locks memory, of which a user may lock only so much.
    #[error(
        "{0}: run uncork as root, or sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock+ep \
         $(command -v uncork), or raise the limit of this shell (ulimit -l {kib}, or sudo prlimit --pid $$ \
         --memlock={bytes}), or leave out --driver=xdp",
        kib = .0.enough_bytes() >> 10,
        bytes = .0.enough_bytes()
    )]
    Locked(Locked),
    /// A socket of a device cannot be opened.
    #[error("{0}")]
    Port(OpenError),
    /// A system call has failed.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Locked(locked) => Self::Locked(locked),
            error => Self::Port(error),
        }
    }
}

impl From<owned::Error> for Error {
    fn from(error: owned::Error) -> Self {
        match error {
            owned::Error::TooOld => Self::TooOld,
            // Said only where the capabilities themselves are there, so this is what is missing.
            owned::Error::Privilege => Self::Privilege(
                "CAP_BPF and CAP_NET_ADMIN of the machine, not of a container's user namespace"
                    .to_owned(),
            ),
            error => Self::Steering(error),
        }
    }
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, error: error.into() }
    }
}

/// Formats a number of queues.
pub(crate) fn counted(queues: u32) -> String {
    match queues {
        1 => "1 queue".to_owned(),
        queues => format!("{queues} queues"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_af_xdp_lacks_is_one_sentence_with_what_mends_it() {
        let queues = Error::Queues { device: "eth0".to_owned(), queues: 1, wanted: 64 };
        assert_eq!(
            queues.to_string(),
            "the network device eth0 has 1 queue, and each process is to get 64 of them: ask for no more (--queues=1), \
             or give the device more (ethtool -L eth0 combined 64)"
        );
        let locked = Locked { device: "eth0".to_owned(), bytes: 4 << 20, limit_bytes: 8 << 20 };
        let said = Error::from(OpenError::Locked(locked)).to_string();
        for part in
            ["4096 KiB", "8192 KiB in all", "cap_perfmon,cap_ipc_lock+ep", "ulimit -l 12288,"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
}
