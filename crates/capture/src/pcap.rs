//! pcap, the format of tcpdump (draft-ietf-opsawg-pcap).

use std::io::Read;
use std::time::Duration;

use pcap_parser::nom;
use pcap_parser::{
    LegacyPcapBlock, PcapError, PcapHeader, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header,
};
use uncork_wire::link::LinkType;

use crate::error::{Error, Lie};
use crate::links::UnknownLink;
use crate::window::Window;
use crate::{MAX_RECORD_BYTES, Record};

type Parse = fn(&[u8]) -> nom::IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

/// The contents of the file's header.
#[derive(Debug)]
pub(crate) struct Pcap {
    link: LinkType,
    /// Nanoseconds per unit of the fraction of a second.
    fraction_nanoseconds: u32,
    parse: Parse,
    /// Size of each record's header.
    header_bytes: usize,
}

impl Pcap {
    /// Reads the header.
    pub(crate) fn open<R: Read>(window: &mut Window<R>) -> Result<Self, Error> {
        const HEADER_BYTES: usize = 24;
        window.fill(HEADER_BYTES)?;
        let Ok((_, header)) = parse_pcap_header(window.data()) else {
            return Err(Error::CutOff { at: window.position() });
        };
        let pcap = Self::from_header(&header)?;
        window.take(HEADER_BYTES);
        Ok(pcap)
    }

    fn from_header(header: &PcapHeader) -> Result<Self, Error> {
        if header.version_major != 2 {
            let (major, minor) = (header.version_major, header.version_minor);
            return Err(Error::Version { format: "pcap", major, minor });
        }
        // The upper half says whether frames end with their check sequence.
        let number = header.network.0 & 0xffff;
        let link = LinkType::from_number(number).ok_or(Error::LinkType(UnknownLink(number)))?;
        let (parse, header_bytes): (Parse, _) = if header.is_modified_format() {
            (parse_pcap_frame_modified, 24)
        } else if header.is_bigendian() {
            (parse_pcap_frame_be, 16)
        } else {
            (parse_pcap_frame, 16)
        };
        let fraction_nanoseconds = if header.is_nanosecond_precision() { 1 } else { 1000 };
        Ok(Self { link, fraction_nanoseconds, parse, header_bytes })
    }

    /// Reads the next record; `None` at the end.
    pub(crate) fn next<R: Read>(
        &mut self,
        window: &mut Window<R>,
    ) -> Result<Option<Record>, Error> {
        loop {
            let data = window.data();
            let more = match (self.parse)(data) {
                Ok((_, block)) => return self.record(&block, window.position()).map(Some),
                Err(nom::Err::Incomplete(nom::Needed::Size(more))) => more.get(),
                Err(_) => return Err(Error::Lies { at: window.position(), lie: Lie::Block }),
            };
            let (wanted, at) = (data.len().saturating_add(more), window.position());
            if wanted > MAX_RECORD_BYTES {
                return Err(Error::Lies { at, lie: Lie::TooLong(wanted as u64) });
            }
            if !window.fill(wanted)? {
                return if window.data().is_empty() { Ok(None) } else { Err(Error::CutOff { at }) };
            }
        }
    }

    fn record(&self, block: &LegacyPcapBlock<'_>, at: u64) -> Result<Record, Error> {
        // A file system that loses the end of a file leaves zeros; they are not millions of frames
        // without a single octet, all from 1970.
        if block.origlen == 0 && block.caplen == 0 && block.ts_sec == 0 && block.ts_usec == 0 {
            return Err(Error::Lies { at, lie: Lie::Zeros });
        }
        let seconds = u64::from(block.ts_sec);
        let time = match block.ts_usec.checked_mul(self.fraction_nanoseconds) {
            Some(nanoseconds) if nanoseconds < 1_000_000_000 => Duration::new(seconds, nanoseconds),
            // A fraction of more than a second: others add it up, too.
            _ => {
                let fraction = u64::from(block.ts_usec) * u64::from(self.fraction_nanoseconds);
                Duration::from_secs(seconds) + Duration::from_nanos(fraction)
            }
        };
        let bytes = block.data.len();
        Ok(Record {
            time,
            link: self.link,
            wire_bytes: bytes.max(block.origlen as usize),
            at: self.header_bytes,
            bytes,
            record_bytes: self.header_bytes + bytes,
        })
    }
}
