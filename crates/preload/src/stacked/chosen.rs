//! What a program sets by setsockopt(2) before there is a connection, or on a listener for connections to come. Most of it can be
//! read back from the kernel's socket; some options have a value whether the program has set them or not, so it is noted that it
//! has; and of some only the kernel knows the meaning: such a socket stays the kernel's.

use core::sync::atomic::Ordering::Relaxed;

use libc::{c_int, c_void, socklen_t};
use uncork_posix::socket::{Socket, chosen};
use uncork_sockets::{Asked, Meaning, Setting, TCP_INQ};

use super::calls::{OPTIONS, option_of};
use super::{faults, outside};
use crate::POSIX;
use crate::raw::raw;

/// TCP_CA_NAME_MAX.
const NAME_BYTES: usize = 16;

/// Options that are passed on with the value that the kernel's socket has: level, name, octets, and the bit that says that the
/// program has set it.
const NOTED: [(c_int, c_int, usize, u32); 13] = [
    (libc::SOL_SOCKET, libc::SO_SNDBUF, 4, chosen::SEND_BUFFER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF, 4, chosen::RECEIVE_BUFFER),
    (libc::SOL_TCP, libc::TCP_MAXSEG, 4, chosen::MAX_SEGMENT),
    (libc::SOL_TCP, libc::TCP_CONGESTION, NAME_BYTES, chosen::CONGESTION),
    (libc::SOL_TCP, libc::TCP_QUICKACK, 4, chosen::QUICK_ACK),
    (libc::SOL_TCP, libc::TCP_SYNCNT, 4, chosen::SYN_RETRIES),
    (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, 4, chosen::DEFER_ACCEPT),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT, 4, chosen::FAST_OPEN),
    (libc::SOL_TCP, TCP_FASTOPEN_NO_COOKIE, 4, chosen::NO_COOKIE),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY, 4, chosen::ZERO_COPY),
    (libc::SOL_TCP, TCP_INQ, 4, chosen::INQ),
    (libc::SOL_IP, libc::IP_RECVERR, 4, chosen::HARD_ERRORS),
    (libc::SOL_IPV6, libc::IPV6_RECVERR, 4, chosen::HARD_ERRORS_V6),
];

/// Options of listeners, which are passed on whether or not the program has set them: another program may have (systemd), or the
/// host's settings (net.ipv4.tcp_fastopen). None of them is read back from the library.
const OF_LISTENERS: [(c_int, usize); 4] = [
    (libc::TCP_DEFER_ACCEPT, 4),
    (libc::TCP_FASTOPEN, 4),
    (TCP_FASTOPEN_NO_COOKIE, 4),
    (TCP_FASTOPEN_KEY, FAST_OPEN_KEY_BYTES),
];

/// Options of which only the kernel knows the meaning, as far as they can be read back: level, name, most octets.
const KERNELS: [(c_int, c_int, usize); 19] = [
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, libc::IFNAMSIZ),
    (libc::SOL_SOCKET, libc::SO_MARK, 4),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, 4),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 4),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 4),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 4),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, 8),
    (libc::SOL_IP, libc::IP_TTL, 4),
    (libc::SOL_IP, libc::IP_MINTTL, 4),
    (libc::SOL_IP, libc::IP_TRANSPARENT, 4),
    (libc::SOL_IP, libc::IP_MTU_DISCOVER, 4),
    (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, 4),
    (libc::SOL_IPV6, IPV6_MINHOPCOUNT, 4),
    (libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 4),
    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, 4),
    (libc::SOL_TCP, libc::TCP_WINDOW_CLAMP, 4),
    (libc::SOL_TCP, libc::TCP_LINGER2, 4),
    (libc::SOL_TCP, libc::TCP_SAVE_SYN, 4),
];

/// Two keys (TCP_FASTOPEN_KEY_MAX).
const FAST_OPEN_KEY_BYTES: usize = 32;

/// Constants that libc does not have: linux/in.h, linux/in6.h, asm-generic/socket.h, linux/tcp.h.
const IP_LOCAL_PORT_RANGE: c_int = 51;
const IPV6_FREEBIND: c_int = 78;
const IPV6_MINHOPCOUNT: c_int = 73;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const SO_TXREHASH: c_int = 74;
const TCP_FASTOPEN_KEY: c_int = 33;
const TCP_FASTOPEN_NO_COOKIE: c_int = 34;

