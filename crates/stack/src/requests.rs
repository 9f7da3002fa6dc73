//! How busy the other ends of conversations are.

use std::time::Duration;

use crate::units::Micros;

/// Requests: data that has come together with the acknowledgment of all that was sent before it, as it does from a peer
/// who had an answer and then asked for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    number: u32,
    waited: u64,
}

impl Requests {
    /// One has come, so long after the answer had left.
    #[inline(always)]
    pub(crate) fn note(&mut self, waited: Micros) {
        self.number = self.number.wrapping_add(1);
        self.waited = self.waited.wrapping_add(u64::from(waited.0));
    }

    /// How many have come.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// From an answer to the next request, in the mean: the way to the peer and back, and what it has to do between; to the
    /// microsecond. None if none has come.
    #[must_use]
    pub fn mean_wait(&self) -> Option<Duration> {
        let mean = self.waited.checked_div(self.number.into())?;
        Some(Duration::from_micros(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_none_is_none() {
        let mut requests = Requests::default();
        assert_eq!((requests.number(), requests.mean_wait()), (0, None));
        requests.note(Micros(100));
        requests.note(Micros(301));
        assert_eq!(
            (requests.number(), requests.mean_wait()),
            (2, Some(Duration::from_micros(200)))
        );
    }
}
