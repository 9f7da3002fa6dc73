//! Settings of a stack as a whole. Defaults are Linux's where Linux has the setting.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fast_open::FastOpen;

/// The congestion controller that connections begin with.
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
    /// One per ACK that acknowledges new data, as Linux does since commit 059217c18be6 (6.8).
    #[default]
    AcksOfNewData,
    /// One per segment that is sent with an ACK in it, as Linux did before: a server that answers in
    /// several segments ran out of credits that it had never used.
    EverySegmentSent,
}

/// Explicit congestion notification (RFC 3168) of new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Neither requested nor accepted (tcp_ecn 0).
    Refused,
    /// Accepted from a peer that requests it (tcp_ecn 2).
    #[default]
    Granted,
    /// Accepted, and requested in SYNs (tcp_ecn 1).
    Asked,
}

/// Settings of a stack.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether the stack's addresses are those of the host's kernel, which still handles all that is not
    /// the stack's: it answers ARP, neighbour discovery and pings, and resets segments of no connection. The
    /// stack then does none of that, and asks its driver for neighbours
    /// ([`Event::Neighbour`](crate::Event)), because the kernel's tables say how they are reached.
    pub shares_addresses: bool,
    /// Congestion control of new connections.
    pub congestion: Algorithm,
    /// Initial window in segments (RFC 6928).
    pub initial_window_segments: u32,
    /// Most bytes of one connection that may be in the device queue (tcp_limit_output_bytes before
    /// Linux raised it). Two segments always may; a train is at most half of it.
    pub small_queue_bytes: u32,
    /// Whether a write below one segment waits for the completion of earlier bytes
    /// (tcp_autocorking).
    pub autocork: bool,
    /// Whether segments are paced at the congestion controller's rate instead of leaving in bursts.
    pub pacing: bool,
    /// Whether consecutive received segments are joined (what ethtool calls
    /// generic-receive-offload).
    pub join_segments: bool,
    /// How quick-ACK credits are spent.
    pub quick_ack_counting: QuickAckCounting,
    /// Quick-ACK credits of a new connection, at most (TCP_MAX_QUICKACKS).
    pub quick_acks: u8,
    /// How long an ACK that is only a matter of promptness (a quick ACK of a lone segment, or the ACK of a FIN) waits for the
    /// user, whose answer can carry it. For users that look at received data after the turn in which it came; with zero it
    /// leaves in that turn.
    pub answer_patience: Duration,
    /// Whether the reader passes data on to the user, so that a read does not mean that the user has seen the data.
    pub hands_on: bool,
    /// Initial and largest send buffer in bytes, unless the user sets it (tcp_wmem).
    pub send_buffer_bytes: (u32, u32),
    /// Initial and largest receive buffer, and so window, in bytes (tcp_rmem).
    pub receive_buffer_bytes: (u32, u32),
    /// Bytes of received datagrams that a UDP socket queues (rmem_default).
    pub udp_receive_bytes: u32,
    /// Bytes of datagrams that a UDP socket may have waiting to be sent (wmem_default).
    pub udp_send_bytes: u32,
    /// Bytes in the send and receive buffers of all connections together: from the first number on no buffer is grown
    /// automatically, and from the second on each takes no more than 4 KiB, data beyond that is dropped, and closed connections
    /// that hold more are reset (the second and third of tcp_mem; Linux also counts the overhead around the bytes). Each
    /// connection has its own bound, so this one matters when there are many.
    pub memory_bytes: (usize, usize),
    /// Connections that their users have closed and that are not over: one beyond this number is reset when it is closed
    /// (tcp_max_orphans).
    pub most_orphans: u32,
    /// Connections in TIME-WAIT: one beyond this number is over as soon as its last ACK has had time to leave
    /// (tcp_max_tw_buckets).
    pub most_time_waits: u32,
    /// Bytes of buffer storage that are kept for reuse.
    pub kept_storage_bytes: usize,
    /// Whether segments of an undisturbed conversation take a fast path on input (header prediction) and output.
    /// Tests switch it off to show that the result is the same.
    pub short_ways: bool,
    /// Whether timestamps are offered, and accepted from a peer that offers them (tcp_timestamps).
    pub timestamps: bool,
    /// Whether selective acknowledgments are offered and accepted (tcp_sack).
    pub sack: bool,
    /// Whether window scaling is offered and accepted (tcp_window_scaling).
    pub window_scaling: bool,
    /// Whether the congestion window restarts after more than a retransmission timeout without sending
    /// (tcp_slow_start_after_idle).
    pub restart_after_idle: bool,
    /// The [`SocketOption::NotSentLowWater`](crate::SocketOption) that connections begin with
    /// (tcp_notsent_lowat).
    pub not_sent_low_water: Option<u32>,
    /// Least number of segments in a train, however slow the path, if window and buffer have them
    /// (tcp_min_tso_segs).
    pub least_train_segments: u16,
    /// Whether ECN is accepted and requested (tcp_ecn).
    pub ecn: Ecn,
    /// The parts of TCP Fast Open that are switched on (tcp_fastopen).
    pub fast_open: FastOpen,
    /// Shortest retransmission timeout (RFC 6298 says a second; Linux has 200 ms).
    pub min_rto: Duration,
    /// Longest retransmission timeout.
    pub max_rto: Duration,
    /// How often a SYN is retransmitted (tcp_syn_retries).
    pub syn_retries: u8,
    /// How often a SYN-ACK is retransmitted (tcp_synack_retries).
    pub syn_ack_retries: u8,
    /// How often data is retransmitted before a connection is given up (tcp_retries2).
    pub data_retries: u8,
    /// How often data of a connection that its user has closed is retransmitted, and how often its peer may answer that
    /// its window is still zero (tcp_orphan_retries): no user is left to lose patience.
    pub orphan_retries: u8,
    /// How long TIME-WAIT lasts: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// How long a connection that its user has closed waits for the peer's FIN (tcp_fin_timeout).
    pub fin_wait_2: Duration,
    /// First and last port of those that active opens choose from (ip_local_port_range).
    pub ports: (u16, u16),
    /// Least time that a connection lets pass between two answers to unacceptable segments, in or out of
    /// its window (tcp_invalid_ratelimit; RFC 5961 §7). A limit for all connections together would tell
    /// one peer what another one gets.
    pub challenge_interval: Duration,
}

impl Config {
    /// Returns settings for programs that were written for kernel sockets: the stack is on the host's addresses, and the
    /// programs make their calls between turns, so they see received data, and mostly answer it, after the turn in which it came.
    #[must_use]
    pub fn of_programs() -> Self {
        let answer_patience = Duration::from_millis(1);
        // The caller has looked up whether the host allows it (net.ipv4.tcp_fastopen).
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
