//! The packet that nearly all are: TCP over IPv4, not a fragment, without options but the timestamps as RFC 7323
//! appendix A has them. All of it stands at fixed places, so that it is read and written in registers, without
//! a look for anything. What is otherwise is not plain, and goes the way of [`crate::ipv4`] and [`crate::tcp`],
//! which say of this the same.

use std::net::Ipv4Addr;

use crate::checksum::{Sum, fold};
use crate::tcp::{Fields, Flags, HEADER_BYTES as TCP_BYTES};
use crate::{Protocol, SeqNumber, ipv4};

/// Octets of both headers.
pub const HEADER_BYTES: usize = ipv4::HEADER_BYTES + TCP_BYTES + 12;

/// Version 4, a header of five words (RFC 791 §3.1).
const VERSION: u32 = 0x4500_0000;
/// Don't fragment, and a name that means nothing (RFC 6864 §4.1).
const WHOLE: u32 = 0x4000;
/// More fragments, and where this one begins.
const FRAGMENT: u32 = 0x3fff;
/// A TCP header of eight words.
const OFFSET: u32 = 0x8000_0000;
/// Two of padding, kind and length.
const STAMPS: u32 = 0x0101_080a;

/// What its headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// DSCP and, in the lower two bits, ECN (RFC 3168 §5).
    pub tos: u8,
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// The header of TCP.
    pub fields: Fields,
    /// Timestamp value and echo reply (RFC 7323 §3).
    pub timestamps: (u32, u32),
}

impl Plain {
    /// Reads headers, if they are plain, and gives the packet without what is behind it. Nothing is said of
    /// the checksums.
    #[must_use]
    #[inline(always)]
    pub fn read(packet: &[u8]) -> Option<(Self, &[u8])> {
        let head: &[u8; HEADER_BYTES] = packet.first_chunk()?;
        let words: [u32; HEADER_BYTES / 4] = words(head);
        let total = (words[0] & 0xffff) as usize;
        let plain = words[0] & 0xff00_0000 == VERSION
            && words[1] & FRAGMENT == 0
            && words[2] >> 16 & 0xff == u32::from(Protocol::TCP.0)
            && words[8] & 0xf000_0000 == OFFSET
            && words[10] == STAMPS
            && total >= HEADER_BYTES;
        let packet = packet.get(..total).filter(|_| plain)?;
        #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
        let read = Self {
            tos: (words[0] >> 16) as u8,
            source: Ipv4Addr::from_bits(words[3]),
            destination: Ipv4Addr::from_bits(words[4]),
            fields: Fields {
                source_port: (words[5] >> 16) as u16,
                destination_port: words[5] as u16,
                seq: SeqNumber(words[6]),
                ack: SeqNumber(words[7]),
                flags: Flags((words[8] >> 16) as u8),
                window: words[8] as u16,
            },
            timestamps: (words[11], words[12]),
        };
        Some((read, packet))
    }

    /// Whether the checksum of the IP header is good, and with `all` that of TCP, for what [`Plain::read`]
    /// has given.
    #[must_use]
    #[inline]
    pub fn is_good(packet: &[u8], all: bool) -> bool {
        let Some((head, segment)) = packet.split_first_chunk::<{ ipv4::HEADER_BYTES }>() else {
            return false;
        };
        // In the machine's order, in which they sum up as well as in any (RFC 1071 §2(B)).
        let words: [u64; 5] =
            std::array::from_fn(|at| u32::from_ne_bytes(head.as_chunks().0[at]).into());
        let addresses = words[3] + words[4];
        if fold(words[0] + words[1] + words[2] + addresses) != 0xffff {
            return false;
        }
        if !all {
            return true;
        }
        let length = u32::try_from(segment.len()).unwrap_or(u32::MAX);
        let protocol = u16::from(Protocol::TCP.0).to_be();
        let mut sum = Sum::of_words(addresses + u64::from(length.to_be()) + u64::from(protocol));
        sum.add(segment);
        sum.is_good()
    }

    /// Writes headers and data, in two pieces, to the start of `packet` and gives their octets and the sum of
    /// the pseudo-header. With `completes` that is all that the checksum of TCP has in it, for the device to
    /// complete.
    ///
    /// # Panics
    ///
    /// If `packet` is shorter than that.
    #[inline]
    pub fn emit(&self, packet: &mut [u8], data: (&[u8], &[u8]), completes: bool) -> usize {
        let total = HEADER_BYTES + data.0.len() + data.1.len();
        let (head, body) = packet[..total].split_at_mut(HEADER_BYTES);
        let fields = &self.fields;
        let length = u32::try_from(total).unwrap_or(0) & 0xffff;
        let (source, destination) = (self.source.to_bits(), self.destination.to_bits());
        let mut ip = [
            VERSION | u32::from(self.tos) << 16 | length,
            WHOLE,
            u32::from(ipv4::HOPS) << 24 | u32::from(Protocol::TCP.0) << 16,
            source,
            destination,
        ];
        // Sums are made of numbers as they are; only that of the data is in the machine's order.
        let addresses = u64::from(source) + u64::from(destination);
        let rest: u64 = ip[..3].iter().map(|&word| u64::from(word)).sum();
        ip[2] |= u32::from(!fold(addresses + rest));
        let mut tcp = [
            u32::from(fields.source_port) << 16 | u32::from(fields.destination_port),
            fields.seq.0,
            fields.ack.0,
            OFFSET | u32::from(fields.flags.0) << 16 | u32::from(fields.window),
            0,
            STAMPS,
            self.timestamps.0,
            self.timestamps.1,
        ];
        let pseudo = addresses + u64::from(Protocol::TCP.0) + (total - ipv4::HEADER_BYTES) as u64;
        if completes {
            tcp[4] = u32::from(fold(pseudo)) << 16;
            let (front, back) = body.split_at_mut(data.0.len());
            front.copy_from_slice(data.0);
            back.copy_from_slice(data.1);
        } else {
            let mut sum = Sum::default();
            sum.copy(body, data.0);
            if !data.1.is_empty() {
                sum.copy(&mut body[data.0.len()..], data.1);
            }
            let header: u64 = tcp.iter().map(|&word| u64::from(word)).sum();
            tcp[4] = u32::from(!fold(pseudo + header + u64::from(sum.folded()))) << 16;
        }
        for (place, word) in head.as_chunks_mut().0.iter_mut().zip(ip.into_iter().chain(tcp)) {
            *place = word.to_be_bytes();
        }
        total
    }
}

