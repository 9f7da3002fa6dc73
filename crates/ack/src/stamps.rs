//! When segments left and when they were acknowledged, as seen by the sender's own kernel:
//! SO_TIMESTAMPING (Documentation/networking/timestamping.rst), read from the error queue.
//!
//! For a byte stream the kernel stamps the last byte of each write, and identifies it by its
//! offset: a segment that carries several writes is stamped only for the last of them, and of a
//! write that takes several segments only the last one is stamped. [`crate::ledger`] assigns the
//! stamps to segments.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, Timestamps, recvmsg, setsockopt,
};
use nix::sys::time::TimeSpec;

/// The events in the life of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was handed to the queue of the device (SCM_TSTAMP_SCHED).
    Queued,
    /// It was handed to the device (SCM_TSTAMP_SND).
    Sent,
    /// It was acknowledged, with all before it (SCM_TSTAMP_ACK).
    Acknowledged,
}

/// A timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The event.
    pub event: Event,
    /// Offset of the byte in the stream, modulo 2^32; the first byte is 0.
    pub offset: u32,
    /// The time since 1970, by the system's clock.
    pub at: Duration,
}

/// Enables stamps. Must be called before the first write: offsets count from there.
///
/// # Errors
/// The error of setsockopt(2); kernels before 4.0 have no such stamps.
pub fn enable(socket: &impl AsFd) -> io::Result<()> {
    let wanted = libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SCHED
        | libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_ACK
        | libc::SOF_TIMESTAMPING_OPT_ID
        // No copy of the data with each stamp.
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    // With this flag the offsets are right even if data is already in flight. Kernels before 6.2 do
    // not know it, and no data is.
    let better = wanted | libc::SOF_TIMESTAMPING_OPT_ID_TCP;
    let set = |flags| setsockopt(socket, Timestamping, &TimestampingFlag::from_bits_retain(flags));
    match set(better) {
        Err(Errno::EINVAL) => set(wanted)?,
        outcome => outcome?,
    }
    Ok(())
}

/// Room for the control messages of one stamp: the times and the extended error with an address.
const CONTROL_BYTES: usize = 512;

/// Takes the next stamp from the error queue; `None` when it is empty. Does not touch received
/// data.
///
/// # Errors
/// The error of recvmsg(2), except that the queue is empty.
pub fn next(socket: &impl AsFd) -> io::Result<Option<Stamp>> {
    let mut control = [0; CONTROL_BYTES];
    loop {
        let mut no_data: [IoSliceMut<'_>; 0] = [];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_fd().as_raw_fd();
        let message = match recvmsg::<()>(fd, &mut no_data, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        // Messages other than stamps are of no interest here: go on to the next.
        if let Some(stamp) = stamp_of(message.cmsgs()?) {
            return Ok(Some(stamp));
        }
    }
}

fn stamp_of(messages: impl Iterator<Item = ControlMessageOwned>) -> Option<Stamp> {
    let (mut time, mut kind) = (None, None);
    for message in messages {
        match message {
            ControlMessageOwned::ScmTimestampsns(Timestamps { system, .. }) => time = Some(system),
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _)
                if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING =>
            {
                kind = event(error.ee_info).map(|event| (event, error.ee_data));
            }
            _ => {}
        }
    }
    let (event, offset) = kind?;
    Some(Stamp { event, offset, at: since_1970(time?)? })
}

/// Decodes `ee_info`, include/uapi/linux/errqueue.h.
fn event(info: u32) -> Option<Event> {
    match info {
        0 => Some(Event::Sent),
        1 => Some(Event::Queued),
        2 => Some(Event::Acknowledged),
        _ => None,
    }
}

fn since_1970(time: TimeSpec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    fn stamps_of_one_write(address: &str) -> Vec<Stamp> {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut writer, _) = listener.accept().unwrap();
        enable(&writer).unwrap();
        writer.write_all(&[0; 700]).unwrap();
        reader.read_exact(&mut [0; 700]).unwrap();
        let (mut stamps, begun) = (Vec::new(), Instant::now());
        while stamps.len() < 3 && begun.elapsed() < Duration::from_secs(5) {
            stamps.extend(next(&writer).unwrap());
        }
        stamps
    }

    #[test]
    fn a_write_is_queued_sent_and_acknowledged_in_either_family() {
        for address in ["127.0.0.1", "::1"] {
            let stamps = stamps_of_one_write(address);
            let events: Vec<_> = stamps.iter().map(|stamp| stamp.event).collect();
            assert_eq!(events, [Event::Queued, Event::Sent, Event::Acknowledged], "{address}");
            assert!(stamps.iter().all(|stamp| stamp.offset == 699), "{stamps:?}");
            assert!(stamps.is_sorted_by_key(|stamp| stamp.at), "{stamps:?}");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            assert!(now - stamps[0].at < Duration::from_secs(60), "{stamps:?}");
        }
    }

    #[test]
    fn data_that_came_in_is_left_alone() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        enable(&socket).unwrap();
        peer.write_all(b"hello").unwrap();
        assert_eq!(next(&socket).unwrap(), None);
        let mut read = [0; 5];
        socket.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
    }
}
