//! Names for what a stack holds.

use std::fmt;

/// A connection. Never means another one, even after it is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl SocketId {
    /// As one number, and back with [`SocketId::from_u64`].
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.place as u64
    }

    /// See [`SocketId::as_u64`].
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

/// A listener. Never means another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl ListenerId {
    /// As one number, and back with [`ListenerId::from_u64`].
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.place as u64
    }

    /// See [`ListenerId::as_u64`].
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
