//! The most common packet: TCP over IPv4, not a fragment, with no options but the timestamps as RFC 7323
//! appendix A lays them out. All its fields are at fixed offsets, so that it is read and written in registers,
//! without a search. Any other packet is not plain, and goes through [`crate::ipv4`] and [`crate::tcp`],
//! which give the same result for this one.

use std::net::Ipv4Addr;

use crate::checksum::{Sum, copy_words, fold};
use crate::tcp::{Fields, Flags, HEADER_BYTES as TCP_BYTES};
use crate::{Protocol, SeqNumber, ipv4};

/// Octets of both headers.
pub const HEADER_BYTES: usize = ipv4::HEADER_BYTES + TCP_BYTES + 12;

const IP_BYTES: u64 = ipv4::HEADER_BYTES as u64;

/// Version 4, a header of five words (RFC 791 §3.1).
const VERSION: u32 = 0x4500_0000;
/// DF, and an identification of zero, which means nothing (RFC 6864 §4.1).
const WHOLE: u32 = 0x4000;
/// MF and the fragment offset.
const FRAGMENT: u32 = 0x3fff;
/// A TCP header of eight words.
const OFFSET: u32 = 0x8000_0000;
/// Two octets of padding, then kind and length of the timestamp option.
const STAMPS: u32 = 0x0101_080a;

/// The fields of both headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// DSCP and, in the lower two bits, ECN (RFC 3168 §5).
    pub tos: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// The TCP header.
    pub fields: Fields,
    /// Timestamp value and echo reply (RFC 7323 §3).
    pub timestamps: (u32, u32),
}

impl Plain {
    /// Reads the headers, if they are plain, and returns them with the packet without the padding after it. The
    /// checksums are not verified.
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

    /// Returns whether the checksum of the IP header is good, and with `all` also that of TCP, for a packet that
    /// [`Plain::read`] has returned.
    #[must_use]
    #[inline]
    pub fn is_good(packet: &[u8], all: bool) -> bool {
        let Some((head, segment)) = packet.split_first_chunk::<{ ipv4::HEADER_BYTES }>() else {
            return false;
        };
        // In the machine's byte order, in which the sum is the same as in any (RFC 1071 §2(B)).
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

    /// Copies data to its place in `packet`, and returns what [`Plain::emit`] needs to know of it. This comes first:
    /// otherwise the header fields would have to be kept during the copy, and there are not enough registers. With
    /// `completes` nothing is summed, as the device will do that.
    ///
    /// # Panics
    ///
    /// If `packet` is shorter than headers and data.
    #[must_use]
    #[inline(always)]
    pub fn put_data(packet: &mut [u8], data: &[u8], completes: bool) -> Data {
        let body = &mut packet[HEADER_BYTES..];
        if completes {
            body[..data.len()].copy_from_slice(data);
            return Data { bytes: data.len(), sum: None };
        }
        Data { bytes: data.len(), sum: Some(u16::from_be(fold(copy_words(body, data)))) }
    }

    /// Writes headers to the start of `packet`, in front of such data. If the data is not summed, the TCP checksum
    /// covers only the pseudo-header, for the device to complete.
    ///
    /// # Panics
    ///
    /// If `packet` is shorter than the headers.
    #[inline(always)]
    pub fn emit(&self, packet: &mut [u8], data: Data) {
        let fields = &self.fields;
        #[expect(clippy::cast_possible_truncation, reason = "a packet is smaller than 64 KiB")]
        let total = (HEADER_BYTES + data.bytes) as u32;
        // These sums are of numbers in host order; only that of the data was made in the machine's byte order.
        let [source, destination] = [self.source, self.destination].map(Ipv4Addr::to_bits);
        let addresses = u64::from(source) + u64::from(destination);
        let kind = VERSION | u32::from(self.tos) << 16 | total & 0xffff;
        let hops = u32::from(ipv4::HOPS) << 24 | u32::from(Protocol::TCP.0) << 16;
        let ip = fold(addresses + u64::from(kind) + u64::from(WHOLE) + u64::from(hops));
        let ports = u32::from(fields.source_port) << 16 | u32::from(fields.destination_port);
        let control = OFFSET | u32::from(fields.flags.0) << 16 | u32::from(fields.window);
        let (value, echo) = self.timestamps;
        let pseudo = addresses + u64::from(Protocol::TCP.0) + u64::from(total) - IP_BYTES;
        let tcp = match data.sum {
            None => fold(pseudo),
            Some(sum) => {
                let rest = [ports, fields.seq.0, fields.ack.0, control, STAMPS, value, echo];
                !fold(rest.iter().fold(pseudo + u64::from(sum), |sum, &word| sum + u64::from(word)))
            }
        };
        let words: [u32; HEADER_BYTES / 4] = [
            kind,
            WHOLE,
            hops | u32::from(!ip),
            source,
            destination,
            ports,
            fields.seq.0,
            fields.ack.0,
            control,
            u32::from(tcp) << 16,
            STAMPS,
            value,
            echo,
        ];
        let places = packet[..HEADER_BYTES].as_chunks_mut().0;
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
    }
}

/// Data that was copied into a packet.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    bytes: usize,
    /// Its sum as [`Sum::folded`] returns it; none if the device computes it.
    sum: Option<u16>,
}

/// Returns the words of `octets`, which are in network byte order.
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

    /// Writes the same packet by the general functions.
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

    fn emit(plain: &Plain, packet: &mut [u8], data: &[u8], completes: bool) -> usize {
        let data = Plain::put_data(packet, data, completes);
        plain.emit(packet, data);
        HEADER_BYTES + data.bytes
    }

    proptest! {
        #[test]
        fn what_is_plain_is_written_and_read_as_the_general_way_does(
            plain in plain(),
            data in proptest::collection::vec(any::<u8>(), 0..200),
            padding in 0usize..9,
        ) {
            let mut packet = vec![0xee; HEADER_BYTES + data.len() + padding];
            let total = emit(&plain, &mut packet, &data, false);
            let expected = generally(&plain, &data);
            prop_assert_eq!(&packet[..total], &expected[..]);
            prop_assert_eq!(Plain::read(&packet), Some((plain, &expected[..])));
            prop_assert!(Plain::is_good(&expected, true));
            let mut partial = vec![0; total];
            emit(&plain, &mut partial, &data, true);
            prop_assert_eq!(Plain::is_good(&partial, false), true);
            // The device completes the checksum.
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
