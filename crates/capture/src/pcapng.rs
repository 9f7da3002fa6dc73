//! pcapng, the format of Wireshark and dumpcap (draft-ietf-opsawg-pcapng).

use std::io::Read;
use std::time::Duration;

use pcap_parser::nom::IResult;
use pcap_parser::{
    BOM_MAGIC, EPB_MAGIC, IDB_MAGIC, InterfaceDescriptionBlock, OptionCode, PcapError, SHB_MAGIC,
    SPB_MAGIC, parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_sectionheaderblock, parse_simplepacketblock_be, parse_simplepacketblock_le,
};
use uncork_wire::link::LinkType;

use crate::error::{Error, Lie};
use crate::kind::{self, Kind};
use crate::links::UnknownLink;
use crate::time::Resolution;
use crate::window::Window;
use crate::{Counts, MAX_INTERFACES, MAX_RECORD_BYTES, Record};

/// Packet block: the predecessor of the enhanced packet block. The parser does not support it.
const OPB_MAGIC: u32 = 2;

/// Type and length at a block's beginning, its length again at the end.
const SMALLEST_BLOCK: u32 = 12;

/// The section that is being read. There is none before the first section header, which is the
/// file's first block.
#[derive(Debug, Default)]
pub(crate) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    /// Time of the last frame that had one.
    last: Duration,
}

/// Byte order of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    #[default]
    Little,
    Big,
}

/// The contents of an interface description.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Result<LinkType, UnknownLink>,
    /// Octets kept of each frame; 0 is no limit.
    snap_bytes: u32,
    resolution: Resolution,
    offset_seconds: i64,
}

/// The contents of a block.
enum Seen {
    Frame(Record),
    /// A frame of an interface with an unsupported link type.
    Unread(UnknownLink),
    Other,
}

impl Pcapng {
    /// Reads the next frame; `None` at the end.
    pub(crate) fn next<R: Read>(
        &mut self,
        window: &mut Window<R>,
        counts: &mut Counts,
    ) -> Result<Option<Record>, Error> {
        loop {
            if kind::another(window, Kind::Pcapng)?.is_some() {
                return Ok(None);
            }
            let at = window.position();
            if !window.fill(SMALLEST_BLOCK as usize)? {
                return if window.data().is_empty() { Ok(None) } else { Err(Error::CutOff { at }) };
            }
            let lies = |lie| Error::Lies { at, lie };
            let head = window.data();
            let kind = self.order.u32(head, 0);
            if kind == SHB_MAGIC {
                self.order = Order::of_section(head).ok_or(lies(Lie::ByteOrder))?;
            }
            let length = self.order.u32(head, 4);
            if kind == 0 && length == 0 {
                return Err(lies(Lie::Zeros));
            }
            // The draft (§3.1) requires a multiple of four.
            if length < SMALLEST_BLOCK || !length.is_multiple_of(4) {
                return Err(lies(Lie::BlockLength(length)));
            }
            if !matches!(kind, SHB_MAGIC | IDB_MAGIC | EPB_MAGIC | SPB_MAGIC | OPB_MAGIC) {
                self.skip(window, length)?;
                continue;
            }
            let bytes = length as usize;
            if bytes > MAX_RECORD_BYTES {
                return Err(lies(Lie::TooLong(length.into())));
            }
            if !window.fill(bytes)? {
                return Err(Error::CutOff { at });
            }
            let block = &window.data()[..bytes];
            self.end_of(block, length).map_err(lies)?;
            match self.block(kind, block, counts).map_err(|why| why.at(at))? {
                Seen::Frame(record) => return Ok(Some(record)),
                Seen::Unread(link) => {
                    counts.unknown_link += 1;
                    counts.first_unknown_link.get_or_insert(link);
                }
                Seen::Other => {}
            }
            window.take(bytes);
        }
    }

    /// Skips a block without frames.
    fn skip<R: Read>(&self, window: &mut Window<R>, length: u32) -> Result<(), Error> {
        let at = window.position();
        if !window.skip(u64::from(length) - 4)? || !window.fill(4)? {
            return Err(Error::CutOff { at });
        }
        self.end_of(window.take(4), length).map_err(|lie| Error::Lies { at, lie })
    }

    /// Checks that the last word of a block is its length again.
    fn end_of(&self, block: &[u8], length: u32) -> Result<(), Lie> {
        match self.order.u32(block, block.len() - 4) {
            end if end == length => Ok(()),
            end => Err(Lie::BlockEnd(length, end)),
        }
    }

    /// Parses a whole block.
    fn block(&mut self, kind: u32, block: &[u8], counts: &mut Counts) -> Result<Seen, Wrong> {
        match kind {
            EPB_MAGIC => self.packet(block, self.order.u32(block, 8)),
            // The older kind had half as much room for the interface, and a count of drops.
            OPB_MAGIC => self.packet(block, self.order.u16(block, 8).into()),
            SPB_MAGIC => self.simple_packet(block, counts),
            IDB_MAGIC => self.interface(block),
            _ => self.section(block),
        }
    }

    /// Parses a section header: the interfaces that follow are those of this section.
    fn section(&mut self, block: &[u8]) -> Result<Seen, Wrong> {
        let (_, section) = parse_sectionheaderblock(block).map_err(|_| Lie::Block)?;
        let (major, minor) = (section.major_version, section.minor_version);
        if major != 1 {
            return Err(Wrong::Version { major, minor });
        }
        self.interfaces.clear();
        Ok(Seen::Other)
    }

