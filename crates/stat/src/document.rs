//! The reported values, in the words of the manual page.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uncork_stack::{Blocked, Counters, Info, Phase, State};

/// The complete report of a running stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The stack itself.
    #[serde(flatten)]
    pub running: Running,
    /// Its connections, in no order.
    pub connections: Vec<Connection>,
}

/// A running stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Process id.
    pub pid: u32,
    /// What it does: `serve http`, `connect`; the program's name for `uncork run --stack`.
    pub does: String,
    /// Device name; several are separated by commas.
    pub device: String,
    /// Devices that it runs without, as they could not be opened or are gone: the name of each, and why. What comes by them
    /// is the kernel's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// The stack's addresses and ports.
    pub addresses: Vec<SocketAddr>,
    /// Age of the stack.
    pub age_ms: u64,
    /// Counters of the stack.
    pub counts: Counts,
    /// Received frames that found no room, as those before them were not taken in time; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames_lost: Option<u64>,
    /// Reception by queues of its own; absent if it is to have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_queue: Option<ByQueue>,
}

/// Reception by AF_XDP, where that is not the only path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByQueue {
    /// The queues, each as DEVICE:NUMBER.
    pub queues: Vec<String>,
    /// Frames received by them.
    pub frames_in: u64,
    /// Why queues are missing that it should have: a sentence each, from the guardian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl ByQueue {
    /// Makes the entry of one device.
    #[must_use]
    pub fn new(device: &str, numbers: &[u32], frames_in: u64) -> Self {
        let queues = numbers.iter().map(|number| format!("{device}:{number}")).collect();
        Self { queues, frames_in, missing: Vec::new() }
    }

    /// Adds the reasons for missing queues.
    #[must_use]
    pub fn without(mut self, missing: &[String]) -> Self {
        self.missing.extend_from_slice(missing);
        self
    }

    /// Merges the entry of another device, or of another thread.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        self.queues.append(&mut other.queues);
        self.missing.append(&mut other.missing);
        self.frames_in += other.frames_in;
        self
    }
}

/// Counters since the stack began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames received.
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// TCP segments received.
    pub segments_in: u64,
    /// TCP segments sent.
    pub segments_out: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Connections that peers opened.
    pub passive_opens: u64,
    /// Connections that this side opened.
    pub active_opens: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// SYNs dropped because the listener had no room.
    pub listen_drops: u64,
    /// Times that a small write waited for the device.
    pub autocorked: u64,
    /// Times that a connection had its limit of octets in the device.
    pub throttled: u64,
    /// Frames that could not be parsed.
    pub malformed: u64,
    /// Segments that were dropped for want of memory for their data.
    #[serde(default)]
    pub receive_drops: u64,
    /// Closed connections that were reset because there were too many, or no memory.
    #[serde(default)]
    pub orphans_reset: u64,
    /// Connections that skipped TIME-WAIT because too many were in it.
    #[serde(default)]
    pub time_wait_overflows: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.frames_in += other.frames_in;
        self.frames_out += other.frames_out;
        self.segments_in += other.segments_in;
        self.segments_out += other.segments_out;
        self.retransmitted += other.retransmitted;
        self.passive_opens += other.passive_opens;
        self.active_opens += other.active_opens;
        self.resets_out += other.resets_out;
        self.listen_drops += other.listen_drops;
        self.autocorked += other.autocorked;
        self.throttled += other.throttled;
        self.malformed += other.malformed;
        self.receive_drops += other.receive_drops;
        self.orphans_reset += other.orphans_reset;
        self.time_wait_overflows += other.time_wait_overflows;
    }
}

impl From<&Counters> for Counts {
    fn from(counters: &Counters) -> Self {
        Self {
            frames_in: counters.frames_in,
            frames_out: counters.frames_out,
            segments_in: counters.segments_in,
            segments_out: counters.segments_out,
            retransmitted: counters.retransmitted,
            passive_opens: counters.passive_opens,
            active_opens: counters.active_opens,
            resets_out: counters.resets_out,
            listen_drops: counters.listen_drops,
            autocorked: counters.autocorked,
            throttled: counters.throttled,
            malformed: counters.malformed,
            receive_drops: counters.receive_drops,
            orphans_reset: counters.orphans_reset,
            time_wait_overflows: counters.time_wait_overflows,
        }
    }
}

