//! Conversion of the structures of `src/bpf/state.h` to the doctor's events.

use std::time::Duration;

use uncork_doctor::Histogram;
use uncork_doctor::live::{
    AckTimer, Astray, Event, Held, Lost, Options, Origin, Queue, Release, Socket, Why, Writing,
};

use crate::bytes::Bytes;
use crate::told::{Stack, Told};

/// `TIMES` and `SIZES` of `state.h`.
const TIMES: usize = 112;
const SIZES: usize = 20;
/// TCP_NAGLE_OFF and TCP_NAGLE_CORK (net/tcp.h).
const NAGLE_OFF: u32 = 1;
const NAGLE_CORK: u32 = 2;
/// Interactive from one exchange on (TCP_PINGPONG_THRESH; it was three for a while).
const PINGPONG: u32 = 1;
/// Levels of options (linux/socket.h, linux/in6.h); 0, which is IPPROTO_IP, is reported as another number.
const SOL_SOCKET: u32 = 1;
const SOL_IPV6: u32 = 41;
/// `ON_LISTENER` and `ON_NO_TCP` of `state.h`.
const ON_LISTENER: u32 = 1;
const ON_NO_TCP: u32 = 2;
/// TCP_CA_Loss: the retransmission timer has expired.
const CA_LOSS: u32 = 4;

/// Reads one record; `None` if the programs and this reader disagree about its layout.
pub(crate) fn read(bytes: &[u8]) -> Option<Told> {
    let mut from = Bytes::new(bytes);
    let told = match from.u32() {
        1 => {
            let (held, place) = held(&mut from)?;
            Told::Event { event: Event::Held(held), place }
        }
        2 => Told::of(Event::AckTimer(ack_timer(&mut from))),
        3 => Told::of(Event::Lost(lost(&mut from))),
        4 => Told::of(Event::Socket(Box::new(socket(&mut from)?))),
        5 => program(&mut from),
        6 => Told::Stack(stack(&mut from)),
        _ => return None,
    };
    (!from.short()).then_some(told)
}

fn program(from: &mut Bytes<'_>) -> Told {
    let (pid, octets, _padding) = (from.u32(), from.u32(), from.u32());
    Told::Program { pid, arguments: from.rest(octets as usize).to_vec() }
}

fn stack(from: &mut Bytes<'_>) -> Stack {
    let (pid, place) = (from.u32(), from.u64());
    let (ip, sp, fp, lr) = (from.u64(), from.u64(), from.u64(), from.u64());
    let octets = usize::try_from(from.u64()).unwrap_or(usize::MAX);
    Stack { pid, place, ip, sp, fp, lr, copy: from.rest(octets).to_vec() }
}

fn held(from: &mut Bytes<'_>) -> Option<(Held, Option<u64>)> {
    let why = match from.u32() {
        1 => Why::Nagle,
        2 => Why::Cork,
        3 => Why::More,
        4 => Why::WindowShut,
        5 => Why::LoneSegment,
        _ => return None,
    };
    let (socket, ends, writer, inode) = (from.u64(), from.ends(), from.who(), from.u64());
    let (begin, end, message_begin, offset) = (from.ns(), from.ns(), from.ns(), from.u64());
    let release = match from.u32() {
        1 => Release::Ack,
        2 => Release::Write,
        3 => Release::Option,
        4 => Release::Timer,
        _ => Release::End,
    };
    let (bytes, outstanding_bytes, before_bytes) = (from.u32(), from.u32(), from.u32());
    let (mss, nonagle, _srtt, min_rtt) = (from.u32(), from.u32(), from.us(), from.us());
    let place = Some(from.u64()).filter(|&place| place != 0);
    let held = Held {
        socket,
        ends,
        writer,
        inode,
        why,
        release,
        begin,
        end: end.max(begin),
        message_begin: message_begin.min(begin),
        offset,
        bytes,
        outstanding_bytes,
        before_bytes,
        mss,
        nodelay: nonagle & NAGLE_OFF != 0,
        min_rtt: known(min_rtt),
        stack: Vec::new(),
    };
    Some((held, place))
}