/// Returns whether an option changes nothing that a peer or the program could miss on the stack: it concerns addresses and ports,
/// which the kernel assigns, or is a performance hint.
fn is_harmless(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_DEBUG
                | libc::SO_BROADCAST
                | libc::SO_BUSY_POLL
                | libc::SO_INCOMING_CPU
                | SO_PREFER_BUSY_POLL
                | SO_BUSY_POLL_BUDGET
                | SO_TXREHASH
        ),
        libc::SOL_TCP => matches!(name, libc::TCP_THIN_LINEAR_TIMEOUTS | libc::TCP_THIN_DUPACK),
        libc::SOL_IP => {
            matches!(name, libc::IP_BIND_ADDRESS_NO_PORT | libc::IP_FREEBIND | IP_LOCAL_PORT_RANGE)
        }
        libc::SOL_IPV6 => matches!(name, libc::IPV6_V6ONLY | IPV6_FREEBIND),
        _ => false,
    }
}

/// Returns whether the stack implements this option.
fn is_known(level: c_int, name: c_int, value: &[u8]) -> bool {
    if (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION) {
        let meaning = Asked::default().set(level, name, value);
        return meaning.is_ok_and(|meaning| meaning != Meaning::Other);
    }
    let told = OPTIONS.iter().map(|(level, name, _)| (*level, *name));
    let noted = NOTED.iter().map(|(level, name, ..)| (*level, *name));
    let listeners = OF_LISTENERS.iter().map(|(name, _)| (libc::SOL_TCP, *name));
    told.chain(noted).chain(listeners).any(|known| known == (level, name))
}

/// Returns whether the value is off, as an option is unless a program sets it.
fn is_off(level: c_int, value: &[u8]) -> bool {
    matches!(level, libc::SOL_SOCKET | libc::SOL_TCP) && value.iter().all(|octet| *octet == 0)
}

/// Returns whether the stack knows what an option means, or nothing is lost if it does not.
pub(super) fn is_for_the_stack(level: c_int, name: c_int, value: &[u8]) -> bool {
    is_harmless(level, name) || is_known(level, name, value) || is_off(level, value)
}

/// Notes an option that the kernel has accepted on a socket that is not on the stack.
///
/// # Safety
/// As for setsockopt(2).
pub(crate) unsafe fn was_set(
    socket: &Socket,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) {
    if !super::is_on() {
        return;
    }
    // What the kernel has read of it at least: a number, or a name.
    let is_name = (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION);
    let most = if is_name { NAME_BYTES } else { size_of::<c_int>() };
    let bytes: &[u8] = if faults::is_nowhere(value) {
        &[]
    } else {
        // SAFETY: as promised: the kernel has read so many octets there.
        unsafe { core::slice::from_raw_parts(value.cast::<u8>(), most.min(len as usize)) }
    };
    if !is_for_the_stack(level, name, bytes) {
        socket.kernels_option.store(pack(level, name), Relaxed);
        return;
    }
    let is_it = |noted: &&(c_int, c_int, usize, u32)| (noted.0, noted.1) == (level, name);
    if let Some((.., bit)) = NOTED.iter().find(is_it) {
        socket.chosen.fetch_or(*bit, Relaxed);
    }
}

/// Notes what was set on a socket that has come from outside: all that differs from a new one.
pub(super) fn was_set_elsewhere(fd: c_int, ipv6: bool) {
    let (Some(at), Ok(fresh)) = (POSIX.find(fd), outside::spare(ipv6)) else { return };
    let set = |(level, name, bytes): (c_int, c_int, usize)| {
        let value = option_of(fd, level, name, bytes)?;
        (option_of(fresh, level, name, bytes).as_ref() != Some(&value)).then_some(value)
    };
    for (level, name, bytes, bit) in NOTED {
        if set((level, name, bytes)).is_some() {
            at.socket.chosen.fetch_or(bit, Relaxed);
        }
    }
    for option in KERNELS {
        let (level, name, _) = option;
        // The priority also follows from the type of service (`__ip_sock_set_tos`).
        let is_of_tos = (level, name) == (libc::SOL_SOCKET, libc::SO_PRIORITY)
            && set((libc::SOL_IP, libc::IP_TOS, 4)).is_some();
        if !is_of_tos && set(option).is_some_and(|value| !is_for_the_stack(level, name, &value)) {
            at.socket.kernels_option.store(pack(level, name), Relaxed);
        }
    }
}

