//! The states of a connection and their transitions (RFC 9293 §3.3.2, figure 5).

use serde::{Deserialize, Serialize};

/// A state of a connection (RFC 9293 §3.3.2). LISTEN is not among them: a listener is not
/// a connection, and a connection begins when a SYN has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// There is no connection, or it is over.
    Closed,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Data may flow in both directions.
    Established,
    /// This side has closed; the peer has neither acknowledged that nor closed.
    FinWait1,
    /// This side has closed and that is acknowledged; the peer may still send.
    FinWait2,
    /// The peer has closed; this side may still send.
    CloseWait,
    /// Both have closed at the same time; this side's FIN is not acknowledged.
    Closing,
    /// The peer has closed, then this side; this side's FIN is not acknowledged.
    LastAck,
    /// Both have closed; old segments may still be in the network.
    TimeWait,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Self::Closed,
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
    ];

    /// Returns whether the state is synchronised: both SYNs have been acknowledged.
    #[must_use]
    pub fn is_synchronised(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent | Self::SynReceived)
    }

    /// Returns whether the peer's SYN has come, so that there is something to acknowledge.
    #[must_use]
    pub fn has_peer(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent)
    }

    /// Returns whether data from the peer is accepted (RFC 9293 §3.10.7.4, seventh step).
    #[must_use]
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Returns whether the user may queue data. In SYN-SENT and SYN-RECEIVED it waits for the handshake
    /// (RFC 9293 §3.10.2).
    #[must_use]
    pub fn may_send(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Returns whether the peer's FIN was received, and our own FIN is not acknowledged.
    #[must_use]
    pub fn peer_has_ended(self) -> bool {
        matches!(self, Self::CloseWait | Self::Closing | Self::LastAck)
    }

    /// Returns whether this side may have data or a FIN in flight.
    #[must_use]
    pub fn transmits_data(self) -> bool {
        matches!(
            self,
            Self::Established | Self::FinWait1 | Self::CloseWait | Self::Closing | Self::LastAck
        )
    }

    /// Returns the state after `cause`, or none if there is no such transition.
    #[must_use]
    pub fn after(self, cause: Cause) -> Option<Self> {
        use Cause::{
            Abort, ActiveOpen, Close, FinAcknowledged, FinReceived, GiveUp, PassiveOpen,
            ResetReceived, SynAcknowledged, SynReceived as SynCame, TimeWaitOver,
        };
        Some(match (self, cause) {
            (Self::Closed, ActiveOpen) => Self::SynSent,
            (Self::Closed, PassiveOpen) => Self::SynReceived,
            // Simultaneous open (§3.5, figure 7).
            (Self::SynSent, SynCame) => Self::SynReceived,
            (Self::SynSent | Self::SynReceived, SynAcknowledged) => Self::Established,
            (Self::SynSent, Close) => Self::Closed,
            // In SYN-RECEIVED it is queued until the connection is established (§3.10.4).
            (Self::Established, Close) => Self::FinWait1,
            (Self::CloseWait, Close) => Self::LastAck,
            // A segment with FIN has an ACK, so that SYN-RECEIVED is left before the FIN is processed.
            (Self::Established, FinReceived) => Self::CloseWait,
            // Simultaneous close (§3.6, figure 13).
            (Self::FinWait1, FinReceived) => Self::Closing,
            (Self::FinWait2, FinReceived) | (Self::Closing, FinAcknowledged) => Self::TimeWait,
            (Self::FinWait1, FinAcknowledged) => Self::FinWait2,
            (Self::LastAck, FinAcknowledged) | (Self::TimeWait, TimeWaitOver) => Self::Closed,
            (Self::Closed, _) | (Self::TimeWait, GiveUp) => return None,
            (_, ResetReceived | Abort | GiveUp) => Self::Closed,
            _ => return None,
        })
    }
}

/// A cause of a state transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The user opens a connection: a SYN is sent.
    ActiveOpen,
    /// A SYN came to a listener: it is answered.
    PassiveOpen,
    /// A SYN without ACK came after this side has sent one.
    SynReceived,
    /// Our SYN was acknowledged, and the peer's has come.
    SynAcknowledged,
    /// The user has nothing more to send: a FIN is queued.
    Close,
    /// A FIN came, and all data before it.
    FinReceived,
    /// Our FIN was acknowledged.
    FinAcknowledged,
    /// An acceptable reset came.
    ResetReceived,
    /// The user aborts the connection: a reset is sent.
    Abort,
    /// The peer has not answered for too long.
    GiveUp,
    /// Twice the maximum segment lifetime has passed.
    TimeWaitOver,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 11] = [
        Self::ActiveOpen,
        Self::PassiveOpen,
        Self::SynReceived,
        Self::SynAcknowledged,
        Self::Close,
        Self::FinReceived,
        Self::FinAcknowledged,
        Self::ResetReceived,
        Self::Abort,
        Self::GiveUp,
        Self::TimeWaitOver,
    ];
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::{Cause, State};

    /// The snapshot has every transition, so that there is no other.
    #[test]
    fn the_transitions_are_these() {
        let mut table = String::new();
        for state in State::ALL {
            for cause in Cause::ALL {
                if let Some(next) = state.after(cause) {
                    writeln!(table, "{state:?} --{cause:?}--> {next:?}").unwrap();
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_state_can_be_reached_and_left() {
        let mut reached = vec![State::Closed];
        let mut next = 0;
        while let Some(&state) = reached.get(next) {
            let after: Vec<_> = Cause::ALL.iter().filter_map(|&cause| state.after(cause)).collect();
            assert!(!after.is_empty(), "{state:?} is a dead end");
            reached.extend(
                after.into_iter().filter(|state| !reached.contains(state)).collect::<Vec<_>>(),
            );
            reached.dedup();
            next += 1;
        }
        assert!(State::ALL.iter().all(|state| reached.contains(state)));
    }
}