fn ack_timer(from: &mut Bytes<'_>) -> AckTimer {
    let _padding = from.u32();
    let (socket, ends, inode) = (from.u64(), from.ends(), from.u64());
    let (at, held, offset) = (from.ns(), from.ns(), from.u64());
    let (bytes, segments_in, quick_credits) = (from.u32(), from.u32(), from.u32());
    let interactive = from.u32() >= PINGPONG;
    let _peer = from.u64();
    AckTimer {
        socket,
        ends,
        inode,
        at,
        held,
        offset,
        bytes,
        segments_in,
        quick_credits,
        interactive,
    }
}

fn lost(from: &mut Bytes<'_>) -> Lost {
    let ca_state = from.u32();
    let (socket, ends, at, waited) = (from.u64(), from.ends(), from.ns(), from.ns());
    let (bytes, timeouts, shut, _srtt) = (from.u32(), from.u32(), from.u32(), from.us());
    let (timeout, window_shut) = (ca_state == CA_LOSS || timeouts > 0, shut != 0);
    Lost { socket, ends, at, waited, bytes, timeout, window_shut }
}

fn socket(from: &mut Bytes<'_>) -> Option<Socket> {
    let _padding = from.u32();
    let until = from.ns();
    let (socket, ends) = (from.u64(), from.ends());
    let (owner, writer, inode, fd) = (from.who(), from.who(), from.u64(), from.i32());
    let origin = match from.u32() {
        1 => Origin::Opened,
        2 => Origin::Accepted,
        3 => Origin::Found,
        4 => Origin::Peer,
        _ => return None,
    };
    let (since, _last) = (from.ns(), from.ns());
    let (_came, _writer) = (from.u64(), from.u64());
    let counters = Counters::read(from);
    let mut options = options(from);
    skip_current(from);
    let sums = Sums::read(from);
    let (srtt, min_rtt, mss) = (from.us(), from.us(), from.u32());
    let nonagle = from.u32();
    let _duplicates = from.u64();
    options.nodelay = nonagle & NAGLE_OFF != 0;
    options.cork = nonagle & NAGLE_CORK != 0;
    let (ack_timers, _state) = (from.u32(), from.u32());
    let (turns, waits) = (from.u32s::<TIMES>(), from.u32s::<TIMES>());
    let turns = times(&turns, &from.u64s::<TIMES>(), sums.turn_longest);
    let waits = times(&waits, &from.u64s::<TIMES>(), sums.wait_longest);
    let (by_size, by_segments) = (from.u32s::<SIZES>(), from.u32s::<SIZES>());
    let (sizes, segments) = (from.u64s::<SIZES>(), from.u64s::<SIZES>());
    let mut writing = sums.writing;
    writing.typical_bytes = typical(&by_size, &sizes);
    writing.typical_segments = typical(&by_segments, &segments);
    Some(Socket {
        socket,
        ends,
        origin,
        owner,
        writer,
        inode,
        fd: (fd >= 0).then_some(fd),
        since,
        until: until.max(since),
        segments_out: counters.segments_out,
        segments_in: counters.segments_in,
        bytes_out: counters.bytes_out.saturating_sub(counters.bytes_again),
        bytes_in: counters.bytes_in,
        // Window probes, and segments that the receiver had already, were not lost.
        retransmissions: counters.retransmissions.saturating_sub(sums.needless),
        window_limited: counters.window_limited,
        busy: counters.busy,
        options,
        writing,
        turns,
        turn_time: sums.turn_time,
        waits,
        wait_time: sums.wait_time,
        short_holds: sums.short_holds,
        queue: sums.queue,
        srtt,
        min_rtt: known(min_rtt),
        mss,
        ack_timers,
        awaited_acks: sums.awaited_acks,
        awaited_ack_time: sums.awaited_ack_time,
    })
}

