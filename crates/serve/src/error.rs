//! Why a program ends without having done what it was asked for.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use uncork_bpf::owned;
use uncork_driver::OpenError;
use uncork_stack::{ConnectError, ConnectionError, ListenError};

/// Why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is the stack's could not be taken away from the kernel.
    #[error(transparent)]
    Owned(#[from] owned::Error),
    /// An address of the kernel's was asked for.
    #[error(
        "{0} is an address of this host already: give the stack one that nobody has, of the same \
         network"
    )]
    Taken(IpAddr),
    /// An address that no host can have was asked for.
    #[error(
        "{0} is no address that a host can have: give the stack one of its network that nobody has"
    )]
    Nobodys(IpAddr),
    /// The TAP device is there and has no addresses.
    #[error("the kernel's end of {device} cannot be set up ({doing}): {error}")]
    Setup {
        /// The device.
        device: String,
        /// What was attempted.
        doing: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// An MTU was asked for where it is the device's.
    #[error(
        "--mtu sets that of a TAP: {device} is there and has its own, which ip link set {device} mtu {mtu} changes"
    )]
    Mtu {
        /// The device.
        device: String,
        /// What was asked for.
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
        /// Number of the program.
        program: u32,
    },
    /// The driver has no XDP.
    #[error(
        "the driver of the device {0} has no XDP of its own, and without that AF_XDP is no better than a packet \
         socket: use one"
    )]
    NoXdp(String),
    /// No address of the version of the peer's.
    #[error("there is no address of the version of {0}: give one more with --addr")]
    Version(IpAddr),
    /// No network has it.
    #[error("{0} is in no network of --addr: name the router to it with --gateway")]
    NoRoute(IpAddr),
    /// Two routers to everywhere.
    #[error(
        "{0} and {1} are two routers to the same: name one of each version of IP with --gateway"
    )]
    Gateways(IpAddr, IpAddr),
    /// The stack's own, or nobody's.
    #[error("{0} is no router's address: name another with --gateway")]
    NoGateway(IpAddr),
    /// A router that is on no network of the stack's.
    #[error(
        "the router {0} is in no network of --addr, so that none of them reaches it: correct one of the two, or \
         give --addr without a network (prefix length 32, for IPv6 128) if the router is on this link all the same"
    )]
    FarGateway(IpAddr),
    /// Nothing listens to what comes to a port twice.
    #[error("cannot listen at {0}: {1}")]
    Listen(IpAddr, ListenError),
    /// On kernel sockets.
    #[error("cannot listen at {address}:{port} on a kernel socket: {error}{}", missing(*port, error))]
    KernelListen {
        /// Where.
        address: IpAddr,
        /// Where.
        port: u16,
        /// What the kernel says.
        error: io::Error,
    },
    /// The connection was not begun.
    #[error("cannot connect: {0}")]
    Connect(ConnectError),
    /// The connection has failed.
    #[error("the connection to {0} has failed: {1}")]
    Connection(std::net::SocketAddr, ConnectionError),
    /// The recording could not be begun.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The recording has ended before what it records.
    #[error("the recording {} broke off: {error}", path.display())]
    Recording {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Nobody can ask for its connections.
    #[error("cannot listen at {} for uncork stack stat: {error} (--socket names another place)", path.display())]
    Socket {
        /// The Unix socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Anything else.
    #[error("{doing}: {error}")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// What the system says.
        error: io::Error,
    },
}

/// What it takes to listen at a port that is not everybody's.
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

    /// With the name of a device where there is its number.
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

    /// Whether what was asked for cannot be, on this host.
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

    /// Whether a privilege is missing; the sentence names it.
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
