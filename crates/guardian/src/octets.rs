//! Octets in a message, two hexadecimal digits each.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A sequence of octets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Octets(Vec<u8>);

impl Octets {
    /// How many octets a message has room for.
    pub const MOST: usize = 24 * 1024;

    /// Copies these octets. `None` if there are too many.
    #[must_use]
    pub fn new(octets: &[u8]) -> Option<Self> {
        (octets.len() <= Self::MOST).then(|| Self(octets.to_vec()))
    }

    /// Returns the octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(2 * self.0.len());
        for octet in &self.0 {
            let _ = write!(text, "{octet:02x}");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let octet = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(octet).collect();
        let octets = octets.filter(|octets| octets.len() <= Self::MOST);
        octets.map(Self).ok_or_else(|| de::Error::custom("no octets"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_read_as_they_were_written_and_nothing_else_is() {
        let all: Vec<u8> = (0..=255).collect();
        let octets = Octets::new(&all).unwrap();
        let text = serde_json::to_string(&octets).unwrap();
        assert!(text.starts_with("\"000102"), "{text}");
        let again: Octets = serde_json::from_str(&text).unwrap();
        assert_eq!(again.as_slice(), all);
        let long = format!("\"{}\"", "00".repeat(Octets::MOST + 1));
        for wrong in ["\"0\"", "\"0g\"", "\"é\"", "7", &long] {
            assert!(serde_json::from_str::<Octets>(wrong).is_err(), "{wrong:.20}");
        }
        assert!(Octets::new(&vec![0; Octets::MOST + 1]).is_none());
    }
}