struct Counters {
    bytes_out: u64,
    bytes_in: u64,
    bytes_again: u64,
    segments_out: u32,
    segments_in: u32,
    retransmissions: u32,
    window_limited: Duration,
    busy: Duration,
}

impl Counters {
    fn read(from: &mut Bytes<'_>) -> Self {
        let (bytes_out, bytes_in, bytes_again) = (from.u64(), from.u64(), from.u64());
        let (segments_out, segments_in, retransmissions) = (from.u32(), from.u32(), from.u32());
        let (window_limited, _buffer, busy) = (from.us(), from.us(), from.us());
        Self {
            bytes_out,
            bytes_in,
            bytes_again,
            segments_out,
            segments_in,
            retransmissions,
            window_limited,
            busy,
        }
    }
}

fn options(from: &mut Bytes<'_>) -> Options {
    let (nodelay_on, nodelay_off) = (from.some_ns(), from.some_ns());
    let (nodelay_calls, cork_calls) = (from.u32(), from.u32());
    let (quickack_calls, _pushes, _pushed) = (from.u32(), from.u32(), from.u64());
    let nodelay_astray = astray(from);
    Options {
        nodelay_on,
        nodelay_off,
        nodelay_calls,
        cork_calls,
        quickack_calls,
        nodelay_astray,
        ..Options::default()
    }
}

/// Reads where TCP_NODELAY was set in vain. What concerns this very socket takes precedence.
fn astray(from: &mut Bytes<'_>) -> Option<Astray> {
    let (level, length, elsewhere) = (from.u32(), from.u32(), from.u32());
    let _padding = from.u32();
    match (level, length, elsewhere) {
        (1.., _, _) => Some(Astray::Level(match level {
            SOL_SOCKET => "SOL_SOCKET, where option 1 is SO_DEBUG",
            SOL_IPV6 => "IPPROTO_IPV6, where option 1 is IPV6_ADDRFORM",
            _ => "IPPROTO_IP, where option 1 is IP_TOS",
        })),
        (_, 1.., _) => Some(Astray::Short { octets: length - 1 }),
        (_, _, ON_LISTENER) => Some(Astray::Listener),
        (_, _, ON_NO_TCP) => Some(Astray::NotTcp),
        _ => None,
    }
}

/// Skips the message that was being written, and the held bytes, which are no longer of use.
fn skip_current(from: &mut Bytes<'_>) {
    let _message: (u64, [u32; 6]) = (from.u64(), from.u32s());
    let _held: (u64, [u32; 4]) = (from.u64(), from.u32s());
    let _place: (u64, [u32; 2]) = (from.u64(), from.u32s());
}

struct Sums {
    writing: Writing,
    turn_time: Duration,
    turn_longest: Duration,
    wait_time: Duration,
    wait_longest: Duration,
    short_holds: (u64, Duration),
    queue: Queue,
    awaited_acks: u32,
    awaited_ack_time: Duration,
    needless: u32,
}

impl Sums {
    fn read(from: &mut Bytes<'_>) -> Self {
        let _begun = from.u64();
        let (writes, bytes, messages, message_bytes) =
            (from.u64(), from.u64(), from.u64(), from.u64());
        let (message_segments, message_writes) = (from.u64(), from.u64());
        let (_turns, turn_time, turn_longest) = (from.u64(), from.ns(), from.ns());
        let (_waits, wait_time, wait_longest) = (from.u64(), from.ns(), from.ns());
        let time = from.ns();
        let short_holds = (from.u64(), from.ns());
        let queue = queue(from);
        let awaited_ack_time = from.ns();
        let (awaited_acks, needless) = (from.u32(), from.u32());
        let _probe: ([u64; 2], [u32; 4]) = (from.u64s(), from.u32s());
        let writing = Writing {
            writes,
            bytes,
            messages,
            message_writes,
            message_segments,
            message_bytes,
            time,
            ..Writing::default()
        };
        Self {
            writing,
            turn_time,
            turn_longest,
            wait_time,
            wait_longest,
            short_holds,
            queue,
            awaited_acks,
            awaited_ack_time,
            needless,
        }
    }
}