    fn interface(&mut self, block: &[u8]) -> Result<Seen, Wrong> {
        let parse: fn(&[u8]) -> Parsed<'_, InterfaceDescriptionBlock<'_>> = match self.order {
            Order::Little => parse_interfacedescriptionblock_le,
            Order::Big => parse_interfacedescriptionblock_be,
        };
        let (_, description) = parse(block).map_err(|_| Lie::Block)?;
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Lie::Interfaces.into());
        }
        let number = description.linktype.0;
        let mut interface = Interface {
            link: LinkType::from_number(number).ok_or(UnknownLink(number)),
            snap_bytes: description.snaplen,
            resolution: Resolution::MICROSECONDS,
            offset_seconds: 0,
        };
        for option in &description.options {
            let value = option.as_bytes().unwrap_or_default();
            match (option.code, value) {
                (OptionCode::IfTsresol, &[octet]) => {
                    let resolution = Resolution::from_pcapng(octet);
                    interface.resolution = resolution.ok_or(Lie::Resolution(octet))?;
                }
                // The parser itself treats every section as little-endian here.
                (OptionCode::IfTsoffset, value) => {
                    if let Some(&octets) = value.first_chunk() {
                        interface.offset_seconds = self.order.i64(octets);
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(Seen::Other)
    }

    /// Parses an enhanced packet block, or its predecessor of the same shape, by hand: the parser
    /// collects the options after the frame, and would allocate for each frame that has some.
    fn packet(&mut self, block: &[u8], number: u32) -> Result<Seen, Wrong> {
        const FRAME_AT: usize = 28;
        if block.len() < FRAME_AT + 4 {
            return Err(Lie::Block.into());
        }
        let interface = self.interfaces.get(number as usize).ok_or(Lie::Interface(number))?;
        let order = self.order;
        let bytes = order.u32(block, 20) as usize;
        if bytes > block.len() - FRAME_AT - 4 {
            return Err(Lie::FrameLength.into());
        }
        let link = match interface.link {
            Ok(link) => link,
            Err(link) => return Ok(Seen::Unread(link)),
        };
        let units = (u64::from(order.u32(block, 12)) << 32) | u64::from(order.u32(block, 16));
        self.last = interface.resolution.time(units, interface.offset_seconds);
        Ok(Seen::Frame(Record {
            time: self.last,
            link,
            wire_bytes: bytes.max(order.u32(block, 24) as usize),
            at: FRAME_AT,
            bytes,
            record_bytes: block.len(),
        }))
    }

    /// Parses a frame of the first interface, without a time. Its captured length is not stored
    /// either: it is the least of the frame's, the snap length and the block's.
    fn simple_packet(&self, block: &[u8], counts: &mut Counts) -> Result<Seen, Wrong> {
        const FRAME_AT: usize = 12;
        let (_, packet) = match self.order {
            Order::Little => parse_simplepacketblock_le(block),
            Order::Big => parse_simplepacketblock_be(block),
        }
        .map_err(|_| Lie::Block)?;
        let interface = self.interfaces.first().ok_or(Lie::Interface(0))?;
        let link = match interface.link {
            Ok(link) => link,
            Err(link) => return Ok(Seen::Unread(link)),
        };
        let wire_bytes = packet.origlen as usize;
        let kept = match interface.snap_bytes {
            0 => wire_bytes,
            snap_bytes => wire_bytes.min(snap_bytes as usize),
        };
        if kept > packet.data.len() {
            return Err(Lie::FrameLength.into());
        }
        counts.without_time += 1;
        Ok(Seen::Frame(Record {
            time: self.last,
            link,
            wire_bytes,
            at: FRAME_AT,
            bytes: kept,
            record_bytes: block.len(),
        }))
    }
}

type Parsed<'a, T> = IResult<&'a [u8], T, PcapError<&'a [u8]>>;

/// An error in a block, before its position is known.
enum Wrong {
    Lie(Lie),
    Version { major: u16, minor: u16 },
}

impl From<Lie> for Wrong {
    fn from(lie: Lie) -> Self {
        Self::Lie(lie)
    }
}

impl Wrong {
    fn at(self, at: u64) -> Error {
        match self {
            Self::Lie(lie) => Error::Lies { at, lie },
            Self::Version { major, minor } => Error::Version { format: "pcapng", major, minor },
        }
    }
}

impl Order {
    /// Returns the byte order by the third word of a section header.
    fn of_section(head: &[u8]) -> Option<Self> {
        let orders = [Self::Little, Self::Big];
        orders.into_iter().find(|order| order.u32(head, 8) == BOM_MAGIC)
    }

    /// Returns a word of a block that is known to be long enough.
    #[inline]
    fn u32(self, block: &[u8], at: usize) -> u32 {
        let octets = block[at..].first_chunk().copied().unwrap_or_default();
        match self {
            Self::Little => u32::from_le_bytes(octets),
            Self::Big => u32::from_be_bytes(octets),
        }
    }

    fn u16(self, block: &[u8], at: usize) -> u16 {
        let octets = block[at..].first_chunk().copied().unwrap_or_default();
        match self {
            Self::Little => u16::from_le_bytes(octets),
            Self::Big => u16::from_be_bytes(octets),
        }
    }

    fn i64(self, octets: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(octets),
            Self::Big => i64::from_be_bytes(octets),
        }
    }
}
