//! A scripted connection, as a capture at the client's end would see it.

use std::time::Duration;

use uncork_wire::tcp::Flags;
use uncork_wire::{Endpoint, Segment, SeqNumber};

use crate::Role::{self, Client, Server};
use crate::{Doctor, Finding, Kind, Report, Settings, Severity};

pub(super) const MSS: u32 = 1448;

pub(super) fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A connection over a path with its own round-trip time. Time passes only when told.
pub(super) struct Trace {
    doctor: Doctor,
    rtt: Duration,
    pub(super) now: Duration,
    /// How far the capturing machine's clock is ahead, and how far behind.
    pub(super) ahead: Duration,
    pub(super) behind: Duration,
    /// Next sequence number of the client and of the server.
    nxt: [SeqNumber; 2],
    window: [u16; 2],
    /// Timestamp that each end will echo.
    echo: [u32; 2],
}

impl Trace {
    pub(super) fn new(rtt: Duration) -> Self {
        let mut trace = Self::in_the_middle(rtt);
        trace.open();
        trace
    }

    /// Creates a connection whose beginning is not seen.
    pub(super) fn in_the_middle(rtt: Duration) -> Self {
        Self {
            doctor: Doctor::new(Settings { every_connection: true, ..Settings::default() }),
            rtt,
            now: Duration::from_secs(1_700_000_000),
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            nxt: [SeqNumber(u32::MAX - 300), SeqNumber(77)],
            window: [500, 500],
            echo: [0, 0],
        }
    }

    /// Plays the handshake.
    pub(super) fn open(&mut self) -> &mut Self {
        self.raw(Client, Flags::SYN, 0);
        self.nxt[0] += 1;
        self.now += self.rtt;
        self.raw(Server, Flags(Flags::SYN.0 | Flags::ACK.0), 0);
        self.nxt[1] += 1;
        self.after(us(20)).ack(Client)
    }

    /// Plays a handshake whose first SYN is lost.
    pub(super) fn open_late(&mut self, timeout: Duration) -> &mut Self {
        self.raw(Client, Flags::SYN, 0);
        self.now += timeout;
        self.open()
    }

    /// Plays a FIN: the end of a direction.
    pub(super) fn fin(&mut self, from: Role) -> &mut Self {
        self.raw(from, Flags(Flags::ACK.0 | Flags::FIN.0), 0);
        self.nxt[from as usize] += 1;
        self
    }

    pub(super) fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    pub(super) fn rtt_later(&mut self) -> &mut Self {
        self.now += self.rtt;
        self
    }

    fn endpoint(role: Role) -> Endpoint {
        match role {
            Client => Endpoint { address: [10, 0, 0, 1].into(), port: 40000 },
            Server => Endpoint { address: [10, 0, 0, 2].into(), port: 80 },
        }
    }

    fn raw(&mut self, from: Role, flags: Flags, payload_bytes: u32) {
        let seq = self.nxt[from as usize];
        self.raw_at(from, flags, payload_bytes, seq);
    }

    fn raw_at(&mut self, from: Role, flags: Flags, payload_bytes: u32, seq: SeqNumber) {
        let syn = flags.has(Flags::SYN);
        let clock = u32::try_from(self.now.as_millis() % (1 << 32)).unwrap();
        let segment = Segment {
            source: Self::endpoint(from),
            destination: Self::endpoint(from.other()),
            seq,
            ack: flags.has(Flags::ACK).then_some(self.nxt[from.other() as usize]),
            flags,
            window: self.window[from as usize],
            payload_bytes,
            mss: syn.then_some(1460),
            window_scale: syn.then_some(7),
            timestamps: Some((clock, self.echo[from as usize])),
            sack: None,
            sack_permitted: syn,
            congestion_experienced: false,
            option_lies: false,
        };
        self.doctor.segment(self.now + self.ahead - self.behind, &segment);
        if payload_bytes > 0 {
            self.echo[from.other() as usize] = clock;
        }
    }

    pub(super) fn data(&mut self, from: Role, bytes: u32) -> &mut Self {
        self.raw(from, Flags(Flags::ACK.0 | Flags::PSH.0), bytes);
        self.nxt[from as usize] += bytes;
        self
    }

