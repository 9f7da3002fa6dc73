//! Segments as tcpdump writes them, with numbers relative to each side's initial one.

use std::fmt;

use uncork_wire::tcp::Flags;

use super::words::number;

/// A timestamp option; omitted fields are ignored when expected, and filled in when sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The sender's timestamp.
    pub value: Option<u32>,
    /// The echoed timestamp of the other side.
    pub echo: Option<u32>,
}

/// TCP options of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offered {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub stamp: Option<Stamp>,
    /// SACK blocks.
    pub sack: Vec<(u32, u32)>,
}

/// A segment; omitted fields follow from the state before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Name of the connection.
    pub connection: char,
    /// TCP flags.
    pub flags: Flags,
    /// Sequence number; by default the next one.
    pub seq: Option<u32>,
    /// Octets of data.
    pub bytes: u32,
    /// Acknowledgment number; by default everything received.
    pub ack: Option<u32>,
    /// The window field as on the wire.
    pub window: Option<u16>,
    /// DSCP and ECN of the IP header; by default zero. Only for the peer.
    pub tos: Option<u8>,
    /// All options that it has.
    pub options: Option<Offered>,
}

impl Segment {
    /// Reads `P. 1:101(100) ack 1 win 500 <ts 1 ecr 2>`.
    pub(super) fn parse(connection: char, text: &str) -> Result<Self, String> {
        let (text, options) = match text.split_once('<') {
            Some((text, options)) => {
                let options = options.trim_end().strip_suffix('>');
                (text, Some(options.ok_or("options end with `>`")?))
            }
            None => (text, None),
        };
        let mut words = text.split_whitespace();
        let letters = words.next().ok_or("a segment begins with its flags")?;
        let mut flags = Flags(0);
        for letter in letters.chars() {
            let found = Flags::LETTERS.iter().find(|(_, known)| *known == letter);
            let (flag, _) = found.ok_or_else(|| format!("`{letter}` is no flag"))?;
            flags = flags.with(*flag);
        }
        let range = words.next().ok_or("a segment says how long it is: `(100)`")?;
        let (seq, bytes) = range_of(range)?;
        let mut segment = Self {
            connection,
            flags,
            seq,
            bytes,
            ack: None,
            window: None,
            tos: None,
            options: options.map(offered).transpose()?,
        };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` wants a number"))?;
            match word {
                "ack" => segment.ack = Some(number(value)?),
                "win" => segment.window = Some(number(value)?),
                "tos" => segment.tos = Some(number(value)?),
                _ => return Err(format!("`{word}` is nothing that a segment has")),
            }
        }
        if segment.ack.is_some() && !flags.has(Flags::ACK) {
            return Err("`ack` wants a `.` among the flags".to_owned());
        }
        Ok(segment)
    }

    /// Returns the length in sequence space: data, SYN and FIN.
    pub fn length(&self) -> u32 {
        length(self.flags, self.bytes)
    }
}

/// Returns a segment's length in sequence space.
pub(crate) fn length(flags: Flags, bytes: u32) -> u32 {
    bytes + u32::from(flags.has(Flags::SYN)) + u32::from(flags.has(Flags::FIN))
}

/// Parses `1:101(100)`, `1(100)` or `(100)`.
fn range_of(word: &str) -> Result<(Option<u32>, u32), String> {
    let wrong = || format!("`{word}` is not like `1:101(100)`, `1(100)` or `(100)`");
    let (numbers, bytes) = word.split_once('(').ok_or_else(wrong)?;
    let bytes: u32 = number(bytes.strip_suffix(')').ok_or_else(wrong)?)?;
    let (from, to) = match numbers.split_once(':') {
        Some((from, to)) => (from, Some(number::<u32>(to)?)),
        None => (numbers, None),
    };
    let seq = if from.is_empty() { None } else { Some(number::<u32>(from)?) };
    if let (Some(from), Some(to)) = (seq, to)
        && from.checked_add(bytes) != Some(to)
    {
        return Err(format!("`{word}` does not end where it says"));
    }
    Ok((seq, bytes))
}

fn offered(text: &str) -> Result<Offered, String> {
    let mut offered = Offered::default();
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let words: Vec<&str> = option.split_whitespace().collect();
        match words[..] {
            ["mss", value] => offered.mss = Some(number(value)?),
            ["ws", value] => offered.window_scale = Some(number(value)?),
            ["sackOK"] => offered.sack_permitted = true,
            ["ts"] => offered.stamp = Some(Stamp::default()),
            ["ts", value] => {
                offered.stamp = Some(Stamp { value: Some(number(value)?), echo: None });
            }
            ["ts", "ecr", echo] => {
                offered.stamp = Some(Stamp { value: None, echo: Some(number(echo)?) });
            }
            ["ts", value, "ecr", echo] => {
                offered.stamp =
                    Some(Stamp { value: Some(number(value)?), echo: Some(number(echo)?) });
            }
            ["sack", range] => {
                let (left, right) = range.split_once(':').ok_or("sack wants `1:101`")?;
                offered.sack.push((number(left)?, number(right)?));
            }
            _ => return Err(format!("`{option}` is no option that is known here")),
        }
    }
    Ok(offered)
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.mss.map(|mss| format!("mss {mss}")));
        if self.sack_permitted {
            words.push("sackOK".to_owned());
        }
        if let Some(Stamp { value, echo }) = self.stamp {
            let value = value.map(|value| format!(" {value}")).unwrap_or_default();
            let echo = echo.map(|echo| format!(" ecr {echo}")).unwrap_or_default();
            words.push(format!("ts{value}{echo}"));
        }
        words.extend(self.window_scale.map(|shift| format!("ws {shift}")));
        words.extend(self.sack.iter().map(|(left, right)| format!("sack {left}:{right}")));
        write!(f, "<{}>", words.join(","))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.flags)?;
        if let Some(seq) = self.seq {
            write!(f, "{seq}:{}", seq.wrapping_add(self.bytes))?;
        }
        write!(f, "({})", self.bytes)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some(tos) = self.tos {
            write!(f, " tos {tos}")?;
        }
        match &self.options {
            Some(options) if *options != Offered::default() => write!(f, " {options}"),
            _ => Ok(()),
        }
    }
}
