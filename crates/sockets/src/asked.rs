//! Socket options: what a program has set, what the stack is told of it, and what is read back.

use std::time::Duration;

use nix::errno::Errno;
use uncork_attach::{MOST_BUFFER_BYTES, WINDOW_BYTES};
use uncork_stack::{Algorithm, FastOpenKeys, KeepAlive, SocketOption};

/// MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL.
const MOST_SECONDS: u32 = 32_767;
/// MAX_TCP_KEEPCNT, MAX_TCP_SYNCNT.
const MOST_TRIES: u32 = 127;
/// The least receive buffer of a connection, if its user says nothing.
const LEAST_ROOM_BYTES: u32 = 64 << 10;
/// INET_ECN_MASK: the bits of the traffic class that are TCP's own.
const ECN_BITS: u8 = 3;
/// Least values of SO_SNDBUF and SO_RCVBUF, as they are read back (SOCK_MIN_SNDBUF, SOCK_MIN_RCVBUF).
const LEAST_BUFFER_BYTES: (u32, u32) = (4608, 2304);
/// do_tcp_setsockopt: not below TCP_MIN_MSS, not above MAX_TCP_WINDOW.
const SEGMENT_BYTES: std::ops::RangeInclusive<u16> = 88..=32_767;

/// The meaning of an option that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The stack is to be told.
    Told(SocketOption),
    /// It is kept here, to be obeyed or read back.
    Kept,
    /// The option is not one of the stack's.
    Other,
}

/// An option as it was set: level, name and value.
pub type Setting = (i32, i32, Vec<u8>);

/// The options of linux/tcp.h that libc does not have.
pub(crate) const TCP_FASTOPEN_KEY: i32 = 33;
pub(crate) const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
/// The option of recvmsg(2) that tells how much is left; libc has the name for few targets only.
pub const TCP_INQ: i32 = 36;

/// What a program asks of TCP Fast Open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FastOpenAsked {
    /// How many connections of a listener may be open before their handshake is over (TCP_FASTOPEN).
    pub(crate) pending: u32,
    /// connect(2) leaves the SYN to the first data (TCP_FASTOPEN_CONNECT).
    pub(crate) connect: bool,
    /// No cookie is requested or sent (TCP_FASTOPEN_NO_COOKIE).
    pub(crate) without_cookie: bool,
    /// Keys of a listener's own (TCP_FASTOPEN_KEY).
    pub(crate) keys: Option<FastOpenKeys>,
}

/// Values that are read back as they were set, or that count only here.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    send_buffer_bytes: Option<u32>,
    receive_buffer_bytes: Option<u32>,
    most_segment_bytes: Option<u16>,
    not_sent_low_water: u32,
    no_delay: bool,
    cork: bool,
    /// Whether it is on, and for how many seconds.
    linger: (bool, u16),
    traffic_class: u8,
    congestion: Algorithm,
    user_timeout_millis: u32,
    syn_retries: Option<u8>,
    /// How many timeouts of a SYN-ACK it lasts (TCP_DEFER_ACCEPT).
    defer_accept: u8,
    pub(crate) fast_open: FastOpenAsked,
    keep_alive: Option<KeepAlive>,
    keep_alive_wanted: KeepAlive,
    /// SO_RCVTIMEO and SO_SNDTIMEO; none for ever.
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// SO_RCVLOWAT.
    pub(crate) receive_low_water: u32,
    /// MSG_ZEROCOPY is to report when the octets are free again (SO_ZEROCOPY), which only the kernel does.
    pub(crate) zero_copy: bool,
    /// recvmsg(2) is to report how much is left (TCP_INQ).
    pub(crate) tells_what_is_left: bool,
    /// ICMP errors end a connection at once (IP_RECVERR, IPV6_RECVERR): kept to be read back, and for the kernel.
    hard_errors: (bool, bool),
    /// What the stack is to be told when there is a connection.
    options: Vec<SocketOption>,
    /// All that was set and is known here, as it was set.
    settings: Vec<Setting>,
}

/// Returns whether an option counts only before there is a connection, or for a listener.
pub(crate) fn is_of_handshakes(level: i32, name: i32) -> bool {
    level == libc::SOL_TCP
        && matches!(
            name,
            libc::TCP_DEFER_ACCEPT
                | libc::TCP_FASTOPEN
                | libc::TCP_FASTOPEN_CONNECT
                | TCP_FASTOPEN_KEY
                | TCP_FASTOPEN_NO_COOKIE
        )
}

