//! What one direction of a link does to frames.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which frames are lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Segments with at least `least_bytes` of data, counted from 1: these are lost.
    pub data: Vec<u64>,
    /// See [`data`](Self::data).
    pub least_bytes: u32,
    /// Segments with at most this many octets of data count for [`data`](Self::data).
    pub most_bytes: Option<u32>,
    /// Each frame is lost with this probability.
    pub probability: f64,
    /// Where the dice start.
    pub seed: u64,
}

/// Frames that arrive later than those behind them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reorder {
    /// How many of all.
    pub probability: f64,
    /// How much later than without.
    #[serde(rename = "late_by_us", with = "microseconds")]
    pub late_by: Duration,
}

/// What else may happen to a frame. The dice are those of [`Loss::seed`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Some are overtaken.
    pub reorder: Reorder,
    /// Each frame arrives twice with this probability.
    pub duplicate: f64,
    /// One bit of a frame is turned with this probability, anywhere behind the link layer's header.
    pub corrupt: f64,
}

/// What one direction does to frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// From one end to the other, for the last bit of a frame.
    #[serde(rename = "delay_us", with = "microseconds")]
    pub delay: Duration,
    /// Bits a second; no limit if absent.
    pub rate: Option<u64>,
    /// What may wait for the rate, in octets; a frame that finds it full is lost.
    pub queue_bytes: u64,
    /// Which frames are lost on the way.
    pub loss: Loss,
    /// What else happens to them.
    pub faults: Faults,
}

mod microseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}
