//! What the two say to each other. A record is a header of sixteen octets and what belongs to it.
//!
//! Connections and listeners have numbers that count from zero. A program gives the odd ones to connections that it
//! opens, the instance the even ones to those that come. Listeners are the program's.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uncork_stack::{FastOpenKeys, FastOpenListen, State};

/// Octets of a header.
pub const HEADER_BYTES: usize = 16;

/// The beginning of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// A [`Command`] or a [`News`], as a number.
    kind: u8,
    /// By kind.
    pub flags: u8,
    /// The connection, or the listener.
    pub number: u32,
    /// By kind.
    pub extra: u32,
}

/// A write of which more is to come (MSG_MORE).
pub const MORE: u8 = 1;
/// A write that ends a record (MSG_EOR).
pub const END_OF_RECORD: u8 = 2;
/// What the program has was not read when it closed.
pub const UNREAD: u8 = 1;
/// That it has failed was told to the program's user already.
pub const TOLD: u8 = 1;
/// There is no more of an answer.
pub const LAST: u8 = 1;
/// Directions of a shutdown.
pub const SHUT_READ: u8 = 1;
/// See above.
pub const SHUT_WRITE: u8 = 2;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// What a header says; none if it is none of these.
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
    /// From the program.
    Command {
        /// It listens at a [`Place`].
        Listen = 1,
        /// An option of a listener's connections to come, a `SocketOption` in JSON.
        ListenerOption = 2,
        /// It listens no more: [`News::Left`] follows.
        LeaveListener = 3,
        /// A connection that has come is accepted.
        Accept = 4,
        /// It is not, as its listener is gone: somebody else may have it, with all that was told of it.
        Return = 5,
        /// A connection is to be opened between two [`Ends`].
        Connect = 6,
        /// Octets to be sent; [`MORE`], [`END_OF_RECORD`].
        Send = 7,
        /// So many octets (`extra`) were read.
        Read = 8,
        /// shutdown(2): [`SHUT_READ`], [`SHUT_WRITE`].
        Shutdown = 9,
        /// close(2) of who wants to wait for it (SO_LINGER).
        BeginClose = 10,
        /// close(2); [`UNREAD`]. The number is the instance's again, or the program's when that has said
        /// [`News::Gone`].
        Close = 11,
        /// It is to be reset.
        Abort = 12,
        /// An option, in JSON.
        Option = 13,
        /// [`News::Info`] is wanted. This question, and those that follow, have a number of their own (`extra`), which is that of
        /// each record of the answer, too: who has lost his patience may have another question by then.
        AskInfo = 14,
        /// The connection is to be given away: [`News::Detached`] is wanted; [`TOLD`].
        Detach = 15,
        /// It has been, and the kernel has it now: what has come between is wanted ([`News::Caught`]). With its [`Ends`], as
        /// the number may be another one's by now.
        AskCaught = 16,
        /// What a listener does with TCP Fast Open: [`FastOpen`].
        ListenerFastOpen = 17,
        /// What was sent until now is a whole message (`Stack::complete`).
        Complete = 18,
    }
}

kinds! {
    /// From the instance.
    News {
        /// A connection has come to a listener (`extra`): what has [`Arrived`].
        Incoming = 1,
        /// It cannot listen there, and why, as text.
        Refused = 2,
        /// A connection's state (`extra`).
        State = 3,
        /// How many octets may ever be sent on it, as eight octets.
        Room = 4,
        /// Octets that have come.
        Data = 5,
        /// There are no more.
        End = 6,
        /// It has failed, a `ConnectionError` in JSON.
        Failed = 7,
        /// Nothing is left of one that the program had opened.
        Gone = 8,
        /// What was asked for, in JSON, in several records if it is long; [`LAST`].
        Info = 9,
        /// The connection was given away: a `Snapshot` in JSON; nothing if it could not be.
        Detached = 10,
        /// Its octets, in as many records as it takes; [`LAST`].
        Octets = 11,
        /// A listener has left: behind this nothing comes to it, nor on the connections that wait there, which are
        /// given back now.
        Left = 12,
        /// Segments that have come for a connection that was given away, each behind its length ([`put_segment`]), in several
        /// records if they are long; [`LAST`].
        Caught = 13,
    }
}

impl Command {
    /// About a connection, or a listener.
    #[must_use]
    pub const fn of_number(self, number: u32) -> Header {
        Header { kind: self as u8, flags: 0, number, extra: 0 }
    }

    /// Whether its number is a connection's.
    #[must_use]
    pub const fn is_of_connection(self) -> bool {
        use Command::{AskCaught, LeaveListener, Listen, ListenerFastOpen, ListenerOption};
        !matches!(self, Listen | ListenerOption | ListenerFastOpen | LeaveListener | AskCaught)
    }
}

impl News {
    /// About a connection, or a listener.
    #[must_use]
    pub const fn of_number(self, number: u32) -> Header {
        Header { kind: self as u8, flags: 0, number, extra: 0 }
    }
}

impl Header {
    /// Of any kind: for who writes what cannot be, to see what becomes of it.
    #[must_use]
    pub const fn of_number(kind: u8, number: u32) -> Self {
        Self { kind, flags: 0, number, extra: 0 }
    }

    /// With these flags.
    #[must_use]
    pub const fn flagged(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    /// With that.
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

    /// And how many octets belong to it. None for what is none.
    pub(crate) fn of(octets: &[u8; HEADER_BYTES]) -> Option<(Self, u32)> {
        let [kind, flags, 0, 0, rest @ ..] = octets else { return None };
        let (words, _) = rest.as_chunks::<4>();
        let [long, number, extra] = [words[0], words[1], words[2]].map(u32::from_ne_bytes);
        Some((Self { kind: *kind, flags: *flags, number, extra }, long))
    }
}

/// Where somebody listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Address and port.
    pub local: SocketAddr,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
}

/// What a listener does with TCP Fast Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpen {
    /// As its program wants it, whatever the host's settings say.
    pub listen: FastOpenListen,
    /// Keys of its cookies.
    pub keys: Option<FastOpenKeys>,
}

/// Between which a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// This one.
    pub local: SocketAddr,
    /// The other one.
    pub remote: SocketAddr,
}

/// A connection that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Between which it is.
    #[serde(flatten)]
    pub ends: Ends,
    /// Octets that may be sent on it before [`News::Room`] says more: who writes as soon as he has accepted it is not
    /// told to wait.
    pub allowed: u64,
}

/// Adds a segment to what [`News::Caught`] says.
pub fn put_segment(all: &mut Vec<u8>, segment: &[u8]) {
    // None is longer than a train, 64 KiB.
    let long = u32::try_from(segment.len()).unwrap_or(0);
    all.extend(long.to_ne_bytes());
    all.extend(&segment[..long as usize]);
}

/// Takes the first of them. None if there is none.
pub fn next_segment<'a>(all: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (long, rest) = all.split_first_chunk::<4>()?;
    let (segment, rest) = rest.split_at_checked(u32::from_ne_bytes(*long) as usize)?;
    *all = rest;
    Some(segment)
}

/// A state as a number.
#[must_use]
pub fn number_of(state: State) -> u32 {
    let at = State::ALL.iter().position(|other| *other == state);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

/// A number as a state.
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
