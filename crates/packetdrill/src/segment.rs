//! Cuts a train into segments, as a kernel does for a device that cannot (RFC 9293 knows nothing
//! of trains: each segment has all headers, its own number, and PSH and FIN only if it is the last).

use uncork_packet::Segmentation;
use uncork_wire::checksum::Sum;
use uncork_wire::tcp::CHECKSUM_OFFSET;

/// Offsets in a TCP header, in octets.
const SEQ: usize = 4;
const FLAGS: usize = 13;
/// FIN and PSH.
const LAST_ONLY: u8 = 0x09;
/// TCP's number (RFC 9293 §3.1).
const TCP: u8 = 6;

/// Returns the packets of a train.
pub(crate) fn cut(train: &[u8], segmentation: &Segmentation) -> Vec<Vec<u8>> {
    let header_bytes = usize::from(segmentation.header_bytes);
    let (headers, data) = train.split_at(header_bytes);
    let ip_bytes = if segmentation.ipv6 { 40 } else { 20 };
    let size = usize::from(segmentation.segment_bytes).max(1);
    let count = data.len().div_ceil(size);
    let pieces = data.chunks(size).enumerate();
    pieces
        .map(|(index, piece)| {
            let mut packet = [headers, piece].concat();
            #[expect(clippy::cast_possible_truncation, reason = "a train is below 64 KiB")]
            let (offset, bytes) = ((index * size) as u32, packet.len() as u16);
            let (ip, tcp) = packet.split_at_mut(ip_bytes);
            let pseudo = set_length(ip, segmentation.ipv6, bytes, tcp.len());
            if let Some(seq) = tcp[SEQ..].first_chunk_mut::<4>() {
                *seq = u32::from_be_bytes(*seq).wrapping_add(offset).to_be_bytes();
            }
            if index + 1 < count {
                tcp[FLAGS] &= !LAST_ONLY;
            }
            tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
            let mut sum = pseudo;
            sum.add(tcp);
            tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
            packet
        })
        .collect()
}

/// Writes a packet's length into its IP header, and returns the sum of the pseudo-header.
fn set_length(ip: &mut [u8], ipv6: bool, bytes: u16, tcp_bytes: usize) -> Sum {
    let mut sum = Sum::default();
    let tcp_length = u32::try_from(tcp_bytes).unwrap_or(0).to_be_bytes();
    if ipv6 {
        ip[4..6].copy_from_slice(&tcp_length[2..]);
        sum.add(&ip[8..40]);
    } else {
        ip[2..4].copy_from_slice(&bytes.to_be_bytes());
        ip[10..12].fill(0);
        let mut header = Sum::default();
        header.add(ip);
        ip[10..12].copy_from_slice(&header.finish().to_be_bytes());
        sum.add(&ip[12..20]);
    }
    sum.add(&tcp_length);
    sum.add(&[0, TCP]);
    sum
}
