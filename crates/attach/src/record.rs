//! The records that the two exchange: a header of sixteen octets, and a body.
//!
//! Connections and listeners have numbers that count from zero. A program gives the odd ones to connections that it
//! opens, the instance the even ones to those that come. Listeners are numbered by the program.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uncork_stack::{FastOpenKeys, FastOpenListen, State};

/// Length of a header, in octets.
pub const HEADER_BYTES: usize = 16;

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// A [`Command`] or a [`News`], as a number.
    kind: u8,
    /// Flags; what they mean depends on the kind.
    pub flags: u8,
    /// Number of the connection, or of the listener.
    pub number: u32,
    /// A further number; what it means depends on the kind.
    pub extra: u32,
}

/// Flag of a write that more is to follow (MSG_MORE).
pub const MORE: u8 = 1;
/// Flag of a write that ends a record (MSG_EOR).
pub const END_OF_RECORD: u8 = 2;
/// Flag of a close: the program had octets that it has not read.
pub const UNREAD: u8 = 1;
/// Flag of [`Command::Detach`]: the program's user has already been told that the connection failed.
pub const TOLD: u8 = 1;
/// Flag of the last record of an answer.
pub const LAST: u8 = 1;
/// Flag of a shutdown: reading.
pub const SHUT_READ: u8 = 1;
/// Flag of a shutdown: writing.
pub const SHUT_WRITE: u8 = 2;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// Returns the kind that a header gives; `None` if it is none of these.
            #[must_use]
            pub fn of(header: Header) -> Option<Self> {
                match header.kind {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Commands of the program.
    Command {
        /// Listens at a [`Place`].
        Listen = 1,
        /// Sets an option of the connections that will come to a listener, a `SocketOption` in JSON.
        ListenerOption = 2,
        /// Stops listening: [`News::Left`] follows.
        LeaveListener = 3,
        /// Accepts a connection that has come.
        Accept = 4,
        /// Returns one that is not accepted, as its listener is gone: another program may have it, with all that came on it.
        Return = 5,
        /// Opens a connection between two ends ([`Ends`]).
        Connect = 6,
        /// Octets to be sent; [`MORE`], [`END_OF_RECORD`].
        Send = 7,
        /// Reports that so many octets (`extra`) were read.
        Read = 8,
        /// shutdown(2): [`SHUT_READ`], [`SHUT_WRITE`].
        Shutdown = 9,
        /// close(2) of a program that wants to wait for it (SO_LINGER).
        BeginClose = 10,
        /// close(2); [`UNREAD`]. The number may be used again: by the instance at once, by the program once the instance has
        /// sent [`News::Gone`].
        Close = 11,
        /// Resets a connection.
        Abort = 12,
        /// Sets an option, in JSON.
        Option = 13,
        /// Asks for [`News::Info`]. This question and the following ones have a number of their own (`extra`), which each record
        /// of the answer repeats: a program that has given up may have asked another question by then.
        AskInfo = 14,
        /// Takes a connection away from the stack: asks for [`News::Detached`]; [`TOLD`].
        Detach = 15,
        /// Asks what has come for a detached connection until the kernel had it ([`News::Caught`]). With its [`Ends`],
        /// as its number may be another connection's by now.
        AskCaught = 16,
        /// Sets what a listener does with TCP Fast Open: [`FastOpen`].
        ListenerFastOpen = 17,
        /// Marks what was sent until now as a whole message (`Stack::complete`).
        Complete = 18,
    }
}

kinds! {
    /// News from the instance.
    News {
        /// A connection has come to a listener (`extra`); the body is [`Arrived`].
        Incoming = 1,
        /// The program cannot listen there; the body is the reason, as text.
        Refused = 2,
        /// The state (`extra`) of a connection.
        State = 3,
        /// How many octets may be sent on a connection in total, as eight octets.
        Room = 4,
        /// Octets that have come.
        Data = 5,
        /// No more octets will come.
        End = 6,
        /// The connection has failed: a `ConnectionError` in JSON.
        Failed = 7,
        /// Nothing is left of a connection that the program had opened.
        Gone = 8,
        /// The answer to [`Command::AskInfo`], in JSON, in several records if it is long; [`LAST`].
        Info = 9,
        /// The connection is detached: a `Snapshot` in JSON; empty if it could not be.
        Detached = 10,
        /// The octets of a detached connection, in as many records as it takes; [`LAST`].
        Octets = 11,
        /// A listener has left: after this nothing comes to it, nor on the connections that wait there, which are
        /// given back now.
        Left = 12,
        /// Segments that have come for a detached connection, each after its length ([`put_segment`]), in several
        /// records if they are long; [`LAST`].
        Caught = 13,
    }
}

impl Command {
    /// Makes a header about a connection, or a listener.
    #[must_use]
    pub const fn of_number(self, number: u32) -> Header {
        Header { kind: self as u8, flags: 0, number, extra: 0 }
    }

    /// Tells whether its number is a connection's.
    #[must_use]
    pub const fn is_of_connection(self) -> bool {
        use Command::{AskCaught, LeaveListener, Listen, ListenerFastOpen, ListenerOption};
        !matches!(self, Listen | ListenerOption | ListenerFastOpen | LeaveListener | AskCaught)
    }
}

impl News {
    /// Makes a header about a connection, or a listener.
    #[must_use]
    pub const fn of_number(self, number: u32) -> Header {
        Header { kind: self as u8, flags: 0, number, extra: 0 }
    }
}

impl Header {
    /// Makes a header of any kind: for tests of what becomes of a program that writes something impossible.
    #[must_use]
    pub const fn of_number(kind: u8, number: u32) -> Self {
        Self { kind, flags: 0, number, extra: 0 }
    }

    /// Adds these flags.
    #[must_use]
    pub const fn flagged(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    /// Adds this `extra`.
    #[must_use]
    pub const fn and(self, extra: u32) -> Self {
        Self { extra, ..self }
    }

    pub(crate) fn octets(self, long: u32) -> [u8; HEADER_BYTES] {
        let mut octets = [0; HEADER_BYTES];
        (octets[0], octets[1]) = (self.kind, self.flags);
        octets[4..8].copy_from_slice(&long.to_ne_bytes());
        octets[8..12].copy_from_slice(&self.number.to_ne_bytes());
        octets[12..].copy_from_slice(&self.extra.to_ne_bytes());
        octets
    }

    /// Reads a header, and the length of its body. `None` if it is no header.
    pub(crate) fn of(octets: &[u8; HEADER_BYTES]) -> Option<(Self, u32)> {
        let [kind, flags, 0, 0, rest @ ..] = octets else { return None };
        let (words, _) = rest.as_chunks::<4>();
        let [long, number, extra] = [words[0], words[1], words[2]].map(u32::from_ne_bytes);
        Some((Self { kind: *kind, flags: *flags, number, extra }, long))
    }
}

/// A place to listen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Address and port.
    pub local: SocketAddr,
    /// How many connections may wait to be accepted.
    pub backlog: u32,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
}

/// What a listener does with TCP Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpen {
    /// What its program wants, whatever the host's settings say.
    pub listen: FastOpenListen,
    /// Keys of its cookies.
    pub keys: Option<FastOpenKeys>,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
}