/// State of a connection's ACK policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acks {
    /// `quick`, `delayed` or `pingpong`.
    pub mode: String,
    /// Quick ACKs left.
    pub quick_left: u8,
    /// Delay of the next delayed ACK.
    pub delay_us: u64,
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The program's descriptor, if it has one; absent for programs of `uncork stack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// State, as ss(8) names it.
    pub state: String,
    /// The sender's view of the path: `open`, `disorder`, `recovery`, `loss` ….
    pub phase: String,
    /// Name of the congestion control.
    pub congestion: String,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments.
    pub ssthresh: Option<u32>,
    /// Octets of data in a full segment.
    pub segment_bytes: u32,
    /// Smoothed round trip.
    pub srtt_us: Option<u64>,
    /// Shortest round trip.
    pub min_rtt_us: Option<u64>,
    /// Retransmission timeout.
    pub rto_us: u64,
    /// Segments in flight.
    pub in_flight: u32,
    /// Octets of frames in the device.
    pub device_bytes: u32,
    /// Limit for `device_bytes`.
    pub device_limit_bytes: u32,
    /// Octets that the program has written and that have not been sent.
    pub held_bytes: u32,
    /// Octets received that the program has not read.
    pub unread_bytes: u32,
    /// The peer's window.
    pub peer_window_bytes: u32,
    /// State of the ACK policy.
    pub ack: Acks,
    /// Why it is not sending; absent if it is about to.
    pub waits_for: Option<String>,
    /// Octets sent, retransmissions included.
    pub sent_bytes: u64,
    /// Octets received.
    pub received_bytes: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Pacing rate, in octets a second.
    pub pacing_rate: Option<u64>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl From<&Info> for Connection {
    fn from(info: &Info) -> Self {
        let mode = match (info.ping_pong, info.quick_acks) {
            (true, _) => "pingpong",
            (false, 0) => "delayed",
            (false, _) => "quick",
        };
        let arrived = info.sacked_segments + info.lost_segments;
        Self {
            fd: None,
            local: info.local,
            remote: info.remote,
            state: state(info.state).to_owned(),
            phase: phase(info.phase).to_owned(),
            congestion: info.congestion.to_string(),
            cwnd: info.window_segments,
            ssthresh: info.threshold_segments,
            segment_bytes: info.segment_bytes,
            srtt_us: info.round_trip.map(micros),
            min_rtt_us: info.shortest_round_trip.map(micros),
            rto_us: micros(info.timeout),
            in_flight: (info.unacknowledged_segments + info.retransmitted_segments)
                .saturating_sub(arrived),
            device_bytes: info.device_bytes,
            device_limit_bytes: info.device_limit_bytes,
            held_bytes: info.unsent_bytes,
            unread_bytes: info.readable_bytes,
            peer_window_bytes: info.send_window_bytes,
            ack: Acks {
                mode: mode.to_owned(),
                quick_left: info.quick_acks,
                delay_us: micros(info.ack_delay),
            },
            waits_for: info.blocked.map(|blocked| reason(blocked).to_owned()),
            sent_bytes: info.bytes_sent,
            received_bytes: info.bytes_received,
            retransmitted: info.all_retransmitted_segments,
            pacing_rate: info.pacing_rate,
        }
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Open => "open",
        Phase::Disorder => "disorder",
        Phase::Reduced => "reduced",
        Phase::Recovery => "recovery",
        Phase::Loss => "loss",
    }
}

fn reason(blocked: Blocked) -> &'static str {
    match blocked {
        Blocked::Application => "application",
        Blocked::Handshake => "handshake",
        Blocked::Window => "window",
        Blocked::CongestionWindow => "cwnd",
        Blocked::Nagle => "nagle",
        Blocked::Cork => "cork",
        Blocked::Autocork => "autocork",
        Blocked::SmallQueue => "small queue",
        Blocked::Pacing => "pacing",
        Blocked::Held => "held",
    }
}
