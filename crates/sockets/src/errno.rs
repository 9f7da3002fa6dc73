//! The errors of the stack by Linux's numbers.

use nix::errno::Errno;
use uncork_stack::{ConnectError, ConnectionError, ListenError, RecvError, SendError};

/// Returns the kernel's error of a failed call.
pub(crate) fn of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Returns why a connection is over, as SO_ERROR and the calls on it say it.
#[must_use]
pub fn of_connection(error: ConnectionError) -> Errno {
    match error {
        ConnectionError::Refused => Errno::ECONNREFUSED,
        // A connection that a program still has is aborted only for what has happened to its device.
        ConnectionError::Reset | ConnectionError::Aborted => Errno::ECONNRESET,
        // With SIGPIPE.
        ConnectionError::Broken => Errno::EPIPE,
        ConnectionError::TimedOut => Errno::ETIMEDOUT,
        ConnectionError::Unreachable => Errno::EHOSTUNREACH,
        ConnectionError::NetworkUnreachable => Errno::ENETUNREACH,
        ConnectionError::Prohibited => Errno::EACCES,
        ConnectionError::HostUnknown => Errno::EHOSTDOWN,
        ConnectionError::NoProtocol => Errno::ENOPROTOOPT,
        ConnectionError::Protocol => Errno::EPROTO,
    }
}

/// Returns the stack's error for such a number.
pub(crate) fn to_connection(error: Errno) -> Option<ConnectionError> {
    match error {
        Errno::ECONNREFUSED => Some(ConnectionError::Refused),
        Errno::ECONNRESET => Some(ConnectionError::Reset),
        Errno::EPIPE => Some(ConnectionError::Broken),
        Errno::ETIMEDOUT => Some(ConnectionError::TimedOut),
        Errno::EHOSTUNREACH => Some(ConnectionError::Unreachable),
        Errno::ENETUNREACH => Some(ConnectionError::NetworkUnreachable),
        Errno::EACCES => Some(ConnectionError::Prohibited),
        Errno::EHOSTDOWN => Some(ConnectionError::HostUnknown),
        Errno::ENOPROTOOPT => Some(ConnectionError::NoProtocol),
        Errno::EPROTO => Some(ConnectionError::Protocol),
        _ => None,
    }
}

/// Returns why nothing was sent; `EAGAIN` stands for "not yet".
#[must_use]
pub fn of_send(error: SendError) -> Errno {
    match error {
        SendError::NoSocket | SendError::Closed => Errno::EPIPE,
        SendError::WouldBlock => Errno::EAGAIN,
        SendError::Failed(error) => of_connection(error),
    }
}

/// Returns why nothing was received; `EAGAIN` stands for "not yet".
#[must_use]
pub fn of_recv(error: RecvError) -> Errno {
    match error {
        RecvError::NoSocket => Errno::ENOTCONN,
        RecvError::WouldBlock => Errno::EAGAIN,
        RecvError::Failed(error) => of_connection(error),
    }
}

/// Returns whether connect(2) with this error leaves a socket that may be connected anew.
#[must_use]
pub fn is_failed_connect(error: Errno) -> bool {
    matches!(
        error,
        Errno::ECONNREFUSED
            | Errno::ECONNABORTED
            | Errno::ECONNRESET
            | Errno::ETIMEDOUT
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EACCES
            | Errno::EHOSTDOWN
            | Errno::ENOPROTOOPT
    )
}

/// Returns why a connection was not begun.
#[must_use]
pub fn of_connect(error: ConnectError) -> Errno {
    match error {
        ConnectError::NoRoute => Errno::ENETUNREACH,
        ConnectError::NotOurs | ConnectError::NoPort => Errno::EADDRNOTAVAIL,
        ConnectError::AddressInUse => Errno::EADDRINUSE,
        ConnectError::NoFastOpen => Errno::EOPNOTSUPP,
    }
}

/// Returns why a socket does not listen.
#[must_use]
pub fn of_listen(error: ListenError) -> Errno {
    match error {
        ListenError::AddressInUse => Errno::EADDRINUSE,
        ListenError::NotOurs => Errno::EADDRNOTAVAIL,
    }
}
