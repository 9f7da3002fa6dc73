//! Deliberate changes to captures: into pcapng, without their beginning, with records missing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The changes to a capture after it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Records left out at the beginning: the capture begins in mid-connection.
    pub skip: usize,
    /// Every n-th record is left out, as a capture on a busy machine loses some.
    pub drop_each: Option<usize>,
    /// Every n-th record is swapped with the next one, if both were captured within 0.1 ms: the
    /// processors of a machine deliver what they have captured in no particular order.
    pub swap_each: Option<usize>,
    /// Each record is duplicated, as device `any` sees what crosses two devices.
    pub double: bool,
    /// Each Ethernet frame gets a tag of this VLAN (IEEE 802.1Q), as if it had been captured on a
    /// trunk: not every kernel on which the corpus is made supports VLANs.
    pub vlan: Option<u16>,
    /// Written as pcapng.
    pub pcapng: bool,
}

impl Changes {
    /// Returns whether there is nothing to change.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// One captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub at: u64,
    /// Length that it had before the capture cut it, in octets.
    pub wire_bytes: u32,
    /// The part of it that was captured.
    pub frame: Vec<u8>,
}

/// The contents of a capture file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// Whether times are in nanoseconds (else microseconds).
    pub nanoseconds: bool,
    /// LINKTYPE_ number.
    pub link_type: u32,
    /// Octets kept of each frame at most.
    pub snaplen: u32,
    /// The frames.
    pub records: Vec<Record>,
}

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Applies the changes to a file of tcpdump's.
///
/// # Errors
/// If the file is not what tcpdump writes on a little-endian machine, or cannot be written.
pub fn rewrite(path: &Path, changes: Changes) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut capture = read(&bytes).with_context(|| format!("cannot read {}", path.display()))?;
    let mut place = 0;
    capture.records.drain(..changes.skip.min(capture.records.len()));
    capture.records.retain(|_| {
        place += 1;
        changes.drop_each.is_none_or(|each| place % each != 0)
    });
    if let Some(each) = changes.swap_each {
        swap(&mut capture.records, each);
    }
    if changes.double {
        capture.records = capture.records.into_iter().flat_map(twice).collect();
    }
    if let Some(vlan) = changes.vlan {
        capture.records.iter_mut().for_each(|record| tag(record, vlan));
    }
    let bytes = if changes.pcapng { to_pcapng(&capture) } else { to_pcap(&capture) };
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Swaps records that were captured at nearly the same time; the times stay in order.
fn swap(records: &mut [Record], each: usize) {
    let near = 100_000;
    for at in (0..records.len().saturating_sub(1)).step_by(each.max(2)) {
        let (first, second) = (records[at].at, records[at + 1].at);
        if second - first <= near {
            records.swap(at, at + 1);
            (records[at].at, records[at + 1].at) = (first, second);
        }
    }
}

/// Returns the frame twice, the second time 5 microseconds later.
fn twice(record: Record) -> [Record; 2] {
    let again = Record { at: record.at + 5_000, ..record.clone() };
    [record, again]
}

/// Inserts a tag between the addresses and the type.
fn tag(record: &mut Record, vlan: u16) {
    let place = 12;
    if record.frame.len() >= place {
        let [high, low] = vlan.to_be_bytes();
        record.frame.splice(place..place, [0x81, 0x00, high, low]);
        record.wire_bytes += 4;
    }
}