fn queue(from: &mut Bytes<'_>) -> Queue {
    let (samples, rtt_us, _bytes) = (from.u64(), from.u64(), from.u64());
    let (longest_rtt, most_bytes) = (from.us(), from.u32());
    let mean_rtt = Duration::from_micros(rtt_us.checked_div(samples).unwrap_or(0));
    Queue { samples, mean_rtt, longest_rtt, most_bytes }
}

/// Converts a round-trip time: the kernel says ~0 until it has measured one.
fn known(rtt: Duration) -> Duration {
    if rtt == Duration::from_micros(u32::MAX.into()) { Duration::ZERO } else { rtt }
}

/// Inverts `note_time` of `common.h`: each time counts as the mean of its step, the longest exactly.
fn times(counts: &[u32; TIMES], sums: &[u64; TIMES], longest: Duration) -> Histogram {
    let mut histogram = Histogram::new();
    let last = counts.iter().rposition(|&count| count > 0);
    for (step, (&count, &sum)) in counts.iter().zip(sums).enumerate() {
        let mut sum = Duration::from_nanos(sum);
        let mut count = count;
        if last == Some(step) {
            count -= 1;
            sum = sum.saturating_sub(longest);
        }
        if let Some(mean) = sum.checked_div(count) {
            histogram.record_times(mean.min(longest), count);
        }
    }
    if last.is_some() {
        histogram.record(longest);
    }
    histogram
}

/// Returns the mean of the step that contains the median: exact if all values are alike.
fn typical(counts: &[u32; SIZES], sums: &[u64; SIZES]) -> u32 {
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let mut below = 0;
    for (&count, &sum) in counts.iter().zip(sums) {
        below += u64::from(count);
        if count > 0 && below * 2 >= total {
            return u32::try_from(sum / u64::from(count)).unwrap_or(u32::MAX);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::*;

    /// The reader consumes exactly the size that the compiler gave the structure.
    #[test]
    fn a_socket_is_read_to_its_last_octet() {
        let object = include_bytes!(concat!(env!("OUT_DIR"), "/doctor.bpf.o"));
        let object = ObjectBuilder::default().open_memory(object).unwrap();
        let tracks = object.maps().find(|map| map.name() == "tracks").unwrap();
        let mut bytes = vec![0; 16 + tracks.value_size() as usize];
        bytes[0] = 4;
        // `origin` follows the cookie, the addresses, two of `struct who`, inode and descriptor.
        let origin = 16 + 8 + 40 + 24 + 24 + 8 + 4;
        bytes[origin] = 2;
        let Told::Event { event: Event::Socket(socket), place } = read(&bytes).unwrap() else {
            panic!("not a socket")
        };
        assert_eq!((socket.origin, place), (Origin::Accepted, None));
        assert!(read(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [
            &[][..],
            &[9, 0, 0, 0],
            &[5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 77, 0, 0, 0],
            &[2, 0, 0, 0],
        ] {
            assert!(read(bytes).is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn times_are_read_back_as_the_mean_of_their_step() {
        let (mut counts, mut sums) = ([0; TIMES], [0; TIMES]);
        // From 49,152 to 57,344 µs: 2¹⁵ and the third quarter from there.
        let step = (15 - 1) * 4 + 2;
        (counts[step], sums[step]) = (3, (50_100 + 50_140 + 50_200) * 1000);
        let read = times(&counts, &sums, Duration::from_micros(50_200));
        let spread = read.spread();
        assert_eq!((spread.count, spread.max), (3, Duration::from_micros(50_200)));
        let off = spread.p50.abs_diff(Duration::from_micros(50_120));
        assert!(off < Duration::from_micros(1_000), "{spread:?}");
    }
}
