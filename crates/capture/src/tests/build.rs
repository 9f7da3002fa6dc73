//! A writer of captures in which each part can be wrong on purpose.

/// The byte order in which numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

pub(super) const ORDERS: [Order; 2] = [Order::Little, Order::Big];

impl Order {
    pub(super) fn u32(self, number: u32) -> [u8; 4] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    pub(super) fn u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    fn u64(self, number: u64) -> [u8; 8] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }
}

pub(super) const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;
pub(super) const MODIFIED: u32 = 0xa1b2_cd34;

/// Returns the header of a pcap file.
pub(super) fn pcap(order: Order, magic: u32, link: u32) -> Vec<u8> {
    let mut file = order.u32(magic).to_vec();
    file.extend(order.u16(2));
    file.extend(order.u16(4));
    for number in [0, 0, 262_144, link] {
        file.extend(order.u32(number));
    }
    file
}

/// Returns a record of a pcap file.
pub(super) fn record(
    order: Order,
    (seconds, fraction): (u32, u32),
    wire_bytes: usize,
    frame: &[u8],
) -> Vec<u8> {
    let lengths = [frame.len(), wire_bytes].map(|bytes| u32::try_from(bytes).unwrap());
    let numbers = [seconds, fraction, lengths[0], lengths[1]];
    let mut record: Vec<u8> = numbers.into_iter().flat_map(|number| order.u32(number)).collect();
    record.extend_from_slice(frame);
    record
}

/// Returns a block of a pcapng file around `body`, which is padded.
pub(super) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = order.u32(u32::try_from(padded + 12).unwrap());
    let mut block = [order.u32(kind), length].concat();
    block.extend_from_slice(body);
    block.resize(8 + padded, 0);
    block.extend(length);
    block
}

pub(super) fn section(order: Order) -> Vec<u8> {
    let mut body = order.u32(0x1a2b_3c4d).to_vec();
    body.extend(order.u16(1));
    body.extend(order.u16(0));
    body.extend(order.u64(u64::MAX));
    block(order, 0x0a0d_0d0a, &body)
}

/// Returns an option, padded.
pub(super) fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    let mut option = [order.u16(code), order.u16(length)].concat();
    option.extend_from_slice(value);
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

pub(super) fn interface(order: Order, link: u16, snap_bytes: u32, options: &[u8]) -> Vec<u8> {
    let mut body = order.u16(link).to_vec();
    body.extend(order.u16(0));
    body.extend(order.u32(snap_bytes));
    body.extend_from_slice(options);
    block(order, 1, &body)
}

/// Returns an enhanced packet block.
pub(super) fn packet(
    order: Order,
    number: u32,
    units: u64,
    wire_bytes: usize,
    (frame, options): (&[u8], &[u8]),
) -> Vec<u8> {
    let mut body = order.u32(number).to_vec();
    body.extend(timed(order, units, wire_bytes, frame));
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend_from_slice(options);
    block(order, 6, &body)
}

/// Returns the older packet block, with an interface number of half the length.
pub(super) fn old_packet(order: Order, number: u16, units: u64, frame: &[u8]) -> Vec<u8> {
    let mut body = order.u16(number).to_vec();
    body.extend(order.u16(0xffff)); // drops: unknown
    body.extend(timed(order, units, frame.len(), frame));
    block(order, 2, &body)
}

fn timed(order: Order, units: u64, wire_bytes: usize, frame: &[u8]) -> Vec<u8> {
    let halves = [u32::try_from(units >> 32).unwrap(), u32::try_from(units & 0xffff_ffff).unwrap()];
    let lengths = [frame.len(), wire_bytes].map(|bytes| u32::try_from(bytes).unwrap());
    let numbers = halves.into_iter().chain(lengths).flat_map(|number| order.u32(number));
    numbers.chain(frame.iter().copied()).collect()
}

pub(super) fn simple_packet(order: Order, wire_bytes: u32, frame: &[u8]) -> Vec<u8> {
    let mut body = order.u32(wire_bytes).to_vec();
    body.extend_from_slice(frame);
    block(order, 3, &body)
}
