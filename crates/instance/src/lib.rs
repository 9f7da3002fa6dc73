//! An instance: a process with a stack that programs attach to (`uncork stack start`).
#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use uncork_guardian::Client;

/// What an instance is to do.
pub struct Settings {
    /// Where its guardian is to be found.
    pub place: String,
    /// By what the guardian knows it.
    pub token: String,
    /// How long it goes on looking, after the last frame, before it sleeps.
    pub spin: Duration,
}

/// Why an instance has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guardian does not help.
    #[error("{0}")]
    Guardian(#[from] uncork_guardian::Error),
    /// The kernel does not let it wait.
    #[error("an instance of the stack cannot wait: {0}")]
    Wait(io::Error),
}

/// The life of an instance: until its guardian is gone.
///
/// # Errors
///
/// [`Error`] says why it has ended before.
pub fn run(settings: Settings) -> Result<(), Error> {
    let Settings { place, token, spin: _ } = settings;
    let mut client = Client::serve(&place, &token)?;
    loop {
        match poll(&mut [PollFd::new(&client, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::Wait(error.into())),
        }
        match client.check() {
            Err(uncork_guardian::Error::Gone) => return Ok(()),
            told => told?,
        }
        while client.next_word().is_some() {}
    }
}
