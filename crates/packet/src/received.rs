//! The way in.

/// What is known of the checksum of a frame's TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Nothing: the stack verifies it.
    #[default]
    Unknown,
    /// The device has verified it, or the frame never was on a wire and its checksum was not filled
    /// in (VIRTIO_NET_HDR_F_DATA_VALID and _NEEDS_CSUM).
    Good,
}

/// A frame that came, in memory that its driver lends for the length of one call.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// From the first octet of the link layer to the last of the packet, padding included.
    pub bytes: &'a [u8],
    /// About the checksum above IP. That of an IPv4 header is verified always.
    pub trust: Trust,
    /// If this is a train of segments that the device or the kernel has joined: how much data each
    /// of them had. Several segments came, and an acknowledgment policy has to know that.
    pub segment_bytes: Option<u16>,
}

impl<'a> Received<'a> {
    /// A frame of which nothing else is known.
    #[must_use]
    pub const fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, trust: Trust::Unknown, segment_bytes: None }
    }
}
