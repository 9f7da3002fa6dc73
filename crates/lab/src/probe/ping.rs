//! ICMP echo, as ping(8) sends it (RFC 792).

use std::io::{self, ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Probe, histogram, record};
use crate::place::{FAR, Place};

/// Interval of the pings: short enough to see a queue grow and shrink, and no load of its own.
const EVERY: Duration = Duration::from_millis(5);
/// An answer that takes longer counts as this long.
pub const PING_GIVEN_UP: Duration = Duration::from_secs(2);

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Payload, as in ping(8).
const PAYLOAD_BYTES: usize = 56;

/// Pings the far end until told to stop.
///
/// # Errors
/// If no raw socket can be opened.
pub fn ping(place: &Place) -> Result<Probe> {
    Ok(ping_from(place.near.within(|| ping_socket(FAR))?))
}

/// Opens a socket for [`ping_from`], in the network namespace of the calling thread.
///
/// # Errors
/// Without the privilege, or if there is no route.
pub fn ping_socket(to: Ipv4Addr) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    socket.connect(&SocketAddr::from((to, 0)).into())?;
    socket.set_read_timeout(Some(PING_GIVEN_UP))?;
    Ok(socket)
}

/// Returns whether one ping is answered. A report that the host is unreachable is not an error.
///
/// # Errors
/// If it cannot be sent.
pub fn ping_is_answered(socket: &Socket, sequence: u16) -> Result<bool> {
    match once(socket, sequence) {
        Ok(took) => Ok(took < PING_GIVEN_UP),
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(
                ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::ConnectionRefused,
            ) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Pings the host that the socket is connected to until told to stop.
#[must_use]
pub fn ping_from(socket: Socket) -> Probe {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let mut times = histogram()?;
        let mut sequence = 0u16;
        while !stopped.load(Relaxed) {
            sequence = sequence.wrapping_add(1);
            record(&mut times, once(&socket, sequence)?);
            thread::sleep(EVERY);
        }
        Ok(times)
    });
    Probe { stop, thread: Some(thread) }
}

fn once(socket: &Socket, sequence: u16) -> Result<Duration> {
    let request = echo_request(sequence);
    let begin = Instant::now();
    socket.send(&request)?;
    let mut answer = [0u8; 256];
    loop {
        match (&mut &*socket).read(&mut answer) {
            Ok(length) if is_answer(&answer[..length], sequence) => return Ok(begin.elapsed()),
            Ok(_) if begin.elapsed() < PING_GIVEN_UP => {}
            Ok(_) => return Ok(PING_GIVEN_UP),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(PING_GIVEN_UP),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(io::Error::into(error)),
        }
    }
}

fn echo_request(sequence: u16) -> Vec<u8> {
    let mut message = vec![0; 8 + PAYLOAD_BYTES];
    message[0] = ECHO_REQUEST;
    message[4..6].copy_from_slice(&identifier());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    let checksum = internet_checksum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// Returns an identifier: other programs on this host may ping the same host.
fn identifier() -> [u8; 2] {
    let [.., high, low] = std::process::id().to_be_bytes();
    [high, low]
}

/// Computes the checksum of RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[allow(clippy::cast_possible_truncation)] // folded just now
    let folded = sum as u16;
    !folded
}

/// Returns whether it is the answer. A raw socket shows the IPv4 header, too.
fn is_answer(packet: &[u8], sequence: u16) -> bool {
    let header_bytes = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    packet.get(header_bytes..header_bytes + 8).is_some_and(|message| {
        message[0] == ECHO_REPLY
            && message[4..6] == identifier()
            && message[6..8] == sequence.to_be_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_its_checksum_sums_up_to_nothing() {
        assert_eq!(internet_checksum(&echo_request(513)), 0);
        // The example of RFC 1071, section 3.
        assert_eq!(!internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn only_the_reply_of_the_same_number_is_the_answer() {
        let mut packet = vec![0x45; 20];
        packet.extend(echo_request(7));
        assert!(!is_answer(&packet, 7), "its own request");
        packet[20] = ECHO_REPLY;
        assert!(is_answer(&packet, 7));
        assert!(!is_answer(&packet, 8));
        assert!(!is_answer(&packet[..22], 7));
        packet[25] ^= 1;
        assert!(!is_answer(&packet, 7), "somebody else's ping");
    }
}
