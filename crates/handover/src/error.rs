//! Why a connection was not taken over.

use std::io;
use std::net::SocketAddr;

/// Why the kernel has not taken the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A privilege is missing.
    #[error("a connection is put into the kernel with CAP_NET_ADMIN in its network namespace only")]
    Privilege,
    /// CAP_NET_RAW is missing, for a half-closed connection.
    #[error("a connection that is half closed is put into the kernel with CAP_NET_RAW only")]
    RawPrivilege,
    /// The kernel has such a connection, or does not have the address.
    #[error("the kernel cannot have a connection from {local} to {remote}: {source}")]
    Ends {
        /// The local end.
        local: SocketAddr,
        /// The remote end.
        remote: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel takes no more of the data.
    #[error("the kernel has no room for {left} octets of the connection: {source}")]
    NoRoom {
        /// How many octets it has not taken.
        left: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// The packet that stands in for the peer's FIN did not reach the socket.
    #[error(
        "the kernel did not hear that the connection is half closed: a rule of its firewall drops packets \
         from this host to itself"
    )]
    Unheard,
    /// Another system call has failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn doing(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
