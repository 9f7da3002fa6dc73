//! Proportional rate reduction: how many segments an ACK releases while the window is reduced to
//! its new size (RFC 6937).

/// Counters of one reduction, in segments.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prr {
    /// Window when the reduction began (RecoverFS, for which Linux uses the window).
    prior_window: u32,
    /// Segments delivered since (prr_delivered).
    delivered: u32,
    /// Segments sent since (prr_out).
    out: u32,
}

impl Prr {
    pub(crate) fn new(prior_window: u32) -> Self {
        Self { prior_window, delivered: 0, out: 0 }
    }

    pub(crate) fn on_sent(&mut self, segments: u32) {
        self.out = self.out.saturating_add(segments);
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.out > 0
    }

    /// Returns how many segments may be sent now (sndcnt, RFC 6937 §3.1, with the slow start bound if
    /// there was progress and the conservative bound if not).
    pub(crate) fn allowed(
        &mut self,
        threshold: u32,
        in_flight: u32,
        delivered: u32,
        progress: bool,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let allowed = if in_flight > threshold {
            let due = u64::from(threshold) * u64::from(self.delivered);
            let due = due.div_ceil(u64::from(self.prior_window.max(1)));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            let mut bound = self.delivered.saturating_sub(self.out).max(delivered);
            if progress {
                bound += 1;
            }
            bound.min(threshold - in_flight)
        };
        // The first retransmission leaves at once.
        if self.out == 0 { allowed.max(1) } else { allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::Prr;

    #[test]
    fn the_first_loss_goes_out_at_once_and_then_every_other_ack_sends_one() {
        // RFC 6937 §3.1: 20 segments, one lost, the threshold 10: deliveries release half as many.
        let mut prr = Prr::new(20);
        let mut in_flight: u32 = 16;
        let mut sent = vec![];
        for _ in 0..16 {
            let allowed = prr.allowed(10, in_flight, 1, false);
            prr.on_sent(allowed);
            in_flight = in_flight + allowed - 1;
            sent.push(allowed);
        }
        assert_eq!(sent[..6], [1, 0, 1, 0, 1, 0]);
        assert!(sent.iter().sum::<u32>() <= 9, "{sent:?}");
    }

    #[test]
    fn below_the_threshold_it_grows_back_as_slow_start_does() {
        let mut prr = Prr::new(20);
        prr.on_sent(1);
        assert_eq!(prr.allowed(10, 4, 2, true), 3);
        assert_eq!(Prr::new(20).allowed(10, 9, 5, true), 1);
    }
}
