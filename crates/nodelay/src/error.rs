//! Errors that end one of the two programs early, each as one sentence for the user.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;

/// A failure of the client or of the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The name of the server, or the address to listen on, cannot be resolved.
    #[error("cannot find the host `{host}`: {}", plain(.cause))]
    Resolve { host: String, cause: io::Error },

    /// No address of the server accepted the connection.
    #[error(
        "cannot connect to `{host}` port {port}: {}; is tcp_nodelay_server running there?",
        plain(.cause)
    )]
    Connect { host: String, port: u16, cause: io::Error },

    /// The port cannot be listened on.
    #[error("cannot listen on {place}: {}{}", plain(.cause), listen_advice(.cause))]
    Listen { place: String, cause: io::Error },

    /// The listening socket returned an error.
    #[error("cannot accept a connection: {}", plain(.0))]
    Accept(io::Error),

    /// A socket option was refused.
    #[error("cannot set {option}: {}", plain(.cause))]
    Option { option: &'static str, cause: io::Error },

    /// The peer went away in the middle.
    #[error("the server ended the connection after {done} of {packets} packets{}", because(.cause))]
    Ended { done: u64, packets: u64, cause: Option<io::Error> },

    /// A paced client waited in vain for a reply.
    #[error(
        "no reply to packet {} of {packets} within {} s: use --no_reply if the server was started \
         with the word rate, and the same --buffers at both ends",
        .done + 1, .limit.as_secs()
    )]
    NoReply { done: u64, packets: u64, limit: Duration },

    /// There is no file to send the payload from.
    #[error("cannot make a file in memory for --sendfile: {}", plain(.0))]
    File(io::Error),

    /// The clock refused to wait.
    #[error("cannot wait for the time of the next packet: {}", plain(.0))]
    Clock(io::Error),

    /// A histogram for the latencies could not be created.
    #[error("cannot record latencies: {0}")]
    Record(#[from] hdrhistogram::CreationError),

    /// Standard output cannot be written.
    #[error("cannot write the result: {}", plain(.0))]
    Output(io::Error),
}

impl Error {
    /// Reports the error on stderr and returns the exit code: 1, or 0 when only the reader of our
    /// output is gone.
    pub(crate) fn report(&self, program: &str) -> ExitCode {
        match self {
            Error::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            _ => {
                crate::output::complain(program, self);
                ExitCode::FAILURE
            }
        }
    }
}

/// Formats an error without the decoration that the standard library puts around it.
pub(crate) fn plain(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_owned(),
        None => {
            let text = cause.to_string();
            text.strip_prefix("failed to lookup address information: ")
                .map_or_else(|| text.clone(), str::to_owned)
        }
    }
}

fn because(cause: &Option<io::Error>) -> String {
    cause.as_ref().map_or_else(String::new, |cause| format!(": {}", plain(cause)))
}

fn listen_advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "; stop the program that has it, or choose another port",
        io::ErrorKind::PermissionDenied => "; choose a port above 1023",
        _ => "",
    }
}
