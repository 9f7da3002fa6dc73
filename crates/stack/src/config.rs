//! What can be set for a stack as a whole. Defaults are Linux's where Linux has the setting.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fast_open::FastOpen;

/// Which congestion controller connections begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Algorithm {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
}

/// How quick-ACK credits are spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuickAckCounting {
    /// One for an ACK that acknowledges new data, as Linux does since commit 059217c18be6 (6.8).
    #[default]
    AcksOfNewData,
    /// One for every segment that is sent and has an ACK in it, as Linux did before: a server that
    /// answers in several segments ran out of credits it had never used.
    EverySegmentSent,
}

/// Explicit congestion notification (RFC 3168) of connections that begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Neither asked for nor granted (tcp_ecn 0).
    Refused,
    /// Granted to a peer that asks (tcp_ecn 2).
    #[default]
    Granted,
    /// Granted, and asked for by a SYN (tcp_ecn 1).
    Asked,
}

/// Settings of a stack.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether the stack's addresses are those of the host's kernel, which goes on with all that is not
    /// the stack's: it answers ARP, neighbour discovery and pings, and resets what nobody has. The stack
    /// then does none of that, and asks who drives it for neighbours
    /// ([`Event::Neighbour`](crate::Event)), because the way to them is what the kernel's tables say.
    pub shares_addresses: bool,
    /// Congestion control of new connections.
    pub congestion: Algorithm,
    /// Segments that may be sent at first (RFC 6928).
    pub initial_window_segments: u32,
    /// Most bytes of one connection that may sit in the device queue (tcp_limit_output_bytes before
    /// Linux raised it). Two segments always may; a train is at most half of it.
    pub small_queue_bytes: u32,
    /// Whether a write below one segment waits for the completion of earlier bytes
    /// (tcp_autocorking).
    pub autocork: bool,
    /// Whether segments leave at the congestion controller's rate rather than as fast as they can.
    pub pacing: bool,
    /// Whether segments that follow each other are joined on their way in (what ethtool calls
    /// generic-receive-offload).
    pub join_segments: bool,
    /// How quick-ACK credits are spent.
    pub quick_ack_counting: QuickAckCounting,
    /// Quick-ACK credits of a new connection, at most (TCP_MAX_QUICKACKS).
    pub quick_acks: u8,
    /// How long an ACK that only haste wants, a quick one of a lone segment or that of a FIN, waits for the user, whose
    /// answer carries it. For users who look at what has come behind the turn in which it came; with zero it
    /// leaves in that turn.
    pub answer_patience: Duration,
    /// Whether who reads hands it on to the user: that something was read does not say then that the user has seen it.
    pub hands_on: bool,
    /// Send buffer at first and at most, in bytes, unless the user sets it (tcp_wmem).
    pub send_buffer_bytes: (u32, u32),
    /// Receive buffer, and so the window, at first and at most, in bytes (tcp_rmem).
    pub receive_buffer_bytes: (u32, u32),
    /// Bytes of datagrams that a UDP socket keeps for its reader (rmem_default).
    pub udp_receive_bytes: u32,
    /// Bytes of datagrams that may wait to be sent from one (wmem_default).
    pub udp_send_bytes: u32,
    /// Bytes in the send and receive buffers of all connections together: from the first number on no buffer grows by itself
    /// any more, and from the second on each takes no more than 4 KiB, what comes beyond is dropped, and closed connections
    /// that hold more are reset (the second and third of tcp_mem; Linux counts what is around the bytes, too). Each connection
    /// is bounded by itself, so that this is about many.
    pub memory_bytes: (usize, usize),
    /// Connections that their users have closed and that are not over: one that would be more is reset when it is closed
    /// (tcp_max_orphans).
    pub most_orphans: u32,
    /// Connections in TIME-WAIT: one that would be more is over as soon as its last ACK has had time to leave
    /// (tcp_max_tw_buckets).
    pub most_time_waits: u32,
    /// Bytes of storage that are kept for the next connection that needs some.
    pub kept_storage_bytes: usize,
    /// Whether segments of a conversation in which nothing is amiss take a short way in (header prediction) and
    /// out. To be switched off to see that nobody can tell.
    pub short_ways: bool,
    /// Whether timestamps are offered, and granted to a peer that offers them (tcp_timestamps).
    pub timestamps: bool,
    /// The same for selective acknowledgments (tcp_sack).
    pub sack: bool,
    /// The same for windows that are scaled (tcp_window_scaling).
    pub window_scaling: bool,
    /// Whether a window starts anew after more than a timeout without sending
    /// (tcp_slow_start_after_idle).
    pub restart_after_idle: bool,
    /// Connections begin with this [`SocketOption::NotSentLowWater`](crate::SocketOption)
    /// (tcp_notsent_lowat).
    pub not_sent_low_water: Option<u32>,
    /// Segments that a train has at least, however slow the path, if window and buffer have them
    /// (tcp_min_tso_segs).
    pub least_train_segments: u16,
    /// Whether ECN is granted, and asked for (tcp_ecn).
    pub ecn: Ecn,
    /// What of TCP Fast Open is switched on (tcp_fastopen).
    pub fast_open: FastOpen,
    /// Shortest retransmission timeout (RFC 6298 says a second; Linux 200 ms).
    pub min_rto: Duration,
    /// Longest retransmission timeout.
    pub max_rto: Duration,
    /// How often a SYN is sent again (tcp_syn_retries).
    pub syn_retries: u8,
    /// How often a SYN-ACK is sent again (tcp_synack_retries).
    pub syn_ack_retries: u8,
    /// How often data is sent again before a connection is given up (tcp_retries2).
    pub data_retries: u8,
    /// The same for a connection that its user has closed, and how often its peer may say that its
    /// window is still shut (tcp_orphan_retries): nobody is there to lose patience.
    pub orphan_retries: u8,
    /// How long TIME-WAIT lasts: twice the longest life of a segment.
    pub time_wait: Duration,
    /// How long a connection that its user has closed waits for the peer's FIN (tcp_fin_timeout).
    pub fin_wait_2: Duration,
    /// Ports that active opens choose from, first and last (ip_local_port_range).
    pub ports: (u16, u16),
    /// Time that a connection lets pass between two answers to segments that it does not believe, or
    /// that are not in its window (tcp_invalid_ratelimit; RFC 5961 §7). A limit for all connections
    /// together would tell one peer what another one gets.
    pub challenge_interval: Duration,
}

