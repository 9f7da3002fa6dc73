//! Options of the senders' sockets.

use std::net::TcpStream;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;

/// The congestion control, which sets a sender's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC, by the queue that it fills, which is the case that matters here.
    #[default]
    Cubic,
    /// BBR, by the rate at which data arrives.
    Bbr,
}

impl Congestion {
    /// Returns its name in the kernel.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Makes a socket use it, whatever the host's default is.
    ///
    /// # Errors
    /// If the kernel lacks it, or reserves it for privileged processes.
    pub fn set(self, stream: &TcpStream) -> Result<()> {
        let name = self.name();
        setsockopt(stream, sockopt::TcpCongestion, &name.into())
            .with_context(|| format!("this kernel does not let TCP use {name}"))
    }
}
