//! Identifiers for what a stack holds.

use std::fmt;

/// Identifies a connection. It never comes to mean another one, even after that one is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl SocketId {
    /// Returns the identifier as one number, which [`SocketId::from_u64`] converts back.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.place as u64
    }

    /// Converts back from [`SocketId::as_u64`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub const fn from_u64(number: u64) -> Self {
        Self { place: number as u32, generation: (number >> 32) as u32 }
    }
}

impl fmt::Debug for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}.{}", self.place, self.generation)
    }
}

/// Identifies a listener. It never comes to mean another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl ListenerId {
    /// Returns the identifier as one number, which [`ListenerId::from_u64`] converts back.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.place as u64
    }

    /// Converts back from [`ListenerId::as_u64`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub const fn from_u64(number: u64) -> Self {
        Self { place: number as u32, generation: (number >> 32) as u32 }
    }
}

impl fmt::Debug for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {}.{}", self.place, self.generation)
    }
}
