//! What can be seen of a connection (TCP_INFO, ss(8), `uncork stack stat`).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Blocked, Connection, Fast, FastOpenFailure, Phase, State};
use crate::context::Context;

/// A connection at one moment. Segments are counted as Linux counts them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// State.
    pub state: State,
    /// What the sender believes of the path (tcpi_ca_state).
    pub phase: Phase,
    /// Why it is not sending; none if it is about to.
    pub blocked: Option<Blocked>,
    /// Congestion controller.
    pub congestion: Cow<'static, str>,
    /// Congestion window, in segments (tcpi_snd_cwnd).
    pub window_segments: u32,
    /// Slow start threshold, in segments; none before there is one (tcpi_snd_ssthresh).
    pub threshold_segments: Option<u32>,
    /// Data of a full segment that this side takes, in octets, options not counted (tcpi_advmss).
    pub announced_segment_bytes: u32,
    /// Data of a full segment, in octets (tcpi_snd_mss).
    pub segment_bytes: u32,
    /// The same of the peer's, as far as was seen (tcpi_rcv_mss).
    pub peer_segment_bytes: u32,
    /// Largest packet on the path (tcpi_pmtu).
    pub path_mtu: u16,
    /// Smoothed round-trip time (tcpi_rtt).
    pub round_trip: Option<Duration>,
    /// Its mean deviation (tcpi_rttvar).
    pub deviation: Duration,
    /// Shortest round trip (tcpi_min_rtt).
    pub shortest_round_trip: Option<Duration>,
    /// Retransmission timeout (tcpi_rto).
    pub timeout: Duration,
    /// How often it was doubled (tcpi_backoff).
    pub backoff: u8,
    /// Probes of a silent peer or a shut window that were not answered (tcpi_probes).
    pub probes: u8,
    /// Timeouts in a row (tcpi_retransmits).
    pub timeouts: u8,
    /// Segments sent and not acknowledged (tcpi_unacked).
    pub unacknowledged_segments: u32,
    /// Of those, that the peer has out of order (tcpi_sacked).
    pub sacked_segments: u32,
    /// Of those, that are thought lost (tcpi_lost).
    pub lost_segments: u32,
    /// Retransmissions in flight (tcpi_retrans).
    pub retransmitted_segments: u32,
    /// Segments ever sent again (tcpi_total_retrans).
    pub all_retransmitted_segments: u64,
    /// ACKs that have shown reordering on the path (tcpi_reord_seen), and by how many segments it was
    /// at most, or what is tolerated without (tcpi_reordering).
    pub reorderings: u16,
    /// See above.
    pub reordering_segments: u16,
    /// Delay of the next delayed ACK (tcpi_ato).
    pub ack_delay: Duration,
    /// Quick ACKs left.
    pub quick_acks: u8,
    /// Whether answers carry the ACKs, so that none is quick.
    pub ping_pong: bool,
    /// Octets in the send buffer that are not acknowledged.
    pub queued_bytes: u32,
    /// Octets of those that were never sent (tcpi_notsent_bytes).
    pub unsent_bytes: u32,
    /// Octets of frames in the device.
    pub device_bytes: u32,
    /// How many there may be.
    pub device_limit_bytes: u32,
    /// Octets that wait to be read.
    pub readable_bytes: u32,
    /// The peer's window, in octets (tcpi_snd_wnd).
    pub send_window_bytes: u32,
    /// Our window, in octets (tcpi_rcv_wnd).
    pub receive_window_bytes: u32,
    /// Rate at which segments leave, in bytes a second (tcpi_pacing_rate).
    pub pacing_rate: Option<u64>,
    /// Octets sent, those sent again included (tcpi_bytes_sent).
    pub bytes_sent: u64,
    /// Octets sent again (tcpi_bytes_retrans).
    pub bytes_retransmitted: u64,
    /// Octets acknowledged (tcpi_bytes_acked).
    pub bytes_acknowledged: u64,
    /// Octets received in order (tcpi_bytes_received).
    pub bytes_received: u64,
    /// Segments in and out (tcpi_segs_in, tcpi_segs_out).
    pub segments: (u64, u64),
    /// Segments with data in and out (tcpi_data_segs_in, tcpi_data_segs_out).
    pub data_segments: (u64, u64),
    /// Segments that have arrived at the peer (tcpi_delivered).
    pub delivered_segments: u64,
    /// Segments of which the peer says that it got them twice (tcpi_dsack_dups).
    pub duplicates_reported: u32,
    /// Segments that came ahead of their turn (tcpi_rcv_ooopack).
    pub out_of_order_segments: u32,
    /// Of those, that arrived by ACKs which tell of marks (tcpi_delivered_ce).
    #[serde(default)]
    pub marked_segments: u32,
    /// Timeouts, and how often there was a first one (tcpi_total_rto, tcpi_total_rto_recoveries).
    pub all_timeouts: (u16, u16),
    /// Time between those and recovery (tcpi_total_rto_time).
    #[serde(default)]
    pub timed_out: Duration,
    /// Bytes a second that get through (tcpi_delivery_rate), and whether that is what the user had to send and may be
    /// less than what the path lets through (tcpi_delivery_rate_app_limited).
    pub delivery_rate: Option<u64>,
    /// See above.
    #[serde(default)]
    pub application_limited: bool,
    /// Round-trip time as one can tell who only receives (tcpi_rcv_rtt).
    #[serde(default)]
    pub receiver_round_trip: Duration,
    /// Whether data has come that could have been marked (TCPI_OPT_ECN_SEEN).
    #[serde(default)]
    pub saw_capable: bool,
    /// Shifts of the peer's windows and of ours (tcpi_snd_wscale, tcpi_rcv_wscale).
    #[serde(default)]
    pub window_scales: (u8, u8),
    /// Octets that the user has read in the best round trip, and in the beginning what a peer's first window may be
    /// (tcpi_rcv_space).
    pub receive_space_bytes: u32,
    /// Time since an acceptable segment came (tcpi_last_ack_recv).
    pub since_heard: Duration,
    /// Time in which something was queued (tcpi_busy_time), and of that in which the peer's window
    /// (tcpi_rwnd_limited) or the send buffer (tcpi_sndbuf_limited) was what it waited for.
    pub busy: Duration,
    /// See above.
    pub window_limited: Duration,
    /// See above.
    pub buffer_limited: Duration,
    /// Time since data was sent (tcpi_last_data_sent).
    pub since_sent: Duration,
    /// Time since data came (tcpi_last_data_recv).
    pub since_received: Duration,
    /// Whether data of a SYN was taken, here or there (tcpi_options, TCPI_OPT_SYN_DATA).
    pub syn_data: bool,
    /// Why data in our SYN did not work (tcpi_fastopen_client_fail).
    pub fast_open_failure: FastOpenFailure,
    /// Whether the SYN waits for the first bytes that the user sends.
    pub deferred: bool,
    /// Whether both use timestamps, SACK, window scaling, ECN (tcpi_options).
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
    /// What Linux begins with (tcp_init_buffer_space).
    fn receive_space_bytes(&self) -> u32 {
        const INITIAL_SEGMENTS: u32 = 10;
        let first = INITIAL_SEGMENTS * self.announced_segment_bytes();
        self.receiver.tuning.best_bytes().max(first.min(self.receiver.limit))
    }
}