/// A connection that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Its ends.
    #[serde(flatten)]
    pub ends: Ends,
    /// How many octets may be sent on it before [`News::Room`] says more: a program that writes as soon as it has accepted is
    /// not told to wait.
    pub allowed: u64,
}

/// Adds a segment to the body of [`News::Caught`].
pub fn put_segment(all: &mut Vec<u8>, segment: &[u8]) {
    // None is longer than a train, 64 KiB.
    let long = u32::try_from(segment.len()).unwrap_or(0);
    all.extend(long.to_ne_bytes());
    all.extend(&segment[..long as usize]);
}

/// Takes the first segment out of such a body. `None` if there is none.
pub fn next_segment<'a>(all: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (long, rest) = all.split_first_chunk::<4>()?;
    let (segment, rest) = rest.split_at_checked(u32::from_ne_bytes(*long) as usize)?;
    *all = rest;
    Some(segment)
}

/// Returns a state as a number.
#[must_use]
pub fn number_of(state: State) -> u32 {
    let at = State::ALL.iter().position(|other| *other == state);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

/// Returns the state that a number stands for.
#[must_use]
pub fn state_of(number: u32) -> Option<State> {
    State::ALL.get(usize::try_from(number).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_as_they_were_written_and_no_further() {
        let mut all = Vec::new();
        put_segment(&mut all, b"one");
        put_segment(&mut all, b"");
        put_segment(&mut all, b"other");
        let mut rest = &all[..];
        let read: Vec<_> = std::iter::from_fn(|| next_segment(&mut rest)).collect();
        assert_eq!(read, [&b"one"[..], b"", b"other"]);
        let mut cut = &all[..all.len() - 1];
        assert_eq!(std::iter::from_fn(|| next_segment(&mut cut)).count(), 2);
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        let header = Command::Send.of_number(7).flagged(3).and(u32::MAX);
        assert_eq!(Header::of(&header.octets(9)), Some((header, 9)));
        assert_eq!(Command::of(header), Some(Command::Send));
        assert_eq!(News::of(Header { kind: 200, ..header }), None);
    }

    #[test]
    fn states_are_numbered() {
        for state in State::ALL {
            assert_eq!(state_of(number_of(state)), Some(state));
        }
        assert_eq!(state_of(99), None);
    }
}
