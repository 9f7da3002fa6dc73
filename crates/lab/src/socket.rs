//! What the senders' sockets are told.

use std::net::TcpStream;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;

/// What sets a sender's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// By the queue that it fills, which is the case that matters here.
    #[default]
    Cubic,
    /// By the rate at which data arrives.
    Bbr,
}

impl Congestion {
    /// Its name in the kernel.
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
    /// If the kernel does not have it, or not for everybody.
    pub fn set(self, stream: &TcpStream) -> Result<()> {
        let name = self.name();
        setsockopt(stream, sockopt::TcpCongestion, &name.into())
            .with_context(|| format!("this kernel does not let TCP use {name}"))
    }
}
