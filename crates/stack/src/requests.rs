//! Statistics on how long peers take from an answer to their next request.

use std::time::Duration;

use crate::units::Micros;

/// Classes of waiting times: powers of two, in microseconds, up to a quarter of a second and more.
const LENGTHS: usize = 19;

/// Counts of requests: data that came together with the acknowledgment of all that was sent before it, as from a peer
/// that got an answer and then asked for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    number: u32,
    /// Sum of the waiting times, in microseconds.
    waited: u64,
    /// For each power of two, how many waited for fewer microseconds than that, and for no fewer than the one before.
    of_length: [u32; LENGTHS],
}

impl Requests {
    /// Counts a request that came this long after the answer had left.
    #[inline(always)]
    pub(crate) fn note(&mut self, waited: Micros) {
        self.number = self.number.wrapping_add(1);
        self.waited = self.waited.wrapping_add(u64::from(waited.0));
        let length = (u32::BITS - waited.0.leading_zeros()) as usize;
        let of_length = &mut self.of_length[length.min(LENGTHS - 1)];
        *of_length = of_length.wrapping_add(1);
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the typical time from an answer to the next request, which is the round trip plus what the peer does in
    /// between. It is the mean of all; or what the quickest quarter stays below (a power of two microseconds), if that is
    /// less, so that peers that wait for long do not count for the others. None if there was no request.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let mean = self.waited.checked_div(self.number.into())?;
        let mut fewer = 0_u32;
        let quarter = self.of_length.iter().position(|&of_length| {
            fewer = fewer.saturating_add(of_length);
            fewer >= self.number.div_ceil(4)
        });
        let most = quarter.filter(|&length| length + 1 < LENGTHS).map_or(mean, |it| 1 << it);
        Some(Duration::from_micros(mean.min(most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(waits: &[u32]) -> Option<Duration> {
        let mut requests = Requests::default();
        waits.iter().for_each(|wait| requests.note(Micros(*wait)));
        assert_eq!(requests.number() as usize, waits.len());
        requests.wait()
    }

    #[test]
    fn the_quicker_ones_count() {
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[100, 300]), micros(128), "a quarter of them stays below that");
        assert_eq!(of(&[100, 101, 102]), micros(101), "the mean is less");
        assert_eq!(of(&[700, 20_000, 25_000, 30_000]), micros(1024));
        assert_eq!(
            of(&[700, 20_000, 25_000, 30_000, 31_000]),
            micros(21_340),
            "fewer than a quarter"
        );
        assert_eq!(of(&[0; 4]), micros(0));
        assert_eq!(of(&[u32::MAX; 4]), micros(u32::MAX.into()));
    }
}