/// Reads a value that is 0 or 1.
fn flag(value: &[u8]) -> Result<bool, Errno> {
    match int(value)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads one key, or one and another that was in use before it (tcp_fastopen_reset_cipher).
fn keys(value: &[u8]) -> Result<FastOpenKeys, Errno> {
    let (keys, rest) = value.as_chunks();
    match (keys, rest) {
        ([primary], []) => Ok(FastOpenKeys::new(*primary, None)),
        ([primary, backup], []) => Ok(FastOpenKeys::new(*primary, Some(*backup))),
        _ => Err(Errno::EINVAL),
    }
}

/// The timeouts in which TCP_DEFER_ACCEPT counts: those of a SYN-ACK, of which the first is a second and each other one twice
/// the one before, up to two minutes (secs_to_retrans, retrans_to_secs).
mod deferral {
    /// TCP_RTO_MAX.
    const MOST_SECONDS: u32 = 120;

    /// Returns how many seconds have passed after each timeout.
    fn ends() -> impl Iterator<Item = u32> {
        let next = |timeout: &u32| Some((timeout * 2).min(MOST_SECONDS));
        std::iter::successors(Some(1), next).take(u8::MAX.into()).scan(0, |end, timeout| {
            *end += timeout;
            Some(*end)
        })
    }

    /// Returns how many timeouts it takes for so many seconds to pass.
    pub(super) fn timeouts(seconds: i32) -> u8 {
        let seconds = u32::try_from(seconds).unwrap_or(0);
        if seconds == 0 {
            return 0;
        }
        let before = ends().take_while(|&end| end < seconds).count();
        u8::try_from(before).unwrap_or(u8::MAX).saturating_add(1)
    }

    /// Returns how many seconds so many timeouts take.
    pub(super) fn seconds(timeouts: u8) -> u32 {
        ends().take(timeouts.into()).last().unwrap_or(0)
    }
}

fn int(value: &[u8]) -> Result<i32, Errno> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
}

fn unsigned(value: &[u8]) -> Result<u32, Errno> {
    u32::try_from(int(value)?).map_err(|_| Errno::EINVAL)
}

/// Reads a value that may not be zero, nor larger than `most`.
fn positive(value: &[u8], most: u32) -> Result<u32, Errno> {
    let value = unsigned(value)?;
    if (1..=most).contains(&value) { Ok(value) } else { Err(Errno::EINVAL) }
}

/// Reads the length of a buffer; a negative number is a large one (sk_setsockopt).
fn buffer_bytes(value: &[u8]) -> Result<u32, Errno> {
    Ok(int(value)?.cast_unsigned().min(MOST_BUFFER_BYTES))
}

fn octet(value: &[u8]) -> Result<u8, Errno> {
    u8::try_from(int(value)?).map_err(|_| Errno::EINVAL)
}

