//! Errors that end one of the two programs early, each as one sentence for the user.

use std::io;

use nix::errno::Errno;

/// A failure of the client or of the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The name of the server, or the address to listen on, cannot be resolved.
    #[error("cannot find the host `{host}`: {}", plain(.cause))]
    Resolve { host: String, cause: io::Error },

    /// No address of the server accepted the connection.
    #[error(
        "cannot connect to `{host}` port {port}: {}; is `uncork ack server` running there?",
        plain(.cause)
    )]
    Connect { host: String, port: u16, cause: io::Error },

    /// The port cannot be listened on.
    #[error("cannot listen on {place}: {}{}", plain(.cause), listen_advice(.cause))]
    Listen { place: String, cause: io::Error },

    /// A system call failed unexpectedly.
    #[error("cannot {what}: {}", plain(.cause))]
    Call { what: &'static str, cause: io::Error },

    /// The processor to run on does not exist, or is not available to this process.
    #[error("cannot run on CPU {cpu}: {}; `nproc` and taskset(1) tell which there are", .cause.desc())]
    Cpu { cpu: usize, cause: Errno },

    /// The connection broke for another reason than that the peer ended it.
    #[error("the connection failed: {}", plain(.0))]
    Broken(io::Error),

    /// This process was started as that of a connection, but not by the server.
    #[error(
        "standard input is not a TCP connection: UNCORK_ACK_CONNECTION is the server's own \
         variable, unset it"
    )]
    NotAConnection,

    /// Standard output cannot be written.
    #[error("cannot write the result: {}", plain(.0))]
    Output(io::Error),
}

impl Error {
    /// Returns whether the only error is that the reader of our output is gone.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns a conversion for `map_err`: a call that failed, by its purpose.
    pub(crate) fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self::Call { what, cause: cause.into() }
    }
}

/// Formats an error without the decoration that the standard library puts around it.
fn plain(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_owned(),
        None => {
            let text = cause.to_string();
            text.strip_prefix("failed to lookup address information: ")
                .map_or_else(|| text.clone(), str::to_owned)
        }
    }
}

fn listen_advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; stop the program that has it, or choose another with -p",
        io::ErrorKind::PermissionDenied => "; choose a port above 1023 with -p",
        _ => "",
    }
}
