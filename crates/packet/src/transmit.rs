//! The way out.

/// The checksum above IP in a frame that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// It is in the frame.
    Complete,
    /// The field holds the sum of the pseudo-header; the device adds everything from `start` to the
    /// frame's end and writes the complement to `start + offset` (VIRTIO_NET_HDR_F_NEEDS_CSUM).
    Partial {
        /// Where the transport header begins, in octets from the start of the frame.
        start: u16,
        /// Where its checksum field is, in octets from there.
        offset: u16,
    },
}

/// How a train is to be cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    /// Data in each segment but the last, in octets.
    pub segment_bytes: u16,
    /// All headers, from the link layer's on, in octets: what each segment begins with.
    pub header_bytes: u16,
    /// Whether IP is version 6.
    pub ipv6: bool,
    /// Whether the first segment only may carry CWR (VIRTIO_NET_HDR_GSO_ECN, RFC 3168 §6.1.2).
    pub ecn: bool,
}

/// Who wants to know that a frame has left: of no meaning to the driver, which only keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

/// A frame that was written into a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Length of the frame, in octets.
    pub frame_bytes: u32,
    /// What is left to be done about its checksum.
    pub checksum: Checksum,
    /// If it is a train: how to cut it.
    pub segmentation: Option<Segmentation>,
    /// Who wants a [`Completion`].
    pub owner: Option<Owner>,
}

/// A frame, or several of one owner, have left the device: its memory is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Whose they were.
    pub owner: Owner,
    /// How many octets, frames from their first octet to their last.
    pub bytes: u32,
}
