//! The system calls that send a logical packet.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::args::{Cut, HEADER_BUFFERS};
use crate::wire::{send_all_with_more, sendfile_all, write_all, writev_all};
use crate::{BUFFER_BYTES, packet_bytes};

/// Most buffers of one `writev(2)` (UIO_MAXIOV, see readv(2)).
pub(super) const MOST_VECTORS: u32 = 1024;

/// One call, or more if the kernel takes only a part.
pub(super) enum Part<'a> {
    /// `write(2)`.
    Whole(&'a [u8]),
    /// `writev(2)`.
    Vector {
        buffers: &'a [u8],
        /// One slice per buffer; rebuilt for each call, which changes them.
        slices: Vec<IoSlice<'a>>,
    },
    /// `sendfile(2)` of this part of the file.
    File { file: &'a File, begin: i64, bytes: usize },
}

/// The bytes of a logical packet, in a file that exists only in memory.
pub(super) struct File(std::fs::File);

impl File {
    /// Creates the file, if this way of cutting needs one.
    pub(super) fn of(packet: &[u8], how: Cut) -> io::Result<Option<Self>> {
        if how != Cut::Sendfile {
            return Ok(None);
        }
        let mut file = std::fs::File::from(memfd_create("packet", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(packet)?;
        Ok(Some(Self(file)))
    }
}

impl Part<'_> {
    /// Writes all of it, and returns the number of calls.
    #[inline]
    pub(super) fn write(&mut self, socket: &TcpStream) -> io::Result<u64> {
        match self {
            Self::Whole(bytes) => write_all(socket, bytes),
            Self::Vector { buffers, slices } => {
                slices.clear();
                slices.extend(buffers.chunks(BUFFER_BYTES).map(IoSlice::new));
                writev_all(socket, slices)
            }
            Self::File { file, begin, bytes } => sendfile_all(socket, &file.0, *begin, *bytes),
        }
    }

    /// Writes all of it and says that more will follow. A part that is neither the last nor a
    /// [`Part::Whole`] has no flags for that.
    #[inline]
    pub(super) fn send_with_more(&mut self, socket: &TcpStream) -> io::Result<u64> {
        match self {
            Self::Whole(bytes) => send_all_with_more(socket, bytes),
            Self::Vector { .. } | Self::File { .. } => self.write(socket),
        }
    }
}

/// Returns the calls that send a logical packet.
pub(super) fn cut<'a>(packet: &'a [u8], how: Cut, file: Option<&'a File>) -> Vec<Part<'a>> {
    let header_bytes = packet_bytes(HEADER_BUFFERS).min(packet.len());
    let (header, payload) = packet.split_at(header_bytes);
    match (how, file) {
        (Cut::Buffers, _) => packet.chunks(BUFFER_BYTES).map(Part::Whole).collect(),
        (Cut::Sendfile, Some(file)) => {
            // A packet has at most two million bytes.
            let begin = i64::try_from(header_bytes).unwrap_or(i64::MAX);
            vec![Part::Whole(header), Part::File { file, begin, bytes: payload.len() }]
        }
        (Cut::HeaderPlusPayload | Cut::Sendfile, _) => {
            vec![Part::Whole(header), Part::Whole(payload)]
        }
        (Cut::SingleRequest, _) => vec![Part::Whole(packet)],
        (Cut::Writev, _) => {
            let most_bytes = packet_bytes(MOST_VECTORS);
            let vector = |buffers: &'a [u8]| {
                let slices = Vec::with_capacity(buffers.len().div_ceil(BUFFER_BYTES));
                Part::Vector { buffers, slices }
            };
            packet.chunks(most_bytes).map(vector).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    const ALL: [Cut; 5] =
        [Cut::Buffers, Cut::HeaderPlusPayload, Cut::Sendfile, Cut::SingleRequest, Cut::Writev];

    /// Returns what arrives of a packet that is sent twice, and the calls that it took.
    fn sent(packet: &[u8], how: Cut, more: bool) -> (Vec<u8>, u64) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            all
        });
        let file = File::of(packet, how).unwrap();
        let mut parts = cut(packet, how, file.as_ref());
        let mut calls = 0;
        for _ in 0..2 {
            for part in &mut parts {
                calls +=
                    if more { part.send_with_more(&client) } else { part.write(&client) }.unwrap();
            }
        }
        drop(client);
        (reader.join().unwrap(), calls)
    }

    #[test]
    fn packets_are_cut_as_asked_and_lose_nothing() {
        let packet: Vec<u8> = (0..30).collect();
        for (how, calls) in ALL.into_iter().zip([15, 2, 2, 1, 1]) {
            for more in [false, true] {
                let found = sent(&packet, how, more);
                assert_eq!(found, (packet.repeat(2), calls * 2), "{how:?}");
            }
        }
    }

    #[test]
    fn more_buffers_than_one_call_takes_are_several_calls() {
        let bytes = packet_bytes(MOST_VECTORS * 2 + 1);
        let packet: Vec<u8> = (0..=255).cycle().take(bytes).collect();
        assert_eq!(sent(&packet, Cut::Writev, false), (packet.repeat(2), 6));
    }

    #[test]
    fn what_the_kernel_takes_in_parts_arrives_whole() {
        let packet: Vec<u8> = (0..=255).cycle().take(2_000_000).collect();
        for how in [Cut::Sendfile, Cut::SingleRequest, Cut::Writev] {
            assert!(sent(&packet, how, false).0 == packet.repeat(2), "{how:?}");
        }
    }
}
