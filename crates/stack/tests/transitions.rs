//! Every transition of the state table, taken by a real connection: each that the table has must be
//! reached here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::net::SocketAddr;
use std::time::Duration;

use uncork_stack::{Cause, Config, Shutdown, SocketId, SocketOption, State};

use crate::common::{Lab, PEER, PEER_PORT};

/// A connection in a state, with the next sequence numbers of the peer and of ours.
struct At {
    lab: Lab,
    socket: SocketId,
    peer: u32,
    ours: u32,
}

impl At {
    fn begin() -> Self {
        let mut lab = Lab::new(Config::default());
        let remote = SocketAddr::new(PEER.parse().unwrap(), PEER_PORT);
        let socket = lab.stack.connect(lab.now, None, remote).unwrap();
        lab.take();
        Self { lab, socket, peer: 0, ours: 1 }
    }

    fn reach(state: State) -> Self {
        let way: &[Cause] = match state {
            State::Closed => panic!("no connection is there"),
            State::SynSent => &[],
            State::SynReceived => &[Cause::SynReceived],
            State::Established => &[Cause::SynAcknowledged],
            State::FinWait1 => &[Cause::SynAcknowledged, Cause::Close],
            State::FinWait2 => &[Cause::SynAcknowledged, Cause::Close, Cause::FinAcknowledged],
            State::CloseWait => &[Cause::SynAcknowledged, Cause::FinReceived],
            State::Closing => &[Cause::SynAcknowledged, Cause::Close, Cause::FinReceived],
            State::LastAck => &[Cause::SynAcknowledged, Cause::FinReceived, Cause::Close],
            State::TimeWait => {
                &[Cause::SynAcknowledged, Cause::Close, Cause::FinAcknowledged, Cause::FinReceived]
            }
        };
        let mut at = Self::begin();
        for &cause in way {
            at.happen(cause);
        }
        assert_eq!(at.state(), state);
        at
    }

    fn state(&mut self) -> State {
        self.lab.state(self.socket)
    }

    fn say(&mut self, flags: &str) {
        let Self { peer, ours, .. } = *self;
        self.lab.send(&format!("{flags} {peer}:{peer}(0) ack {ours} win 5000"));
        self.lab.take();
    }

    /// Makes the event happen to the connection.
    fn happen(&mut self, cause: Cause) {
        let now = self.lab.now;
        let state = self.state();
        match cause {
            Cause::ActiveOpen | Cause::PassiveOpen => panic!("it is open"),
            Cause::SynReceived => {
                self.lab.send("S 0:0(0) win 5000 <mss 1000>");
                self.lab.take();
                self.peer = 1;
            }
            Cause::SynAcknowledged if state == State::SynSent => {
                self.lab.send("S. 0:0(0) ack 1 win 5000 <mss 1000>");
                self.lab.take();
                self.peer = 1;
            }
            Cause::SynAcknowledged => self.say("."),
            Cause::Close => {
                self.lab.stack.shutdown(now, self.socket, Shutdown::Write);
                self.lab.take();
            }
            Cause::FinReceived => {
                self.say("F.");
                self.peer += 1;
            }
            Cause::FinAcknowledged => {
                self.ours += 1;
                self.say(".");
            }
            Cause::ResetReceived => self.say("R."),
            Cause::Abort => self.lab.stack.abort(now, self.socket),
            Cause::GiveUp => self.go_silent(),
            Cause::TimeWaitOver => self.lab.wait_for(Duration::from_secs(61)),
        }
    }

    /// Silences the peer: outstanding data or a keepalive times out.
    fn go_silent(&mut self) {
        let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(1));
        let keep_alive = uncork_stack::KeepAlive { idle, interval, probes: 2 };
        let now = self.lab.now;
        self.lab.stack.set_option(now, self.socket, SocketOption::KeepAlive(Some(keep_alive)));
        while !self.lab.until_something().1.is_empty() {}
    }
}

#[test]
fn every_transition_is_taken_by_a_real_connection() {
    let mut taken = 0;
    for state in State::ALL {
        for cause in Cause::ALL {
            let Some(next) = state.after(cause) else { continue };
            taken += 1;
            if state == State::Closed {
                open(cause, next);
                continue;
            }
            let mut at = At::reach(state);
            at.happen(cause);
            assert_eq!(at.state(), next, "{state:?}, {cause:?}");
        }
    }
    assert_eq!(taken, 41);
}

fn open(cause: Cause, next: State) {
    if cause == Cause::ActiveOpen {
        assert_eq!(At::begin().state(), next);
        return;
    }
    let mut lab = Lab::new(Config::default());
    lab.listen();
    lab.send("S 0:0(0) win 5000");
    let socket = lab.stack.sockets().next().unwrap();
    assert_eq!(lab.state(socket), next);
}

/// A cause without a transition changes nothing that the user can see.
#[test]
fn what_leads_nowhere_leads_nowhere() {
    for state in State::ALL.into_iter().skip(1) {
        for cause in [Cause::Close, Cause::FinReceived] {
            // In SYN-RECEIVED a close waits for the handshake, and a FIN ends that first.
            if state.after(cause).is_some() || state == State::SynReceived {
                continue;
            }
            let mut at = At::reach(state);
            at.happen(cause);
            assert_eq!(at.state(), state, "{state:?}, {cause:?}");
        }
    }
}
