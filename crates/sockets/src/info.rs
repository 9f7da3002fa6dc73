//! TCP_INFO as Linux lays it out (include/uapi/linux/tcp.h, struct tcp_info of 6.18).

use std::time::Duration;

use uncork_stack::{Info, Phase, State};

/// The structure's length, in octets.
const BYTES: usize = 280;
/// The place of tcpi_unacked, which for a listener is the number of connections that wait to be accepted.
const UNACKED_AT: usize = 24;

/// TCPOLEN_TSTAMP_ALIGNED.
const TIME_STAMP_BYTES: u32 = 12;
/// TCP_INFINITE_SSTHRESH.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Returns the number that Linux has for a state (net/tcp_states.h).
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        // In TIME-WAIT Linux's socket is closed: what goes on does not concern the program (tcp_time_wait).
        State::TimeWait | State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

fn phase_number(phase: Phase) -> u8 {
    match phase {
        Phase::Open => 0,
        Phase::Disorder => 1,
        Phase::Reduced => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "counters of 32 bits wrap")]
fn low(count: u64) -> u32 {
    count as u32
}

/// Packs two bit fields, each with its width, into an octet, as the machine's compiler lays them out.
fn bits((first, width): (u8, u32), (second, next): (u8, u32)) -> u8 {
    if cfg!(target_endian = "little") {
        first | second << width
    } else {
        first << (8 - width) | second << (8 - width - next)
    }
}

/// Writes fields one after the other.
struct Writer(Vec<u8>);

impl Writer {
    fn words<const N: usize>(&mut self, values: [u32; N]) {
        for value in values {
            self.0.extend(value.to_ne_bytes());
        }
    }

    fn doubles<const N: usize>(&mut self, values: [u64; N]) {
        for value in values {
            self.0.extend(value.to_ne_bytes());
        }
    }
}

/// Returns the structure for a socket without a connection.
#[must_use]
pub fn of_none() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[0] = state_number(State::Closed);
    bytes
}

/// Adds so many connections that wait to be accepted to what the kernel's structure for a listener says.
pub fn add_waiting(told: &mut [u8], waiting: u32) {
    if let Some(octets) = told.get_mut(UNACKED_AT..).and_then(<[u8]>::first_chunk_mut) {
        *octets = u32::from_ne_bytes(*octets).saturating_add(waiting).to_ne_bytes();
    }
}

/// Returns the structure for a connection.
#[must_use]
pub fn of(info: &Info) -> Vec<u8> {
    let (stamps, sacks, scales, ecn) = info.extensions;
    // The last two are TCPI_OPT_ECN_SEEN and TCPI_OPT_SYN_DATA.
    let options = [stamps, sacks, scales, ecn, info.saw_capable, info.syn_data];
    let options = options.iter().enumerate().map(|(bit, &on)| u8::from(on) << bit).sum();
    let (send_scale, receive_scale) = info.window_scales;
    let mut out = Writer(vec![
        state_number(info.state),
        phase_number(info.phase),
        info.timeouts,
        info.probes,
        info.backoff,
        options,
        bits((send_scale, 4), (receive_scale, 4)),
        bits((info.application_limited.into(), 1), (info.fast_open_failure as u8, 2)),
    ]);
    out.words([
        micros(info.timeout),
        micros(info.ack_delay),
        info.segment_bytes,
        info.peer_segment_bytes,
        info.unacknowledged_segments,
        info.sacked_segments,
        info.lost_segments,
        info.retransmitted_segments,
        0,
        millis(info.since_sent),
        0,
        millis(info.since_received),
        millis(info.since_heard),
        info.path_mtu.into(),
        info.receive_window_bytes,
        micros(info.round_trip.unwrap_or_default()),
        micros(info.deviation),
        info.threshold_segments.unwrap_or(NO_THRESHOLD),
        info.window_segments,
        // Linux subtracts its time stamps (tcp_finish_connect).
        info.announced_segment_bytes - if stamps { TIME_STAMP_BYTES } else { 0 },
        info.reordering_segments.into(),
        micros(info.receiver_round_trip),
        info.receive_space_bytes,
        low(info.all_retransmitted_segments),
    ]);
    out.doubles([
        info.pacing_rate.unwrap_or(u64::MAX),
        u64::MAX,
        info.bytes_acknowledged,
        info.bytes_received,
    ]);
    out.words([
        low(info.segments.1),
        low(info.segments.0),
        info.unsent_bytes,
        info.shortest_round_trip.map_or(u32::MAX, micros),
        low(info.data_segments.0),
        low(info.data_segments.1),
    ]);
    let limited = [info.busy, info.window_limited, info.buffer_limited];
    out.doubles([info.delivery_rate.unwrap_or(0)]);
    out.doubles(limited.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)));
    out.words([low(info.delivered_segments), info.marked_segments]);
    out.doubles([info.bytes_sent, info.bytes_retransmitted]);
    out.words([
        info.duplicates_reported,
        info.reorderings.into(),
        info.out_of_order_segments,
        info.send_window_bytes,
        info.receive_window_bytes,
        0,
    ]);
    let (timeouts, recoveries) = info.all_timeouts;
    out.0.extend([timeouts, recoveries].iter().flat_map(|count| count.to_ne_bytes()));
    out.words([millis(info.timed_out)]);
    // The stack has nothing of what comes after that.
    out.0.resize(BYTES, 0);
    out.0
}

#[cfg(test)]
mod tests {
    use super::{BYTES, of_none};

    /// libc's structure ends where a kernel of 5.4 or so did; ours goes on after it.
    #[test]
    fn the_structure_is_at_least_as_long_as_what_libc_knows() {
        const { assert!(BYTES >= size_of::<libc::tcp_info>()) };
        assert_eq!(of_none()[0], 7);
    }
}
