//! Options of a connection. Options that are not here do not exist: none is accepted and ignored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Connection, State};
use crate::config::Algorithm;
use crate::context::Context;

/// Keepalive settings (SO_KEEPALIVE and its three parameters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAlive {
    /// Silence before the first probe (TCP_KEEPIDLE).
    pub idle: Duration,
    /// Time between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Unanswered probes after which the connection is given up (TCP_KEEPCNT).
    pub probes: u8,
}

/// Linux's defaults: two hours, then nine probes 75 seconds apart.
impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// An option to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOption {
    /// Nagle's algorithm is off (TCP_NODELAY). Setting this sends what Nagle's algorithm held.
    NoDelay(bool),
    /// Only full segments leave (TCP_CORK), for at most 200 ms. Clearing this sends the rest.
    Cork(bool),
    /// Acknowledge at once for a while, or leave the ACK to data in the other direction (TCP_QUICKACK).
    QuickAck(bool),
    /// Keepalive probes, or none (SO_KEEPALIVE).
    KeepAlive(Option<KeepAlive>),
    /// How long sent data may stay unacknowledged before the connection is given up
    /// (TCP_USER_TIMEOUT); with none, the number of retransmissions decides.
    UserTimeout(Option<Duration>),
    /// Largest segment to send and to announce, in octets (TCP_MAXSEG).
    MaxSegment(u16),
    /// Send buffer in bytes; it then no longer follows the window (SO_SNDBUF without Linux's doubling).
    SendBuffer(u32),
    /// Receive buffer in bytes; it then no longer follows the reader (SO_RCVBUF, likewise).
    ReceiveBuffer(u32),
    /// Least size of the receive buffer, whatever it was before; it grows further if it is used (tcp_set_rcvlowat).
    ReceiveAtLeast(u32),
    /// The user is told that it can write only while fewer bytes than this are unsent
    /// (TCP_NOTSENT_LOWAT); none means the stack's default, and the largest number no limit.
    NotSentLowWater(Option<u32>),
    /// How often the SYN is retransmitted, instead of the stack's setting (TCP_SYNCNT).
    SynRetries(u8),
    /// DSCP (IP_TOS, IPV6_TCLASS); the two ECN bits are the stack's.
    TrafficClass(u8),
    /// The congestion controller (TCP_CONGESTION).
    Congestion(Algorithm),
    /// Seconds for which a close waits until the peer has acknowledged everything (SO_LINGER). With zero, closing resets
    /// the connection and drops unsent data.
    Linger(Option<u16>),
    /// A passive connection is given to its user when its first data has come, or after this many timeouts of the SYN-ACK
    /// (TCP_DEFER_ACCEPT); with zero at once. An active one leaves its ACK of the SYN-ACK to the user's first data,
    /// for at most 200 ms.
    DeferAccept(u8),
    /// A write waits for a connection that is being opened: the ACK of the SYN-ACK is left to its data likewise
    /// (sk_write_pending).
    WriterWaits(bool),
}

/// The options in force.
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

/// Bounds of buffers; the lower one lets a segment through (SOCK_MIN_SNDBUF).
const BUFFER_BYTES: (u32, u32) = (4096, 1 << 30);
/// Bounds of the segment size (TCP_MIN_MSS, MAX_TCP_WINDOW).
const SEGMENT_BYTES: (u16, u16) = (88, 32_767);

/// Least keepalive time and interval (TCP_KEEPIDLE and TCP_KEEPINTVL count in seconds).
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// Returns the initial and largest receive buffer of a connection with these options, where `bytes` is the default
/// of both.
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
    /// Returns how long sent data may stay unacknowledged.
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        self.user_timeout.as_deref().copied()
    }
}

impl Connection {
    /// Sets an option. Values out of range are clamped, as Linux does for buffers.
    pub(crate) fn set_option(&mut self, cx: &mut Context, option: SocketOption) {
        let options = &mut self.options;
        match option {
            SocketOption::NoDelay(on) => {
                options.no_delay = on;
                if on {
                    // Linux pushes what is held, even by a cork (tcp(7)).
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
                // Segments in flight were counted with another size.
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

    /// Returns whether options can still be set.
    pub(crate) fn takes_options(&self) -> bool {
        self.state != State::TimeWait
    }
}
