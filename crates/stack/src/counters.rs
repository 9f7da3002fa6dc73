//! Counters of a stack as a whole. The names follow /proc/net/snmp and netstat where those have one.

/// Counts since the stack was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub frames_in: u64,
    /// Frames written.
    pub frames_out: u64,
    /// Frames that could not be parsed: cut short, inconsistent, or with a wrong checksum.
    pub malformed: u64,
    /// Frames for other hosts, or of protocols that the stack does not implement.
    pub not_for_us: u64,
    /// TCP segments that were received and could be read.
    pub segments_in: u64,
    /// Of those, segments that were joined to the one before (GRO).
    pub joined: u64,
    /// Of those, segments that header prediction handled (TCPHPHits).
    pub predicted: u64,
    /// TCP segments that were sent, those of trains counted one by one.
    pub segments_out: u64,
    /// Segments that were retransmitted.
    pub retransmitted: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Connections that were opened from this side.
    pub active_opens: u64,
    /// Connections that came to a listener.
    pub passive_opens: u64,
    /// SYNs that were dropped because a listener had no room.
    pub listen_drops: u64,
    /// SYNs that were answered with a cookie.
    pub cookies_sent: u64,
    /// Connections made from a returned SYN cookie.
    pub cookies_good: u64,
    /// ACKs that should have returned a SYN cookie and did not.
    pub cookies_bad: u64,
    /// Active opens whose SYN carried data that the peer accepted (TCPFastOpenActive).
    pub fast_open_active: u64,
    /// Active opens whose data in the SYN had to be sent again (TCPFastOpenActiveFail).
    pub fast_open_active_failed: u64,
    /// Connections that a SYN with a valid cookie opened (TCPFastOpenPassive).
    pub fast_open_passive: u64,
    /// SYNs with an invalid cookie (TCPFastOpenPassiveFail).
    pub fast_open_passive_failed: u64,
    /// SYNs that got an ordinary handshake because too many others were pending
    /// (TCPFastOpenListenOverflow).
    pub fast_open_overflows: u64,
    /// SYNs that requested a cookie (TCPFastOpenCookieReqd).
    pub fast_open_requests: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Of those, spurious timeouts (TCPSpuriousRTOs).
    pub spurious_timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Recoveries that ACKs started.
    pub recoveries: u64,
    /// Recoveries that proved unnecessary.
    pub undone: u64,
    /// ACKs that were delayed until the delayed-ACK timer.
    pub delayed_acks: u64,
    /// Times that a small write was held until a completion.
    pub autocorked: u64,
    /// Times that a connection waited because of its bytes in the device queue.
    pub throttled: u64,
    /// Segments dropped for an old timestamp (PAWS, RFC 7323 §5).
    pub old_timestamps: u64,
    /// Challenge ACKs (RFC 5961).
    pub challenge_acks: u64,
    /// Segments that were dropped for lack of memory for their data, or because there were too many gaps (TCPRcvQDrop).
    pub receive_drops: u64,
    /// Closed connections that were reset because there were too many, or for lack of memory for what they had to send
    /// (TCPAbortOnMemory).
    pub orphans_reset: u64,
    /// Connections that left TIME-WAIT early because too many were in it (TCPTimeWaitOverflow).
    pub time_wait_overflows: u64,
    /// Datagrams that were delivered to sockets (InDatagrams of UDP).
    pub udp_in: u64,
    /// Datagrams that were sent (OutDatagrams).
    pub udp_out: u64,
    /// Datagrams for ports without a socket (NoPorts).
    pub udp_no_ports: u64,
    /// Datagrams with errors (InErrors).
    pub udp_errors: u64,
    /// Datagrams that a socket had no room for (RcvbufErrors).
    pub udp_receive_drops: u64,
    /// Replies that were not sent because too many were waiting.
    pub replies_dropped: u64,
}
