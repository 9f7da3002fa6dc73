//! Blocks of pcapng (draft-ietf-opsawg-pcapng): one section, one interface, one packet block for each
//! frame. In native byte order, as the format allows.

use std::time::Duration;

use uncork_packet::Medium;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
/// Section header: the application.
const OPTION_USER_APPLICATION: u16 = 4;
/// Interface description: name and resolution of time stamps.
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
/// Enhanced packet: flags.
const OPTION_FLAGS: u16 = 2;

/// Time stamps are in units of 10⁻⁹ seconds.
const NANOSECONDS: u8 = 9;

/// Link types of tcpdump.org/linktypes.html.
fn link_type(medium: Medium) -> u16 {
    match medium {
        Medium::Ethernet => 1,
        Medium::Ip => 101,
    }
}

/// Direction of a frame: the lowest two bits of epb_flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    In = 1,
    Out = 2,
}

/// A block under construction.
struct Block<'a> {
    to: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Block<'a> {
    fn begin(to: &'a mut Vec<u8>, kind: u32) -> Self {
        let begin = to.len();
        to.extend(kind.to_ne_bytes());
        // Its length, filled in when known.
        to.extend([0; 4]);
        Self { to, begin }
    }

    /// Appends octets, padded to a multiple of four.
    fn padded(&mut self, octets: &[u8]) {
        self.to.extend_from_slice(octets);
        self.to.resize(self.to.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.to.extend(code.to_ne_bytes());
        self.to.extend(length.to_ne_bytes());
        self.padded(&value[..usize::from(length)]);
    }

    fn end(mut self) {
        self.option(OPTION_END, &[]);
        // A multiple of four, as every block begins at one.
        let length = u32::try_from(self.to.len() - self.begin + 4).unwrap_or(u32::MAX);
        self.to.extend(length.to_ne_bytes());
        self.to[self.begin + 4..self.begin + 8].copy_from_slice(&length.to_ne_bytes());
    }
}

/// Writes the head of a file.
pub(super) fn head(to: &mut Vec<u8>, medium: Medium, interface: &str) {
    to.clear();
    let mut section = Block::begin(to, SECTION_HEADER);
    section.to.extend(BYTE_ORDER_MAGIC.to_ne_bytes());
    section.to.extend(1_u16.to_ne_bytes());
    section.to.extend(0_u16.to_ne_bytes());
    // Length of the section: unknown, as the file grows.
    section.to.extend((-1_i64).to_ne_bytes());
    section.option(OPTION_USER_APPLICATION, b"uncork");
    section.end();
    let mut description = Block::begin(to, INTERFACE_DESCRIPTION);
    description.to.extend(link_type(medium).to_ne_bytes());
    description.to.extend(0_u16.to_ne_bytes());
    // Snapshot length: no frame is cut.
    description.to.extend(0_u32.to_ne_bytes());
    description.option(OPTION_NAME, interface.as_bytes());
    description.option(OPTION_RESOLUTION, &[NANOSECONDS]);
    description.end();
}

/// Writes a packet block.
pub(super) fn frame(
    to: &mut Vec<u8>,
    time: Duration,
    direction: Direction,
    bytes: &[u8],
    comment: &str,
) {
    to.clear();
    let mut packet = Block::begin(to, ENHANCED_PACKET);
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let [low, high] = [nanoseconds & 0xffff_ffff, nanoseconds >> 32]
        .map(|half| u32::try_from(half).unwrap_or(u32::MAX));
    for word in [0, high, low, length, length] {
        packet.to.extend(word.to_ne_bytes());
    }
    packet.padded(bytes);
    if !comment.is_empty() {
        packet.option(OPTION_COMMENT, comment.as_bytes());
    }
    packet.option(OPTION_FLAGS, &(direction as u32).to_ne_bytes());
    packet.end();
}
