//! Detection of the format by its first octets.

use std::io::Read;

use crate::error::{Beginning, Error};
use crate::window::Window;

/// A supported format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pcap,
    Pcapng,
}

/// Microseconds, nanoseconds, and Kuznetzov's "modified" pcap; the first two in both byte orders.
/// (The parser supports the third in one order only, and so does nearly every writer of it.)
const PCAP: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x34, 0xcd, 0xb2, 0xa1],
];

/// The type of a section header block, the same in both byte orders.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The third word of a section header block, in the byte order of this machine or the other.
const BYTE_ORDER: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// Compression programs, by the first octets of their files.
const COMPRESSED: [(&[u8], &str, &str); 5] = [
    (&[0x1f, 0x8b], "gzip", "zcat"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstdcat"),
    (&[0xfd, b'7', b'z', b'X'], "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4cat"),
];

/// Returns the format of another file that begins here, as in `cat one.pcap two.pcap`, if a record
/// of the first could not begin like this.
pub(crate) fn another<R: Read>(window: &mut Window<R>, now: Kind) -> std::io::Result<Option<Kind>> {
    if !window.fill(4)? {
        return Ok(None);
    }
    let Some(magic) = window.data().first_chunk::<4>() else { return Ok(None) };
    // Tested at each frame, and hardly ever true.
    if PCAP.contains(magic) {
        // As a block of pcapng it would be of unknown type; as a record of pcap, of 2055 or later
        // and empty. The rest of the header is version 2.4, and four octets each for a time zone and
        // an accuracy, which no program writes.
        window.fill(16)?;
        let rest = window.data().get(4..16).unwrap_or_default();
        let version = [[2, 0, 4, 0], [0, 2, 0, 4]].iter().any(|version| rest.starts_with(version));
        return Ok((version && rest.ends_with(&[0; 8])).then_some(Kind::Pcap));
    }
    // Within pcapng it is the next section.
    if now == Kind::Pcap && *magic == PCAPNG {
        window.fill(12)?;
        let order = window.data().get(8..12).unwrap_or_default();
        let section = [BYTE_ORDER, [0x4d, 0x3c, 0x2b, 0x1a]].iter().any(|magic| order == magic);
        return Ok(section.then_some(Kind::Pcapng));
    }
    Ok(None)
}

/// Determines the format by the beginning, without consuming it.
pub(crate) fn of<R: Read>(window: &mut Window<R>) -> Result<Kind, Error> {
    let whole = window.fill(4)?;
    let begin = window.data();
    if begin.is_empty() {
        return Err(Error::Empty);
    }
    for (magic, program, cat) in COMPRESSED {
        if begin.starts_with(magic) {
            return Err(Error::Compressed { program, cat });
        }
    }
    let magic = begin.first_chunk::<4>().filter(|_| whole);
    match magic {
        Some(magic) if PCAP.contains(magic) => Ok(Kind::Pcap),
        Some(&PCAPNG) => Ok(Kind::Pcapng),
        _ => Err(Error::NotACapture(Beginning::of(begin))),
    }
}
