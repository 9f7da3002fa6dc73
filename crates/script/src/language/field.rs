//! Fields of TCP_INFO, by their names and offsets in Linux's structure (linux/tcp.h, struct tcp_info of 6.18).

/// A field of the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name without tcpi_.
    pub name: &'static str,
    at: usize,
    kind: Kind,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One bit of an octet.
    Bit(u8),
    /// A number of 16 bits.
    Half,
    /// A number of 32 bits.
    Word,
    /// A time in units of this many microseconds.
    Time(u32),
}

const fn field(name: &'static str, at: usize, kind: Kind) -> Field {
    Field { name, at, kind }
}

/// The fields that scripts may query.
const KNOWN: [Field; 11] = [
    // TCPI_OPT_ECN and TCPI_OPT_ECN_SEEN in tcpi_options.
    field("ecn", 5, Kind::Bit(3)),
    field("ecn_seen", 5, Kind::Bit(4)),
    field("delivery_rate_app_limited", 7, Kind::Bit(0)),
    field("snd_ssthresh", 76, Kind::Word),
    field("snd_cwnd", 80, Kind::Word),
    field("rcv_rtt", 92, Kind::Time(1)),
    field("delivered", 192, Kind::Word),
    field("delivered_ce", 196, Kind::Word),
    field("total_rto", 240, Kind::Half),
    field("total_rto_recoveries", 242, Kind::Half),
    field("total_rto_time", 244, Kind::Time(1000)),
];

impl Field {
    /// Returns the field of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.into_iter().find(|field| field.name == name)
    }

    /// Whether the field is a time.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(self.kind, Kind::Time(_))
    }

    /// Returns the field's value in such a structure; a time in microseconds.
    #[must_use]
    pub fn read(&self, info: &[u8]) -> Option<usize> {
        let from = info.get(self.at..)?;
        let word = || from.first_chunk().copied().map(u32::from_ne_bytes);
        let value = match self.kind {
            Kind::Bit(bit) => (u32::from(*from.first()?) >> bit) & 1,
            Kind::Half => from.first_chunk().copied().map(u16::from_ne_bytes)?.into(),
            Kind::Word => word()?,
            Kind::Time(unit) => word()?.checked_mul(unit)?,
        };
        usize::try_from(value).ok()
    }
}