fn pack(level: c_int, name: c_int) -> u32 {
    (level.cast_unsigned() & 0xffff) << 16 | name.cast_unsigned() & 0xffff
}

/// Returns why a socket is the kernel's because of an option.
pub(super) fn why_kernels(fd: c_int) -> Option<String> {
    let option = POSIX.find(fd)?.socket.kernels_option.load(Relaxed);
    (option != 0).then(|| why(option >> 16, option & 0xffff))
}

/// Returns the reason for one option.
pub(super) fn why(level: u32, name: u32) -> String {
    format!("only the kernel knows an option that it has set: {level}, {name}")
}

/// Restores the notes on a socket that could not be connected: what its program has set counts the next time, too, except what
/// the kernel forgets then (tcp_disconnect).
pub(super) fn returned(fd: c_int, settings: &[Setting]) {
    let Some(at) = POSIX.find(fd) else { return };
    let mut bits = 0;
    for (level, name, bytes, bit) in NOTED {
        if bit & FORGOTTEN != 0 {
            continue;
        }
        let is_set = settings.iter().any(|(other, its, _)| (*other, *its) == (level, name));
        // The kernel's socket has kept what was set for handshakes.
        let is_kept = bit & OF_HANDSHAKES != 0
            && option_of(fd, level, name, bytes)
                .is_some_and(|value| value.iter().any(|octet| *octet != 0));
        bits |= if is_set || is_kept { bit } else { 0 };
    }
    at.socket.chosen.fetch_or(bits, Relaxed);
}

/// Options that are forgotten when a connection could not be made.
const FORGOTTEN: u32 = chosen::MAX_SEGMENT | chosen::QUICK_ACK;

/// Options that count only before there is a connection.
const OF_HANDSHAKES: u32 = chosen::DEFER_ACCEPT | chosen::FAST_OPEN | chosen::NO_COOKIE;

/// Passes on the options of a listener, in addition to those of [`tell`].
pub(super) fn tell_of_listener(fd: c_int, asked: &mut Asked) {
    for (name, bytes) in OF_LISTENERS {
        let value = option_of(fd, libc::SOL_TCP, name, bytes);
        if let Some(value) = value.filter(|value| value.iter().any(|octet| *octet != 0)) {
            let _ = asked.set(libc::SOL_TCP, name, &value);
        }
    }
}

/// Sets an option for a listener's handshakes: the kernel says whether it is allowed, and what its value becomes.
pub(super) fn set_of_listener(
    fd: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the program's own call.
    if let Err(error) = unsafe { raw!(SYS_setsockopt, fd, libc::SOL_TCP, name, value, len) } {
        return crate::raw::fail(error) as c_int;
    }
    let known = OF_LISTENERS.iter().find(|(other, _)| *other == name);
    if let Some(value) = known.and_then(|(_, bytes)| option_of(fd, libc::SOL_TCP, name, *bytes)) {
        // The listener may have been closed meanwhile.
        let _ = super::SOCKETS.set_option(fd, libc::SOL_TCP, name, &value);
    }
    0
}

/// Returns whether an option counts for a listener's handshakes.
pub(super) fn is_of_listeners(level: c_int, name: c_int) -> bool {
    level == libc::SOL_TCP && OF_LISTENERS.iter().any(|(other, _)| *other == name)
}

/// Passes on the noted options.
pub(super) fn tell(fd: c_int, asked: &mut Asked) {
    let Some(bits) = POSIX.find(fd).map(|at| at.socket.chosen.load(Relaxed)) else { return };
    for (level, name, bytes, bit) in NOTED {
        if bits & bit == 0 {
            continue;
        }
        let Some(mut value) = option_of(fd, level, name, bytes) else { continue };
        if matches!(bit, chosen::SEND_BUFFER | chosen::RECEIVE_BUFFER)
            && let Some(doubled) = value.first_chunk::<4>()
        {
            // The kernel returns twice what was set (socket(7)).
            value = (u32::from_ne_bytes(*doubled) / 2).to_ne_bytes().to_vec();
        }
        let _ = asked.set(level, name, &value);
    }
}