/// Reads a pcap file as this machine's tcpdump writes it (draft-ietf-opsawg-pcap §4 and §5).
///
/// # Errors
/// If it is not one.
pub fn read(bytes: &[u8]) -> Result<Records> {
    let word = |at: usize| -> Result<u32> {
        let four = bytes.get(at..at + 4).context("the file is cut short")?;
        Ok(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    let nanoseconds = match word(0)? {
        MAGIC_MICROSECONDS => false,
        MAGIC_NANOSECONDS => true,
        other => bail!("{other:#x} is not how a capture of tcpdump begins"),
    };
    let unit = if nanoseconds { 1 } else { 1000 };
    let (snaplen, link_type) = (word(16)?, word(20)?);
    let mut records = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let kept = word(at + 8)? as usize;
        let frame = bytes.get(at + 16..at + 16 + kept).context("the file is cut short")?;
        records.push(Record {
            at: u64::from(word(at)?) * 1_000_000_000 + u64::from(word(at + 4)?) * unit,
            wire_bytes: word(at + 12)?,
            frame: frame.to_vec(),
        });
        at += 16 + kept;
    }
    Ok(Records { nanoseconds, link_type, snaplen, records })
}

/// Returns the capture as a pcap file.
#[must_use]
pub fn to_pcap(capture: &Records) -> Vec<u8> {
    let magic = if capture.nanoseconds { MAGIC_NANOSECONDS } else { MAGIC_MICROSECONDS };
    let unit = if capture.nanoseconds { 1 } else { 1000 };
    let mut out = Words::default();
    // Magic, version 2.4, two reserved words.
    out.word(magic).word(0x0004_0002).word(0).word(0);
    out.word(capture.snaplen).word(capture.link_type);
    for record in &capture.records {
        out.word(low(record.at / 1_000_000_000)).word(low(record.at % 1_000_000_000 / unit));
        out.word(length(&record.frame)).word(record.wire_bytes);
        out.0.extend_from_slice(&record.frame);
    }
    out.0
}

/// Returns the capture as a pcapng file (draft-ietf-opsawg-pcapng §4): one section, one interface.
#[must_use]
pub fn to_pcapng(capture: &Records) -> Vec<u8> {
    let mut out = Words::default();
    // Section header: byte-order magic, version 1.0, length unknown.
    out.block(0x0a0d_0d0a, |body| {
        body.word(0x1a2b_3c4d).word(1).word(u32::MAX).word(u32::MAX);
    });
    // Interface description, with its time's resolution (if_tsresol, 9: nanoseconds).
    out.block(1, |body| {
        body.word(capture.link_type & 0xffff).word(capture.snaplen);
        let resolution = if capture.nanoseconds { 9 } else { 6 };
        body.word(9 | 1 << 16).word(resolution).word(0);
    });
    let unit = if capture.nanoseconds { 1 } else { 1000 };
    for record in &capture.records {
        // Enhanced packet on interface 0.
        out.block(6, |body| {
            let at = record.at / unit;
            body.word(0).word(low(at >> 32)).word(low(at & 0xffff_ffff));
            body.word(length(&record.frame)).word(record.wire_bytes);
            body.0.extend_from_slice(&record.frame);
            body.0.resize(body.0.len().next_multiple_of(4), 0);
        });
    }
    out.0
}

#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn word(&mut self, word: u32) -> &mut Self {
        self.0.extend_from_slice(&word.to_le_bytes());
        self
    }

    /// Appends a block: its type, its length, its body, its length again.
    fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) {
        let mut body = Self::default();
        fill(&mut body);
        let whole = length(&body.0) + 12;
        self.word(kind).word(whole);
        self.0.extend_from_slice(&body.0);
        self.word(whole);
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(nanoseconds: bool) -> Records {
        let record = |at, length: usize| Record { at, wire_bytes: 90, frame: vec![7; length] };
        let records =
            vec![record(1_700_000_000_123_456_000, 61), record(1_700_000_001_000_001_000, 64)];
        Records { nanoseconds, link_type: 1, snaplen: 96, records }
    }

    #[test]
    fn a_capture_survives_being_written_and_read() {
        for nanoseconds in [false, true] {
            let sample = sample(nanoseconds);
            assert_eq!(read(&to_pcap(&sample)).unwrap(), sample);
        }
    }

    #[test]
    fn a_tag_goes_between_addresses_and_type() {
        let mut record = Record { at: 0, wire_bytes: 60, frame: (0..60).collect() };
        tag(&mut record, 7);
        assert_eq!(record.wire_bytes, 64);
        assert_eq!(record.frame[10..18], [10, 11, 0x81, 0, 0, 7, 12, 13]);
    }
}
