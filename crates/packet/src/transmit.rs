//! Frames to be sent.

/// The transport checksum in a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum is filled in.
    Complete,
    /// The field holds the sum of the pseudo-header; the device adds everything from `start` to the
    /// frame's end and writes the complement to `start + offset` (VIRTIO_NET_HDR_F_NEEDS_CSUM).
    Partial {
        /// Offset of the transport header from the start of the frame, in octets.
        start: u16,
        /// Offset of its checksum field from there, in octets.
        offset: u16,
    },
}

/// How to cut a train into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    /// Data in each segment but the last, in octets.
    pub segment_bytes: u16,
    /// Length of all headers, from the link layer's on, in octets, which each segment begins with.
    pub header_bytes: u16,
    /// Whether IP is version 6.
    pub ipv6: bool,
    /// Whether only the first segment may carry CWR (VIRTIO_NET_HDR_GSO_ECN, RFC 3168 §6.1.2).
    pub ecn: bool,
}

/// The owner of a frame, which wants its completion: opaque to the driver, which only keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

/// A frame that was written into a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Length of the frame, in octets.
    pub frame_bytes: u32,
    /// What is left to be done about its checksum.
    pub checksum: Checksum,
    /// How to cut it, if it is a train.
    pub segmentation: Option<Segmentation>,
    /// The owner that wants a [`Completion`].
    pub owner: Option<Owner>,
}

/// A completion: frames of one owner have left the device, and their memory is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The owner of the frames.
    pub owner: Owner,
    /// Their length in octets, each from its first octet to its last.
    pub bytes: u32,
}
