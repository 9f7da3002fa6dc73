//! What a stack as a whole has seen. The names follow /proc/net/snmp and netstat where those have one.

/// Counts since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came.
    pub frames_in: u64,
    /// Frames that were written.
    pub frames_out: u64,
    /// Frames that could not be read: cut short, contradictory, or with a checksum that is wrong.
    pub malformed: u64,
    /// Frames that were for somebody else, or about something that is not spoken here.
    pub not_for_us: u64,
    /// TCP segments that came and could be read.
    pub segments_in: u64,
    /// Of those, that were joined to the one before.
    pub joined: u64,
    /// Of those, that were what their connection was to go on with (TCPHPHits).
    pub predicted: u64,
    /// TCP segments that were sent, those of trains counted one by one.
    pub segments_out: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Connections that this side began.
    pub active_opens: u64,
    /// Connections that came to a listener.
    pub passive_opens: u64,
    /// SYNs that were dropped because a listener had no room.
    pub listen_drops: u64,
    /// SYNs that were answered with a cookie.
    pub cookies_sent: u64,
    /// Connections made of a cookie.
    pub cookies_good: u64,
    /// ACKs that should have been a cookie's echo and were not.
    pub cookies_bad: u64,
    /// Active opens whose SYN had data that was taken (TCPFastOpenActive).
    pub fast_open_active: u64,
    /// And those whose data had to be sent again (TCPFastOpenActiveFail).
    pub fast_open_active_failed: u64,
    /// Connections that a SYN with a good cookie has opened (TCPFastOpenPassive).
    pub fast_open_passive: u64,
    /// SYNs with a cookie that was not good (TCPFastOpenPassiveFail).
    pub fast_open_passive_failed: u64,
    /// SYNs that got an ordinary handshake because too many others were pending
    /// (TCPFastOpenListenOverflow).
    pub fast_open_overflows: u64,
    /// SYNs that have asked for a cookie (TCPFastOpenCookieReqd).
    pub fast_open_requests: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Of those, that were wrong (TCPSpuriousRTOs).
    pub spurious_timeouts: u64,
    /// Probes for a lost tail.
    pub tail_probes: u64,
    /// Recoveries that were entered on the evidence of ACKs.
    pub recoveries: u64,
    /// Recoveries that proved unnecessary.
    pub undone: u64,
    /// ACKs that were delayed until their timer.
    pub delayed_acks: u64,
    /// Times that a small write was held for a completion.
    pub autocorked: u64,
    /// Times that a connection waited because of its bytes in the device.
    pub throttled: u64,
    /// Segments dropped for an old timestamp (PAWS, RFC 7323 §5).
    pub old_timestamps: u64,
    /// Challenge ACKs (RFC 5961).
    pub challenge_acks: u64,
    /// Segments that were dropped because there was no memory for what they bring, or too many gaps (TCPRcvQDrop).
    pub receive_drops: u64,
    /// Closed connections that were reset because there were too many, or no memory for what they had to send
    /// (TCPAbortOnMemory).
    pub orphans_reset: u64,
    /// Connections that did not stay in TIME-WAIT because too many did (TCPTimeWaitOverflow).
    pub time_wait_overflows: u64,
    /// Datagrams that were given to sockets (InDatagrams of UDP).
    pub udp_in: u64,
    /// Datagrams that were sent (OutDatagrams).
    pub udp_out: u64,
    /// Datagrams for ports that nobody has (NoPorts).
    pub udp_no_ports: u64,
    /// Datagrams that were wrong (InErrors).
    pub udp_errors: u64,
    /// Datagrams that a socket had no room for (RcvbufErrors).
    pub udp_receive_drops: u64,
    /// Replies that were not sent because too many were waiting.
    pub replies_dropped: u64,
}
