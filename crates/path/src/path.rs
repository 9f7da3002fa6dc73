//! Configuration of one direction of a link.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Losses of frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// The segments to lose, by number from 1, counting segments with at least `least_bytes` of data.
    pub data: Vec<u64>,
    /// The least octets of data of a counted segment, see [`data`](Self::data).
    pub least_bytes: u32,
    /// The most octets of data of a counted segment, see [`data`](Self::data).
    pub most_bytes: Option<u32>,
    /// Probability of loss of each frame.
    pub probability: f64,
    /// Seed of the dice.
    pub seed: u64,
}

/// Delays of frames, so that those after them overtake.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reorder {
    /// Probability of each frame.
    pub probability: f64,
    /// Additional delay.
    #[serde(rename = "late_by_us", with = "microseconds")]
    pub late_by: Duration,
}

/// Other faults of frames. The dice are those of [`Loss::seed`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Frames that are overtaken.
    pub reorder: Reorder,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a frame is flipped, anywhere after the link-layer header.
    pub corrupt: f64,
}

/// The configuration of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Path {
    /// Delay from one end to the other, for the last bit of a frame.
    #[serde(rename = "delay_us", with = "microseconds")]
    pub delay: Duration,
    /// Rate in bits a second; no limit if absent.
    pub rate: Option<u64>,
    /// Octets that may wait for the rate; a frame that finds the queue full is lost.
    pub queue_bytes: u64,
    /// Losses on the way.
    pub loss: Loss,
    /// Other faults.
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