impl Config {
    /// For programs that were written for the kernel's sockets: on the host's addresses, and with calls between the
    /// turns, so that what has come is looked at, and mostly answered, behind the turn in which it came.
    #[must_use]
    pub fn of_programs() -> Self {
        let answer_patience = Duration::from_millis(1);
        // Who asks for it has asked the host whether he may (net.ipv4.tcp_fastopen).
        let fast_open = FastOpen::CLIENT.with(FastOpen::SERVER);
        Self { shares_addresses: true, answer_patience, fast_open, ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shares_addresses: false,
            congestion: Algorithm::Cubic,
            initial_window_segments: 10,
            small_queue_bytes: 128 << 10,
            autocork: true,
            pacing: true,
            join_segments: true,
            quick_ack_counting: QuickAckCounting::default(),
            quick_acks: 16,
            answer_patience: Duration::ZERO,
            hands_on: false,
            send_buffer_bytes: (64 << 10, 4 << 20),
            receive_buffer_bytes: (64 << 10, 6 << 20),
            udp_receive_bytes: 212_992,
            udp_send_bytes: 212_992,
            memory_bytes: (768 << 20, 1 << 30),
            most_orphans: 65_536,
            most_time_waits: 262_144,
            kept_storage_bytes: 64 << 20,
            short_ways: true,
            timestamps: true,
            sack: true,
            window_scaling: true,
            restart_after_idle: true,
            not_sent_low_water: None,
            least_train_segments: 2,
            ecn: Ecn::default(),
            fast_open: FastOpen::default(),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            syn_retries: 6,
            syn_ack_retries: 5,
            data_retries: 15,
            orphan_retries: 8,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            ports: (32_768, 60_999),
            challenge_interval: Duration::from_millis(500),
        }
    }
}
