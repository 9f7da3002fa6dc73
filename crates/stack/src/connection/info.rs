//! Information about a connection (TCP_INFO, ss(8), `uncork stack stat`).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Blocked, Connection, Fast, FastOpenFailure, Phase, State};
use crate::context::Context;

/// State of a connection at one moment. Segments are counted as Linux counts them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// State.
    pub state: State,
    /// Phase of loss recovery (tcpi_ca_state).
    pub phase: Phase,
    /// Why it is not sending; none if it is about to send.
    pub blocked: Option<Blocked>,
    /// Congestion controller.
    pub congestion: Cow<'static, str>,
    /// Congestion window, in segments (tcpi_snd_cwnd).
    pub window_segments: u32,
    /// Slow start threshold, in segments; none before there is one (tcpi_snd_ssthresh).
    pub threshold_segments: Option<u32>,
    /// MSS that this side announces, in octets, without options (tcpi_advmss).
    pub announced_segment_bytes: u32,
    /// Data of a full segment, in octets (tcpi_snd_mss).
    pub segment_bytes: u32,
    /// Size of the peer's segments, as far as it was observed (tcpi_rcv_mss).
    pub peer_segment_bytes: u32,
    /// Largest packet on the path (tcpi_pmtu).
    pub path_mtu: u16,
    /// Smoothed round-trip time (tcpi_rtt).
    pub round_trip: Option<Duration>,
    /// Its mean deviation (tcpi_rttvar).
    pub deviation: Duration,
    /// Minimum round-trip time (tcpi_min_rtt).
    pub shortest_round_trip: Option<Duration>,
    /// Retransmission timeout (tcpi_rto).
    pub timeout: Duration,
    /// How often it was doubled (tcpi_backoff).
    pub backoff: u8,
    /// Unanswered probes of a silent peer or a zero window (tcpi_probes).
    pub probes: u8,
    /// Consecutive retransmission timeouts (tcpi_retransmits).
    pub timeouts: u8,
    /// Segments sent and not acknowledged (tcpi_unacked).
    pub unacknowledged_segments: u32,
    /// Of those, segments that the peer has SACKed (tcpi_sacked).
    pub sacked_segments: u32,
    /// Of those, segments that are considered lost (tcpi_lost).
    pub lost_segments: u32,
    /// Retransmissions in flight (tcpi_retrans).
    pub retransmitted_segments: u32,
    /// Total number of retransmitted segments (tcpi_total_retrans).
    pub all_retransmitted_segments: u64,
    /// ACKs that have shown reordering on the path (tcpi_reord_seen).
    pub reorderings: u16,
    /// Largest reordering seen, in segments, or the tolerated one if there was none (tcpi_reordering).
    pub reordering_segments: u16,
    /// Delay of the next delayed ACK (tcpi_ato).
    pub ack_delay: Duration,
    /// Quick-ACK credits left.
    pub quick_acks: u8,
    /// Whether responses carry the ACKs (pingpong mode), so that none is quick.
    pub ping_pong: bool,
    /// Unacknowledged octets in the send buffer.
    pub queued_bytes: u32,
    /// Of those, octets that were never sent (tcpi_notsent_bytes).
    pub unsent_bytes: u32,
    /// Octets of frames in the device queue.
    pub device_bytes: u32,
    /// Limit of octets in the device queue.
    pub device_limit_bytes: u32,
    /// Octets that can be read.
    pub readable_bytes: u32,
    /// The peer's window, in octets (tcpi_snd_wnd).
    pub send_window_bytes: u32,
    /// Our receive window, in octets (tcpi_rcv_wnd).
    pub receive_window_bytes: u32,
    /// Pacing rate, in bytes per second (tcpi_pacing_rate).
    pub pacing_rate: Option<u64>,
    /// Octets sent, retransmissions included (tcpi_bytes_sent).
    pub bytes_sent: u64,
    /// Octets retransmitted (tcpi_bytes_retrans).
    pub bytes_retransmitted: u64,
    /// Octets acknowledged (tcpi_bytes_acked).
    pub bytes_acknowledged: u64,
    /// Octets received in order (tcpi_bytes_received).
    pub bytes_received: u64,
    /// Segments received and sent (tcpi_segs_in, tcpi_segs_out).
    pub segments: (u64, u64),
    /// Segments with data received and sent (tcpi_data_segs_in, tcpi_data_segs_out).
    pub data_segments: (u64, u64),
    /// Segments delivered to the peer (tcpi_delivered).
    pub delivered_segments: u64,
    /// Segments that the peer reported as duplicates by D-SACK (tcpi_dsack_dups).
    pub duplicates_reported: u32,
    /// Segments that were received out of order (tcpi_rcv_ooopack).
    pub out_of_order_segments: u32,
    /// Delivered segments that ACKs with ECE reported (tcpi_delivered_ce).
    #[serde(default)]
    pub marked_segments: u32,
    /// Retransmission timeouts, and series of them (tcpi_total_rto, tcpi_total_rto_recoveries).
    pub all_timeouts: (u16, u16),
    /// Total time between the first timeout of a series and recovery (tcpi_total_rto_time).
    #[serde(default)]
    pub timed_out: Duration,
    /// Delivery rate, in bytes per second (tcpi_delivery_rate).
    pub delivery_rate: Option<u64>,
    /// Whether that rate was limited by what the user had to send, not the path (tcpi_delivery_rate_app_limited).
    #[serde(default)]
    pub application_limited: bool,
    /// Round-trip time as estimated by the receiver (tcpi_rcv_rtt).
    #[serde(default)]
    pub receiver_round_trip: Duration,
    /// Whether data has come in ECN-capable packets (TCPI_OPT_ECN_SEEN).
    #[serde(default)]
    pub saw_capable: bool,
    /// Window scale shifts of the peer and of this side (tcpi_snd_wscale, tcpi_rcv_wscale).
    #[serde(default)]
    pub window_scales: (u8, u8),
    /// Most octets that the user has read in a round trip, at first the window that a peer may begin with
    /// (tcpi_rcv_space).
    pub receive_space_bytes: u32,
    /// Time since an acceptable segment was received (tcpi_last_ack_recv).
    pub since_heard: Duration,
    /// Time during which data was queued (tcpi_busy_time).
    pub busy: Duration,
    /// Of that, time limited by the peer's window (tcpi_rwnd_limited).
    pub window_limited: Duration,
    /// Of that, time limited by the send buffer (tcpi_sndbuf_limited).
    pub buffer_limited: Duration,
    /// Time since data was last sent (tcpi_last_data_sent).
    pub since_sent: Duration,
    /// Time since data was last received (tcpi_last_data_recv).
    pub since_received: Duration,
    /// Whether data of a SYN was accepted, by the peer or by this side (tcpi_options, TCPI_OPT_SYN_DATA).
    pub syn_data: bool,
    /// Why data in our SYN was not accepted (tcpi_fastopen_client_fail).
    pub fast_open_failure: FastOpenFailure,
    /// Whether the SYN waits for the first bytes that the user sends.
    pub deferred: bool,
    /// Whether both sides use timestamps, SACK, window scaling, ECN (tcpi_options).
    pub extensions: (bool, bool, bool, bool),
}