/// Words in network order.
#[inline(always)]
fn words<const BYTES: usize, const WORDS: usize>(octets: &[u8; BYTES]) -> [u32; WORDS] {
    let (chunks, _) = octets.as_chunks();
    std::array::from_fn(|at| u32::from_be_bytes(chunks[at]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEADER_BYTES, Plain};
    use crate::checksum::Sum;
    use crate::tcp::{Fields, Flags, Header, OptionSet};
    use crate::{Protocol, SeqNumber, ipv4};

    fn plain() -> impl Strategy<Value = Plain> {
        let ends = (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u16>(), any::<u16>());
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
        (ends, numbers, any::<u8>(), any::<u8>(), any::<u16>()).prop_map(
            |(
                (source, destination, source_port, destination_port),
                numbers,
                tos,
                flags,
                window,
            )| {
                Plain {
                    tos,
                    source: source.into(),
                    destination: destination.into(),
                    fields: Fields {
                        source_port,
                        destination_port,
                        seq: SeqNumber(numbers.0),
                        ack: SeqNumber(numbers.1),
                        flags: Flags(flags),
                        window,
                    },
                    timestamps: (numbers.2, numbers.3),
                }
            },
        )
    }

    /// The general way to write the same.
    fn generally(plain: &Plain, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES + data.len()];
        let total = u16::try_from(packet.len()).unwrap();
        let (source, destination) = (plain.source, plain.destination);
        let whole = ipv4::Header::whole(Protocol::TCP, source, destination, total);
        ipv4::Header { tos: plain.tos, ..whole }.emit(&mut packet);
        let segment = &mut packet[ipv4::HEADER_BYTES..];
        let options = OptionSet { timestamps: Some(plain.timestamps), ..OptionSet::default() };
        let header_bytes = plain.fields.emit(&options, segment);
        segment[header_bytes..].copy_from_slice(data);
        let mut sum = Sum::default();
        sum.add_pseudo_v4(source, destination, 6, u32::from(total) - 20);
        sum.add(segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        packet
    }

    proptest! {
        #[test]
        fn what_is_plain_is_written_and_read_as_the_general_way_does(
            plain in plain(),
            data in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..200,
            padding in 0usize..9,
        ) {
            let (front, back) = data.split_at(cut.min(data.len()));
            let mut packet = vec![0xee; HEADER_BYTES + data.len() + padding];
            let total = plain.emit(&mut packet, (front, back), false);
            let expected = generally(&plain, &data);
            prop_assert_eq!(&packet[..total], &expected[..]);
            prop_assert_eq!(Plain::read(&packet), Some((plain, &expected[..])));
            prop_assert!(Plain::is_good(&expected, true));
            let mut partial = vec![0; total];
            plain.emit(&mut partial, (front, back), true);
            prop_assert_eq!(Plain::is_good(&partial, false), true);
            // The device completes it.
            let mut sum = Sum::default();
            sum.add(&partial[20..]);
            partial[36..38].copy_from_slice(&sum.finish().to_be_bytes());
            prop_assert_eq!(partial, expected);
        }

        #[test]
        fn what_is_changed_is_not_plain_or_reads_as_the_general_way_says(
            plain in plain(),
            at in 0usize..HEADER_BYTES + 10,
            octet in any::<u8>(),
        ) {
            let mut packet = generally(&plain, &[7; 10]);
            let changed = packet[at] != octet;
            packet[at] = octet;
            let good = Plain::read(&packet).is_some_and(|(_, whole)| Plain::is_good(whole, true));
            // An octet that was changed shows in a checksum.
            prop_assert_eq!(good, !changed);
            let Some((read, whole)) = Plain::read(&packet) else { return Ok(()) };
            if let Ok((header, segment)) = ipv4::Header::read(&packet) {
                prop_assert!(header.is_whole() && header.protocol == Protocol::TCP);
                prop_assert_eq!((header.source, header.destination, header.tos), (read.source, read.destination, read.tos));
                prop_assert_eq!(segment, &whole[20..]);
                let header = Header::read(segment, segment.len()).unwrap();
                let options = OptionSet { timestamps: Some(read.timestamps), ..OptionSet::default() };
                prop_assert_eq!(header.option_set(), options);
                prop_assert_eq!((header.seq(), header.flags()), (read.fields.seq, read.fields.flags));
            } else {
                prop_assert!(!Plain::is_good(whole, false));
            }
        }
    }
}
