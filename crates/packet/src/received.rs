//! Received frames.

/// What is known of the TCP or UDP checksum of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Nothing: the stack verifies it.
    #[default]
    Unknown,
    /// The device has verified it, or the frame never was on a wire and its checksum was not filled
    /// in (VIRTIO_NET_HDR_F_DATA_VALID and _NEEDS_CSUM).
    Good,
}

/// A received frame, in memory that its driver lends for one call.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The frame from the first octet of the link layer to the last of the packet, padding included.
    pub bytes: &'a [u8],
    /// Trust in the transport checksum. That of an IPv4 header is always verified.
    pub trust: Trust,
    /// For a train of segments that the device or the kernel has joined: the length of data in
    /// each. Several segments came, and the ACK policy has to know that.
    pub segment_bytes: Option<u16>,
}

impl<'a> Received<'a> {
    /// Returns a frame of which nothing else is known.
    #[must_use]
    pub const fn plain(bytes: &'a [u8]) -> Self {
        Self { bytes, trust: Trust::Unknown, segment_bytes: None }
    }
}