impl Connection {
    pub(crate) fn info(&self, cx: &Context) -> Info {
        let flight = &self.sender.flight;
        let threshold = self.congestion.threshold;
        let [busy, window_limited, buffer_limited] = self.spent.told(cx.now);
        let trouble = self.counts.trouble();
        let probing = self.sender.flight.is_empty() && self.sender.unsent_bytes() > 0;
        Info {
            local: self.tuple.local(),
            remote: self.tuple.remote(),
            state: self.state,
            phase: self.recovery.phase,
            blocked: self.blocked(cx),
            congestion: self.congestion.name().into(),
            window_segments: self.congestion.window,
            threshold_segments: (threshold != u32::MAX).then_some(threshold),
            announced_segment_bytes: self.announced_segment_bytes(),
            segment_bytes: self.segment_bytes(),
            peer_segment_bytes: self.ack.segment_bytes(),
            path_mtu: self.path.mtu,
            round_trip: self.rtt.smoothed().map(crate::units::Micros::as_duration),
            deviation: self.rtt.deviation().as_duration(),
            shortest_round_trip: self.rtt.shortest().map(crate::units::Micros::as_duration),
            timeout: self.rtt.timeout(cx.timeouts).as_duration(),
            backoff: self.rtt.backoff,
            probes: if probing { self.recovery.timeouts } else { self.counts.unanswered },
            timeouts: self.recovery.timeouts,
            unacknowledged_segments: flight.out_segments(),
            sacked_segments: flight.sacked_segments().max(self.recovery.duplicates),
            lost_segments: flight.lost_segments(),
            retransmitted_segments: flight.retransmitted_segments(),
            all_retransmitted_segments: trouble.retransmitted,
            reorderings: self.recovery.rack.reorderings,
            reordering_segments: self.recovery.rack.degree.max(3),
            ack_delay: self.ack.delay().as_duration(),
            quick_acks: self.ack.credits(),
            ping_pong: self.ack.is_ping_pong(),
            queued_bytes: self.sender.queued_bytes(),
            unsent_bytes: self.sender.unsent_bytes(),
            device_bytes: self.device.bytes(),
            device_limit_bytes: self.device_limit(cx),
            readable_bytes: self.receiver.readable_bytes(),
            send_window_bytes: self.sender.window,
            receive_window_bytes: self.receiver.window,
            pacing_rate: self.pacer.rate(),
            bytes_sent: self.counts.bytes_sent,
            bytes_retransmitted: trouble.bytes_retransmitted,
            bytes_acknowledged: self.counts.bytes_acked,
            bytes_received: self.counts.bytes_received,
            segments: (self.counts.segments_in, self.counts.segments_out),
            data_segments: (self.counts.data_segments_in, self.counts.data_segments_out),
            delivered_segments: self.counts.delivered,
            duplicates_reported: trouble.duplicates_reported,
            out_of_order_segments: trouble.out_of_order,
            marked_segments: trouble.marked,
            all_timeouts: (trouble.timeouts, trouble.timeout_recoveries),
            timed_out: Duration::from_millis(trouble.timed_out_millis(cx.now).into()),
            delivery_rate: self.counts.delivery.rate(),
            application_limited: self.counts.delivery.is_limited(),
            receiver_round_trip: self.receiver.round_trip.known().as_duration(),
            saw_capable: self.counts.saw_capable,
            window_scales: if self.peer.scales {
                (self.peer.send_shift, self.peer.receive_shift)
            } else {
                (0, 0)
            },
            receive_space_bytes: self.receive_space_bytes(),
            since_heard: cx.now.since(self.counts.last_heard),
            busy,
            window_limited,
            buffer_limited,
            since_sent: cx.now.since(self.counts.last_sent),
            since_received: cx.now.since(self.ack.received_at()),
            syn_data: self.fast.has(Fast::TAKEN),
            fast_open_failure: self.fast.failure(),
            deferred: self.fast.has(Fast::DEFERRED),
            extensions: (self.peer.stamps, self.peer.sacks, self.peer.scales, self.peer.ecn),
        }
    }
    /// Returns the receive space, which begins as in Linux (tcp_init_buffer_space).
    fn receive_space_bytes(&self) -> u32 {
        const INITIAL_SEGMENTS: u32 = 10;
        let first = INITIAL_SEGMENTS * self.announced_segment_bytes();
        self.receiver.tuning.best_bytes().max(first.min(self.receiver.limit))
    }
}
