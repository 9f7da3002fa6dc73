//! Options of a connection. One that is not here does not exist: none is accepted and ignored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Connection, State};
use crate::config::Algorithm;
use crate::context::Context;

/// When to ask a silent peer whether it is still there (SO_KEEPALIVE and its three settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAlive {
    /// Silence before the first probe (TCP_KEEPIDLE).
    pub idle: Duration,
    /// Time between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Probes without an answer after which the connection is given up (TCP_KEEPCNT).
    pub probes: u8,
}

/// Linux's: two hours, then nine probes 75 seconds apart.
impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// An option to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOption {
    /// Nagle's algorithm is off (TCP_NODELAY). Switching it off sends what it held.
    NoDelay(bool),
    /// Only full segments leave (TCP_CORK), for at most 200 ms. Letting go sends the rest.
    Cork(bool),
    /// Acknowledge at once for a while, or leave it to what is sent the other way (TCP_QUICKACK).
    QuickAck(bool),
    /// Probes for a silent peer, or none (SO_KEEPALIVE).
    KeepAlive(Option<KeepAlive>),
    /// How long sent data may stay unacknowledged before the connection is given up
    /// (TCP_USER_TIMEOUT); none for as long as retransmissions last.
    UserTimeout(Option<Duration>),
    /// Largest segment, in octets, to send and to announce (TCP_MAXSEG).
    MaxSegment(u16),
    /// Send buffer in bytes; it then no longer follows the window (SO_SNDBUF without Linux's doubling).
    SendBuffer(u32),
    /// Receive buffer in bytes; it then no longer follows the reader (SO_RCVBUF, likewise).
    ReceiveBuffer(u32),
    /// There is to be so much room for what comes, whatever it was before, and more if it is used (tcp_set_rcvlowat).
    ReceiveAtLeast(u32),
    /// The user is told that he can write only while fewer bytes than this wait to be sent
    /// (TCP_NOTSENT_LOWAT); with none as the stack has it, with the most that there is always.
    NotSentLowWater(Option<u32>),
    /// How often the SYN is sent again, instead of what the stack has (TCP_SYNCNT).
    SynRetries(u8),
    /// DSCP (IP_TOS, IPV6_TCLASS); the two bits of ECN are the stack's.
    TrafficClass(u8),
    /// The congestion controller (TCP_CONGESTION).
    Congestion(Algorithm),
    /// Seconds for which who closes wants to wait until the peer has everything (SO_LINGER). With none
    /// at all, closing is a reset, and what was not sent is thrown away.
    Linger(Option<u16>),
    /// A connection that comes is its user's when its first data has, or after so many timeouts of the SYN-ACK
    /// (TCP_DEFER_ACCEPT); with none at once. One that is opened leaves its ACK of the SYN-ACK to what the user sends,
    /// for at most 200 ms.
    DeferAccept(u8),
    /// A write waits for a connection that is being opened: the ACK of the SYN-ACK is left to it likewise
    /// (sk_write_pending).
    WriterWaits(bool),
}

/// Options in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) no_delay: bool,
    pub(crate) cork: bool,
    pub(crate) tos: u8,
    pub(crate) most_segment_bytes: Option<u16>,
    pub(crate) linger_seconds: Option<u16>,
    pub(crate) send_buffer_bytes: Option<u32>,
    pub(crate) receive_buffer_bytes: Option<u32>,
    pub(crate) not_sent_low_water: Option<u32>,
    /// Boxed, as most connections have none.
    pub(crate) keep_alive: Option<Box<KeepAlive>>,
    pub(crate) user_timeout: Option<Box<Duration>>,
    pub(crate) syn_retries: Option<u8>,
}

/// Buffers are between these; the lower one lets a segment through (SOCK_MIN_SNDBUF).
const BUFFER_BYTES: (u32, u32) = (4096, 1 << 30);
/// Segments are between these (TCP_MIN_MSS, MAX_TCP_WINDOW).
const SEGMENT_BYTES: (u16, u16) = (88, 32_767);

