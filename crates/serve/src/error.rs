//! Errors that end a program.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use uncork_bpf::owned;
use uncork_driver::OpenError;
use uncork_stack::{ConnectError, ConnectionError, ListenError};

/// Why a program has failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What the stack owns could not be kept from the kernel.
    #[error(transparent)]
    Owned(#[from] owned::Error),
    /// The address belongs to the kernel.
    #[error(
        "{0} is an address of this host already: give the stack one that nobody has, of the same \
         network"
    )]
    Taken(IpAddr),
    /// The address is one that no host can have.
    #[error(
        "{0} is no address that a host can have: give the stack one of its network that nobody has"
    )]
    Nobodys(IpAddr),
    /// The kernel's end of the TAP could not be set up.
    #[error("the kernel's end of {device} cannot be set up ({doing}): {error}")]
    Setup {
        /// The device.
        device: String,
        /// What was attempted.
        doing: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// An MTU was given for a device that has its own.
    #[error(
        "--mtu sets that of a TAP: {device} is there and has its own, which ip link set {device} mtu {mtu} changes"
    )]
    Mtu {
        /// The device.
        device: String,
        /// The MTU that was given.
        mtu: u16,
    },
    /// The device has an XDP program that is not ours.
    #[error(
        "the device {device} has an XDP program already (bpftool prog show id {program} says which): detach \
         that, or use a packet socket"
    )]
    Occupied {
        /// The device.
        device: String,
        /// Id of the program.
        program: u32,
    },
    /// The driver has no native XDP.
    #[error(
        "the driver of the device {0} has no XDP of its own, and without that AF_XDP is no better than a packet \
         socket: use one"
    )]
    NoXdp(String),
    /// The stack has no address of the peer's version of IP.
    #[error("there is no address of the version of {0}: give one more with --addr")]
    Version(IpAddr),
    /// No route leads to the address.
    #[error("{0} is in no network of --addr: name the router to it with --gateway")]
    NoRoute(IpAddr),
    /// Two default routers of one version of IP were given.
    #[error(
        "{0} and {1} are two routers to the same: name one of each version of IP with --gateway"
    )]
    Gateways(IpAddr, IpAddr),
    /// The router's address is the stack's own, or one that no host can have.
    #[error("{0} is no router's address: name another with --gateway")]
    NoGateway(IpAddr),
    /// The router is on none of the stack's networks.
    #[error(
        "the router {0} is in no network of --addr, so that none of them reaches it: correct one of the two, or \
         give --addr without a network (prefix length 32, for IPv6 128) if the router is on this link all the same"
    )]
    FarGateway(IpAddr),
    /// The stack refuses to listen at the port.
    #[error("cannot listen at {0}: {1}")]
    Listen(IpAddr, ListenError),
    /// The kernel refuses to listen.
    #[error("cannot listen at {address}:{port} on a kernel socket: {error}{}", missing(*port, error))]
    KernelListen {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// The kernel's error.
        error: io::Error,
    },
    /// The connection could not be begun.
    #[error("cannot connect: {0}")]
    Connect(ConnectError),
    /// The connection has failed.
    #[error("the connection to {0} has failed: {1}")]
    Connection(std::net::SocketAddr, ConnectionError),
    /// The recording could not be started.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The recording has ended before the traffic.
    #[error("the recording {} broke off: {error}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The socket for queries could not be opened.
    #[error("cannot listen at {} for uncork stack stat: {error} (--socket names another place)", path.display())]
    Socket {
        /// The Unix socket.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Any other error of the system.
    #[error("{doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns what it takes to listen at a privileged port.
fn missing(port: u16, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(
        "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE: run as root, or give --port {}",
        8000 + port % 1000
    )
}

impl Error {
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { doing, error }
    }

    /// Adds the name of a device to an error that has its index.
    pub(crate) fn of_device(name: &str) -> impl Fn(owned::Error) -> Self {
        move |error| {
            let device = name.to_owned();
            match error {
                owned::Error::Occupied { program, .. } => Self::Occupied { device, program },
                owned::Error::NoXdp(_) => Self::NoXdp(device),
                owned::Error::NoDevice(_) => OpenError::NoDevice(device).into(),
                error => Self::Owned(error),
            }
        }
    }

    pub(crate) fn os(doing: &'static str, number: i32) -> Self {
        Self::System { doing, error: io::Error::from_raw_os_error(number) }
    }

    /// Whether the request is impossible on this host.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Open(error) => matches!(
                error,
                OpenError::NoDevice(_)
                    | OpenError::Name(_)
                    | OpenError::Busy(_)
                    | OpenError::Other { .. }
                    | OpenError::Medium { .. }
                    | OpenError::Checksums { .. }
                    | OpenError::Refused { .. }
                    | OpenError::Settings(_)
            ),
            Self::Owned(error) => matches!(error, owned::Error::Full),
            Self::Setup { .. }
            | Self::Connect(_)
            | Self::Connection(..)
            | Self::Recording { .. }
            | Self::System { .. } => false,
            _ => true,
        }
    }

    /// Whether a privilege is missing; the message names it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Open(OpenError::Privilege { .. }) | Self::Owned(owned::Error::Privilege) => true,
            Self::KernelListen { error, .. } | Self::Setup { error, .. } => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_listen_at_a_low_port_is_told_the_capability_and_another_port() {
        let listen = |kind: io::ErrorKind| Error::KernelListen {
            address: [127, 0, 0, 1].into(),
            port: 7,
            error: kind.into(),
        };
        let denied = listen(io::ErrorKind::PermissionDenied);
        let said = denied.to_string();
        assert!(
            said.contains("need CAP_NET_BIND_SERVICE: run as root, or give --port 8007"),
            "{said}"
        );
        assert!(denied.is_permission());
        let taken = listen(io::ErrorKind::AddrInUse).to_string();
        assert!(!taken.contains("CAP_"), "{taken}");
    }

    #[test]
    fn a_device_that_xdp_cannot_have_is_called_by_its_name() {
        let named = Error::of_device("eth0");
        let occupied = named(owned::Error::Occupied { device: 3, program: 17 });
        let said = occupied.to_string();
        assert!(said.starts_with("the device eth0 has an XDP program already"), "{said}");
        assert!(said.contains("prog show id 17") && occupied.is_usage(), "{said}");
        let without = named(owned::Error::NoXdp(3));
        assert!(without.to_string().starts_with("the driver of the device eth0 has no XDP"));
        assert!(without.is_usage());
        let gone = named(owned::Error::NoDevice(3));
        assert!(gone.to_string().starts_with("there is no network device eth0 "), "{gone}");
    }
}
