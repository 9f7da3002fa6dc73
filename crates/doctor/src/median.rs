//! A median in bounded memory.

/// How many values are kept.
const KEPT: usize = 8;

/// A sample of every n-th value, where n doubles whenever there are too many: evenly spaced, and
/// the same in each run over the same values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Median {
    kept: [u32; KEPT],
    filled: u8,
    /// Every `1 << stride`-th value is kept.
    stride: u8,
    seen: u32,
}

impl Median {
    /// Counts a value.
    pub(crate) fn record(&mut self, value: u32) {
        let due = self.seen.trailing_zeros() >= u32::from(self.stride) || self.seen == 0;
        self.seen = self.seen.wrapping_add(1);
        if !due {
            return;
        }
        if usize::from(self.filled) == KEPT {
            self.thin_out();
        }
        self.kept[usize::from(self.filled)] = value;
        self.filled += 1;
    }

    /// Drops every second value.
    fn thin_out(&mut self) {
        for place in 0..KEPT / 2 {
            self.kept[place] = self.kept[2 * place];
        }
        self.filled = (KEPT / 2) as u8;
        self.stride = (self.stride + 1).min(31);
    }

    /// Returns the median of the values, 0 if there are none.
    pub(crate) fn get(&self) -> u32 {
        let mut kept = self.kept;
        let kept = &mut kept[..usize::from(self.filled)];
        kept.sort_unstable();
        kept.get(kept.len() / 2).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Median;

    #[test]
    fn the_middle_is_found_however_many_values_there_are() {
        let mut median = Median::default();
        assert_eq!(median.get(), 0);
        median.record(7);
        assert_eq!(median.get(), 7);
        let mut long = Median::default();
        for value in 0..100_000 {
            long.record(value);
        }
        assert!((35_000..65_000).contains(&long.get()), "{}", long.get());
    }
}