/// Reads a struct timeval; none for zero, which means for ever (socket(7)). A negative time does not wait at all
/// (sock_set_timeout), and reads as zero.
fn time(value: &[u8]) -> Result<Option<Duration>, Errno> {
    let word = |at: usize| {
        let bytes = value.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map(|bytes| i64::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
    };
    let (seconds, micros) = (word(0)?, word(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(Some(Duration::ZERO));
    };
    let micros = u64::try_from(micros).unwrap_or(0);
    let time = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Ok((!time.is_zero()).then_some(time))
}

fn of_time(time: Option<Duration>) -> Vec<u8> {
    let time = time.unwrap_or_default();
    let (seconds, micros) = (time.as_secs(), u64::from(time.subsec_micros()));
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

impl Asked {
    /// Returns whether Nagle's algorithm may hold back what is written (no TCP_NODELAY).
    pub(crate) fn may_delay(&self) -> bool {
        !self.no_delay
    }

    /// Returns what a connection is to be told when there is one, oldest first.
    #[must_use]
    pub fn options(&self) -> &[SocketOption] {
        &self.options
    }

    /// Returns whether connect(2) is to leave the SYN to the first data.
    #[must_use]
    pub fn connects_fast(&self) -> bool {
        self.fast_open.connect
    }

    /// Returns what was set, as it was set.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    fn keep(&mut self, option: SocketOption) {
        let kind = std::mem::discriminant(&option);
        self.options.retain(|other| std::mem::discriminant(other) != kind);
        self.options.push(option);
    }

    /// Does setsockopt(2).
    ///
    /// # Errors
    ///
    /// As the call has them.
    pub fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<Meaning, Errno> {
        let meaning = match level {
            libc::SOL_SOCKET => self.set_socket(name, value),
            libc::SOL_TCP => self.set_tcp(name, value),
            libc::SOL_IP if name == libc::IP_TOS => {
                // One octet is accepted as well (ip(7)).
                let short = value.first().copied().filter(|_| value.len() < 4);
                let class = short.map_or_else(|| int(value), |class| Ok(class.into()))?;
                // Higher bits are cut off (ip_setsockopt).
                self.set_class(class.to_le_bytes()[0])
            }
            libc::SOL_IP if name == libc::IP_RECVERR => {
                self.hard_errors.0 = value.iter().take(4).any(|octet| *octet != 0);
                Ok(Meaning::Kept)
            }
            libc::SOL_IPV6 if name == libc::IPV6_RECVERR => {
                self.hard_errors.1 = int(value)? != 0;
                Ok(Meaning::Kept)
            }
            libc::SOL_IPV6 if name == libc::IPV6_TCLASS => match int(value)? {
                // The default.
                -1 => self.set_class(0),
                _ => self.set_class(octet(value)?),
            },
            _ => Ok(Meaning::Other),
        }?;
        if let Meaning::Told(option) = meaning {
            self.keep(option);
        }
        // What counts only while there is no connection is none of a connection's settings.
        if meaning != Meaning::Other && !is_of_handshakes(level, name) {
            self.settings
                .retain(|(its_level, its_name, _)| (*its_level, *its_name) != (level, name));
            self.settings.push((level, name, value.to_vec()));
        }
        Ok(meaning)
    }

    fn set_class(&mut self, class: u8) -> Result<Meaning, Errno> {
        let class = class & !ECN_BITS;
        self.traffic_class = class;
        Ok(Meaning::Told(SocketOption::TrafficClass(class)))
    }

    /// Returns for how many octets a reader waits: never more than fit in beside as many that are on their way.
    pub(crate) fn low_water(&self) -> u32 {
        self.receive_low_water.clamp(1, WINDOW_BYTES / 2)
    }

    fn set_socket(&mut self, name: i32, value: &[u8]) -> Result<Meaning, Errno> {
        let option = match name {
            libc::SO_SNDBUF => {
                let bytes = buffer_bytes(value)?;
                self.send_buffer_bytes = Some(bytes.saturating_mul(2).max(LEAST_BUFFER_BYTES.0));
                SocketOption::SendBuffer(bytes)
            }
            libc::SO_RCVBUF => {
                let bytes = buffer_bytes(value)?;
                self.receive_buffer_bytes = Some(bytes.saturating_mul(2).max(LEAST_BUFFER_BYTES.1));
                SocketOption::ReceiveBuffer(bytes)
            }
            libc::SO_KEEPALIVE => {
                self.keep_alive = (int(value)? != 0).then_some(self.keep_alive_wanted);
                SocketOption::KeepAlive(self.keep_alive)
            }
            libc::SO_LINGER => {
                // struct linger: whether it is on, and for how many seconds.
                let seconds = unsigned(value.get(4..).ok_or(Errno::EINVAL)?)?;
                let seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
                // Where it is turned off, the seconds stay.
                let on = int(value)? != 0;
                self.linger = (on, if on { seconds } else { self.linger.1 });
                SocketOption::Linger(on.then_some(seconds))
            }
            libc::SO_RCVTIMEO => {
                self.receive_timeout = time(value)?;
                return Ok(Meaning::Kept);
            }
            libc::SO_SNDTIMEO => {
                self.send_timeout = time(value)?;
                return Ok(Meaning::Kept);
            }
            libc::SO_RCVLOWAT => {
                // Not more than ever comes together (tcp_set_rcvlowat).
                let most = self.receive_buffer_bytes.map_or(u32::MAX, |bytes| bytes / 2);
                let bytes = u32::try_from(int(value)?).unwrap_or(i32::MAX.cast_unsigned());
                self.receive_low_water = bytes.min(most).max(1);
                let room = self.low_water().saturating_mul(2);
                if self.receive_buffer_bytes.is_some() || room <= LEAST_ROOM_BYTES {
                    return Ok(Meaning::Kept);
                }
                SocketOption::ReceiveAtLeast(room)
            }
            libc::SO_ZEROCOPY => {
                self.zero_copy = flag(value)?;
                return Ok(Meaning::Kept);
            }
            _ => return Ok(Meaning::Other),
        };
        Ok(Meaning::Told(option))
    }

    /// Sets an option of TCP Fast Open, which counts where a socket listens or connects, and is looked at there.
    fn set_fast_open(&mut self, name: i32, value: &[u8]) -> Result<(), Errno> {
        let asked = &mut self.fast_open;
        match name {
            libc::TCP_FASTOPEN => asked.pending = unsigned(value)?,
            libc::TCP_FASTOPEN_CONNECT => asked.connect = flag(value)?,
            TCP_FASTOPEN_KEY => asked.keys = Some(keys(value)?),
            _ => asked.without_cookie = flag(value)?,
        }
        Ok(())
    }

    fn set_tcp(&mut self, name: i32, value: &[u8]) -> Result<Meaning, Errno> {
        let option = match name {
            libc::TCP_CONGESTION => {
                self.congestion = match value.split(|octet| *octet == 0).next() {
                    Some(b"cubic") => Algorithm::Cubic,
                    Some(b"reno") => Algorithm::NewReno,
                    // The kernel may have it.
                    _ => return Ok(Meaning::Other),
                };
                SocketOption::Congestion(self.congestion)
            }
            libc::TCP_NODELAY => {
                self.no_delay = int(value)? != 0;
                SocketOption::NoDelay(self.no_delay)
            }
            libc::TCP_CORK => {
                self.cork = int(value)? != 0;
                SocketOption::Cork(self.cork)
            }
            libc::TCP_SYNCNT => {
                let tries = u8::try_from(positive(value, MOST_TRIES)?).unwrap_or(u8::MAX);
                self.syn_retries = Some(tries);
                SocketOption::SynRetries(tries)
            }
            libc::TCP_FASTOPEN
            | libc::TCP_FASTOPEN_CONNECT
            | TCP_FASTOPEN_KEY
            | TCP_FASTOPEN_NO_COOKIE => {
                return self.set_fast_open(name, value).map(|()| Meaning::Kept);
            }
            TCP_INQ => {
                self.tells_what_is_left = flag(value)?;
                return Ok(Meaning::Kept);
            }
            libc::TCP_DEFER_ACCEPT => {
                self.defer_accept = deferral::timeouts(int(value)?);
                SocketOption::DeferAccept(self.defer_accept)
            }
            libc::TCP_QUICKACK => SocketOption::QuickAck(int(value)? != 0),
            libc::TCP_MAXSEG => {
                let bytes = u16::try_from(int(value)?).map_err(|_| Errno::EINVAL)?;
                if !SEGMENT_BYTES.contains(&bytes) {
                    return Err(Errno::EINVAL);
                }
                self.most_segment_bytes = Some(bytes);
                SocketOption::MaxSegment(bytes)
            }
            libc::TCP_NOTSENT_LOWAT => {
                self.not_sent_low_water = int(value)?.cast_unsigned();
                let bytes = self.not_sent_low_water;
                SocketOption::NotSentLowWater((bytes > 0).then_some(bytes))
            }
            libc::TCP_USER_TIMEOUT => {
                self.user_timeout_millis = unsigned(value)?;
                let millis = u64::from(self.user_timeout_millis);
                SocketOption::UserTimeout((millis > 0).then(|| Duration::from_millis(millis)))
            }
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => {
                return self.set_keep_alive(name, value);
            }
            _ => return Ok(Meaning::Other),
        };
        Ok(Meaning::Told(option))
    }

    fn set_keep_alive(&mut self, name: i32, value: &[u8]) -> Result<Meaning, Errno> {
        let most = if name == libc::TCP_KEEPCNT { MOST_TRIES } else { MOST_SECONDS };
        Ok(self.keep_alive_as(name, positive(value, most)?))
    }

    fn keep_alive_as(&mut self, name: i32, number: u32) -> Meaning {
        let wanted = &mut self.keep_alive_wanted;
        match name {
            libc::TCP_KEEPIDLE => wanted.idle = Duration::from_secs(number.into()),
            libc::TCP_KEEPINTVL => wanted.interval = Duration::from_secs(number.into()),
            _ => wanted.probes = u8::try_from(number).unwrap_or(u8::MAX),
        }
        if self.keep_alive.is_none() {
            return Meaning::Kept;
        }
        self.keep_alive = Some(*wanted);
        Meaning::Told(SocketOption::KeepAlive(self.keep_alive))
    }

    /// Takes over what the kernel's descriptor says of a socket that is new here, as if it was set, also where no program could
    /// set it so: then it is the host's (net.ipv4.tcp_keepalive_time may be a day).
    pub fn hear(&mut self, level: i32, name: i32, value: &[u8]) {
        let is_of_probes =
            matches!(name, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT);
        if self.set(level, name, value).is_err()
            && level == libc::SOL_TCP
            && is_of_probes
            && let Ok(number) = unsigned(value)
            && let Meaning::Told(option) = self.keep_alive_as(name, number)
        {
            self.keep(option);
        }
    }

    /// Does getsockopt(2) of what was set, or is so by default; nothing for what is not known here. Buffers that were not
    /// set are as long as `buffers` says: to send, and to receive.
    #[must_use]
    pub fn get(&self, level: i32, name: i32, buffers: (u32, u32)) -> Option<Vec<u8>> {
        let wanted = &self.keep_alive_wanted;
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.send_buffer_bytes.unwrap_or(buffers.0),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.receive_buffer_bytes.unwrap_or(buffers.1),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM.cast_unsigned(),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive.is_some().into(),
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => self.receive_low_water.max(1),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Some(of_time(self.receive_timeout)),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Some(of_time(self.send_timeout)),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, seconds) = self.linger;
                return Some([u32::from(on), seconds.into()].map(u32::to_ne_bytes).concat());
            }
            (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class.into()
            }
            (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => self.zero_copy.into(),
            (libc::SOL_IP, libc::IP_RECVERR) => self.hard_errors.0.into(),
            (libc::SOL_IPV6, libc::IPV6_RECVERR) => self.hard_errors.1.into(),
            (libc::SOL_TCP, TCP_INQ) => self.tells_what_is_left.into(),
            (libc::SOL_TCP, libc::TCP_NODELAY) => self.no_delay.into(),
            (libc::SOL_TCP, libc::TCP_CORK) => self.cork.into(),
            (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT) => self.not_sent_low_water,
            (libc::SOL_TCP, libc::TCP_USER_TIMEOUT) => self.user_timeout_millis,
            (libc::SOL_TCP, libc::TCP_SYNCNT) => u32::from(self.syn_retries?),
            (libc::SOL_TCP, libc::TCP_FASTOPEN) => self.fast_open.pending,
            (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT) => self.fast_open.connect.into(),
            (libc::SOL_TCP, TCP_FASTOPEN_NO_COOKIE) => self.fast_open.without_cookie.into(),
            // No program that has a key needs it from here.
            (libc::SOL_TCP, TCP_FASTOPEN_KEY) => return Some(Vec::new()),
            (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT) => deferral::seconds(self.defer_accept),
            (libc::SOL_TCP, libc::TCP_KEEPIDLE) => seconds(wanted.idle),
            (libc::SOL_TCP, libc::TCP_KEEPINTVL) => seconds(wanted.interval),
            (libc::SOL_TCP, libc::TCP_KEEPCNT) => wanted.probes.into(),
            // Before there is a connection: what was asked for, or RFC 1122's default.
            (libc::SOL_TCP, libc::TCP_MAXSEG) => self.most_segment_bytes.unwrap_or(536).into(),
            (libc::SOL_TCP, libc::TCP_CONGESTION) => {
                let name: &[u8] = match self.congestion {
                    Algorithm::Cubic => b"cubic",
                    Algorithm::NewReno => b"reno",
                };
                let mut padded = name.to_vec();
                // TCP_CA_NAME_MAX.
                padded.resize(16, 0);
                return Some(padded);
            }
            _ => return None,
        };
        Some(value.to_ne_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(asked: &mut Asked, level: i32, name: i32, value: i32) -> Result<Meaning, Errno> {
        asked.set(level, name, &value.to_ne_bytes())
    }

    #[test]
    fn the_last_value_of_an_option_is_what_a_connection_is_told() {
        let mut asked = Asked::default();
        for value in [1, 0, 7] {
            set(&mut asked, libc::SOL_TCP, libc::TCP_NODELAY, value).unwrap();
        }
        assert_eq!(asked.options(), [SocketOption::NoDelay(true)]);
        let read = asked.get(libc::SOL_TCP, libc::TCP_NODELAY, (0, 0)).unwrap();
        assert_eq!(read, 1_u32.to_ne_bytes());
    }

    #[test]
    fn times_are_read_back_and_bad_ones_refused() {
        let mut asked = Asked::default();
        let bytes = [1_i64.to_ne_bytes(), 500_000_i64.to_ne_bytes()].concat();
        assert_eq!(asked.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &bytes), Ok(Meaning::Kept));
        assert_eq!(asked.receive_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(asked.get(libc::SOL_SOCKET, libc::SO_RCVTIMEO, (0, 0)), Some(bytes));
        let bad = [0_i64.to_ne_bytes(), 1_000_000_i64.to_ne_bytes()].concat();
        assert_eq!(asked.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &bad), Err(Errno::EDOM));
        assert_eq!(asked.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &[0; 4]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_negative_time_is_none_at_all_and_zero_is_for_ever() {
        let mut asked = Asked::default();
        let bytes =
            |seconds: i64, micros: i64| [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat();
        for micros in [0, 999_999] {
            let negative = bytes(-1, micros);
            assert_eq!(
                asked.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &negative),
                Ok(Meaning::Kept)
            );
            assert_eq!(asked.receive_timeout, Some(Duration::ZERO));
            assert_eq!(asked.get(libc::SOL_SOCKET, libc::SO_RCVTIMEO, (0, 0)), Some(bytes(0, 0)));
        }
        let zero = bytes(0, 0);
        assert_eq!(asked.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &zero), Ok(Meaning::Kept));
        assert_eq!(asked.receive_timeout, None);
    }

    #[test]
    fn probes_are_told_only_while_they_are_wanted() {
        let mut asked = Asked::default();
        let idle = set(&mut asked, libc::SOL_TCP, libc::TCP_KEEPIDLE, 7);
        assert_eq!(idle, Ok(Meaning::Kept));
        let on = set(&mut asked, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
        let Meaning::Told(SocketOption::KeepAlive(Some(probes))) = on else { panic!("{on:?}") };
        assert_eq!(probes.idle, Duration::from_secs(7));
    }

    #[test]
    fn probes_are_as_the_host_has_them_where_no_program_could_set_them_so() {
        let (mut asked, day) = (Asked::default(), 86_400_u32.to_ne_bytes());
        let refused = asked.set(libc::SOL_TCP, libc::TCP_KEEPIDLE, &day);
        assert_eq!(refused, Err(Errno::EINVAL));
        asked.hear(libc::SOL_TCP, libc::TCP_KEEPIDLE, &day);
        asked.hear(libc::SOL_TCP, libc::TCP_KEEPCNT, &200_u32.to_ne_bytes());
        asked.hear(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_u32.to_ne_bytes());
        let told =
            KeepAlive { idle: Duration::from_secs(86_400), probes: 200, ..KeepAlive::default() };
        assert_eq!(asked.options(), [SocketOption::KeepAlive(Some(told))]);
        let read = asked.get(libc::SOL_TCP, libc::TCP_KEEPIDLE, (0, 0));
        assert_eq!(read.as_deref(), Some(&day[..]));
        // The kernel's socket that the connection may be handed to has the host's values anyhow.
        assert!(asked.settings().iter().all(|(level, ..)| *level == libc::SOL_SOCKET));
    }

    #[test]
    fn a_deferral_is_read_back_as_the_timeouts_that_it_takes() {
        // As Linux 6.18 answers; only a listener has it.
        for (asked, told) in
            [(-1, 0), (0, 0), (1, 1), (2, 3), (3, 3), (4, 7), (30, 31), (127, 127), (128, 247)]
        {
            let mut one = Asked::default();
            set(&mut one, libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, asked).unwrap();
            let read = one.get(libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, (0, 0)).unwrap();
            assert_eq!(read, u32::to_ne_bytes(told), "{asked}");
            assert!(one.settings().is_empty());
        }
        let mut one = Asked::default();
        set(&mut one, libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, i32::MAX).unwrap();
        assert_eq!(one.options(), [SocketOption::DeferAccept(u8::MAX)]);
    }

    #[test]
    fn a_low_water_of_nothing_is_the_hosts() {
        // tcp_notsent_lowat(); -1 is no limit at all, whatever the host has.
        for (asked, meant) in [(1, Some(1)), (0, None), (-1, Some(u32::MAX))] {
            let mut one = Asked::default();
            let meaning = set(&mut one, libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, asked);
            assert_eq!(meaning, Ok(Meaning::Told(SocketOption::NotSentLowWater(meant))));
            let read = one.get(libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, (0, 0)).unwrap();
            assert_eq!(read, asked.to_ne_bytes());
        }
    }

    #[test]
    fn what_the_stack_does_not_have_is_somebody_elses() {
        let mut asked = Asked::default();
        let priority = set(&mut asked, libc::SOL_SOCKET, libc::SO_PRIORITY, 1);
        assert_eq!(priority, Ok(Meaning::Other));
        assert_eq!(asked.get(libc::SOL_SOCKET, libc::SO_PRIORITY, (0, 0)), None);
    }
}