    /// Plays data without PSH, the flag that ends a write.
    pub(super) fn more(&mut self, from: Role, bytes: u32) -> &mut Self {
        self.raw(from, Flags::ACK, bytes);
        self.nxt[from as usize] += bytes;
        self
    }

    /// Plays data that may end its direction.
    pub(super) fn last(&mut self, from: Role, bytes: u32, fin: bool) -> &mut Self {
        let fin = if fin { Flags::FIN.0 } else { 0 };
        self.raw(from, Flags(Flags::ACK.0 | Flags::PSH.0 | fin), bytes);
        self.nxt[from as usize] += bytes + u32::from(fin != 0);
        self
    }

    /// Retransmits the last `bytes` octets.
    pub(super) fn again(&mut self, from: Role, bytes: u32) -> &mut Self {
        let seq = self.nxt[from as usize] - bytes;
        self.raw_at(from, Flags(Flags::ACK.0 | Flags::PSH.0), bytes, seq);
        self
    }

    /// Retransmits `bytes` octets that were sent `back` octets ago.
    pub(super) fn again_from(&mut self, from: Role, back: u32, bytes: u32) -> &mut Self {
        let seq = self.nxt[from as usize] - back;
        self.raw_at(from, Flags(Flags::ACK.0 | Flags::PSH.0), bytes, seq);
        self
    }

    /// Retransmits octets with the timestamp of that moment on their sender's clock.
    pub(super) fn again_sent_at(
        &mut self,
        from: Role,
        back: u32,
        bytes: u32,
        sent: Duration,
    ) -> &mut Self {
        let late = self.now.saturating_sub(sent);
        self.now -= late;
        self.ahead += late;
        self.again_from(from, back, bytes);
        self.ahead = self.ahead.saturating_sub(late);
        self.now += late;
        self
    }

    /// Retransmits the last `bytes` octets and the FIN after them.
    pub(super) fn again_with_fin(&mut self, from: Role, bytes: u32) -> &mut Self {
        let seq = self.nxt[from as usize] - (bytes + 1);
        self.raw_at(from, Flags(Flags::ACK.0 | Flags::FIN.0), bytes, seq);
        self
    }

    pub(super) fn ack(&mut self, from: Role) -> &mut Self {
        self.raw(from, Flags::ACK, 0);
        self
    }

    /// Sends data that the capture lacks.
    pub(super) fn unseen(&mut self, from: Role, bytes: u32) -> &mut Self {
        self.nxt[from as usize] += bytes;
        self
    }

    /// Returns the timestamp that an end will echo.
    pub(super) fn echo_of(&self, role: Role) -> u32 {
        self.echo[role as usize]
    }

    /// Sets the timestamp that an end echoes: it cannot echo what it has not received yet.
    pub(super) fn set_echo(&mut self, role: Role, clock: u32) -> &mut Self {
        self.echo[role as usize] = clock;
        self
    }

    pub(super) fn window(&mut self, from: Role, window: u16) -> &mut Self {
        self.window[from as usize] = window;
        self.ack(from)
    }

    /// Plays an ACK of all but the last `bytes` octets that the other end has sent.
    pub(super) fn ack_behind(&mut self, from: Role, bytes: u32) -> &mut Self {
        let to = from.other() as usize;
        let nxt = self.nxt[to];
        self.nxt[to] = nxt - bytes;
        self.ack(from);
        self.nxt[to] = nxt;
        self
    }

    /// Plays an ACK of `bytes` more than the other end was seen to send.
    pub(super) fn ack_ahead(&mut self, from: Role, bytes: u32) -> &mut Self {
        self.nxt[from.other() as usize] += bytes;
        self.ack(from);
        self.nxt[from.other() as usize] = self.nxt[from.other() as usize] - bytes;
        self
    }

    pub(super) fn report(self) -> Report {
        self.doctor.finish()
    }

    /// Returns the findings that are not harmless.
    pub(super) fn findings(self) -> Vec<Finding> {
        let mut report = self.report();
        assert_eq!(report.connections.len(), 1);
        let mut findings = report.connections.remove(0).findings;
        findings.retain(|finding| finding.severity > Severity::Harmless);
        findings
    }

    pub(super) fn only(self, kind: Kind) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(findings[0].kind, kind, "{findings:#?}");
        findings.remove(0)
    }
}