/// Nobody is asked more often whether he is there (TCP_KEEPIDLE and TCP_KEEPINTVL count in seconds).
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// The receive buffer of a connection that begins with these options, at first and at most, if `bytes` is what one has
/// without.
pub(crate) fn receive_buffer_bytes(options: &[SocketOption], bytes: (u32, u32)) -> (u32, u32) {
    options.iter().fold(bytes, |(first, most), option| match *option {
        SocketOption::ReceiveBuffer(bytes) => {
            let bytes = bytes.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
            (bytes, bytes)
        }
        SocketOption::ReceiveAtLeast(bytes) => (first.max(bytes.min(BUFFER_BYTES.1)), most),
        _ => (first, most),
    })
}

impl Options {
    /// How long sent data may stay unacknowledged.
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        self.user_timeout.as_deref().copied()
    }
}

impl Connection {
    /// Sets an option. Values out of range are taken to its end, as Linux does for buffers.
    pub(crate) fn set_option(&mut self, cx: &mut Context, option: SocketOption) {
        let options = &mut self.options;
        match option {
            SocketOption::NoDelay(on) => {
                options.no_delay = on;
                if on {
                    // Linux pushes what waits, through a cork too (tcp(7)).
                    self.sender.hurry();
                }
            }
            SocketOption::Cork(on) => {
                options.cork = on;
                if !on {
                    self.sender.more = false;
                    if options.no_delay {
                        self.sender.hurry();
                    }
                }
            }
            SocketOption::QuickAck(on) => {
                let drained = self.receiver.readable_bytes() == 0;
                let unacknowledged =
                    (self.receiver.nxt - self.receiver.acknowledged).unsigned_abs();
                self.ack.set_quick(on, unacknowledged, drained);
            }
            SocketOption::KeepAlive(keep_alive) => {
                options.keep_alive = keep_alive.map(|asked| {
                    Box::new(KeepAlive {
                        idle: asked.idle.max(LEAST_SILENCE),
                        interval: asked.interval.max(LEAST_SILENCE),
                        ..asked
                    })
                });
                self.arm_idle_timer(cx);
            }
            SocketOption::UserTimeout(timeout) => options.user_timeout = timeout.map(Box::new),
            SocketOption::MaxSegment(bytes) => {
                options.most_segment_bytes = Some(bytes.clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1));
                self.resize_segment();
                // What is in flight was counted in segments of another size.
                let mss = self.segment_bytes();
                self.sender.flight.resegment(mss);
            }
            SocketOption::SendBuffer(bytes) => {
                options.send_buffer_bytes = Some(bytes.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1));
            }
            SocketOption::ReceiveBuffer(bytes) => {
                let bytes = bytes.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
                options.receive_buffer_bytes = Some(bytes);
                self.receiver.limit = bytes;
            }
            SocketOption::ReceiveAtLeast(bytes) => {
                self.receiver.limit = self.receiver.limit.max(bytes.min(BUFFER_BYTES.1));
            }
            SocketOption::NotSentLowWater(bytes) => {
                let bytes = bytes.or(cx.config.not_sent_low_water);
                options.not_sent_low_water = bytes.filter(|&bytes| bytes != u32::MAX);
            }
            SocketOption::SynRetries(retries) => options.syn_retries = Some(retries),
            SocketOption::TrafficClass(class) => options.tos = class & !3,
            SocketOption::DeferAccept(timeouts) => self.deferral.set(timeouts),
            SocketOption::WriterWaits(waits) => self.deferral.note_writer(waits),
            SocketOption::Linger(seconds) => options.linger_seconds = seconds,
            SocketOption::Congestion(algorithm) => self.congestion.set_algorithm(algorithm),
        }
    }

    /// Whether its options still count.
    pub(crate) fn takes_options(&self) -> bool {
        self.state != State::TimeWait
    }
}
