//! Common parts of the lab's pages: a logarithmic scale, and bars along one.

use crate::page::svg::{Anchor, Picture};

pub(super) const WIDTH: f64 = 440.0;
/// Height of a row: a name, then a bar.
const ROW: f64 = 34.0;
const HEADING: f64 = 26.0;
const TOP: f64 = 24.0;
/// Room to the right of the bars, for their figures.
const FIGURES: f64 = 64.0;

/// A logarithmic scale: powers of ten over a width.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Returns a scale on which all of these values fit, the least of them not at the very edge.
    pub(super) fn span(values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
        let low = logs.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let high = logs.iter().copied().reduce(f64::max).unwrap_or(0.0);
        // A bar at the edge could not be seen. Times range from nanoseconds to minutes.
        #[allow(clippy::cast_possible_truncation)]
        let whole = |log: f64| log.clamp(-9.0, 9.0) as i32;
        let low = whole((low - 0.15).floor());
        Self { low, high: whole(high.ceil()).max(low + 1) }
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn part(self, value: f64) -> f64 {
        let log = value.max(f64::MIN_POSITIVE).log10();
        ((log - f64::from(self.low)) / f64::from(self.high - self.low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10f64.powi(power))
    }
}

/// One bar.
pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    /// Where it ends, and the value in words.
    pub(super) value: (f64, String),
    /// Its style class.
    pub(super) class: &'static str,
    /// Where a thin line behind it ends.
    pub(super) reach: Option<f64>,
    /// Where a thin mark is, and its tooltip.
    pub(super) mark: Option<(f64, String)>,
    /// The bar's tooltip.
    pub(super) told: &'a str,
}

/// Bars below each other, each below its name. The scale's lines are drawn beside the bars only, so that
/// none crosses a text.
pub(super) struct Bars {
    picture: Picture,
    scale: Scale,
    y: f64,
}

impl Bars {
    /// Creates them; `tick` formats a value of the scale.
    pub(super) fn new(scale: Scale, tick: impl Fn(f64) -> String) -> Self {
        let mut bars = Self { picture: Picture::new(WIDTH), scale, y: TOP };
        for value in scale.ticks() {
            let x = bars.x(value);
            let anchor = if x > 0.0 { Anchor::Middle } else { Anchor::Start };
            bars.picture.text((x, TOP - 10.0), anchor, "ruler", &tick(value));
        }
        bars
    }

    fn x(&self, value: f64) -> f64 {
        self.scale.part(value) * (WIDTH - FIGURES)
    }

    /// Adds a heading for the bars that follow.
    pub(super) fn heading(&mut self, text: &str) {
        self.picture.text((0.0, self.y + 18.0), Anchor::Start, "most", text);
        self.y += HEADING;
    }

    pub(super) fn bar(&mut self, bar: &Bar<'_>) {
        let y = self.y;
        let end = self.x(bar.value.0).max(2.0);
        for tick in self.scale.ticks() {
            let x = self.x(tick);
            self.picture.line((x, y + 17.0), (x, y + 29.0), "lane program");
        }
        self.picture.text((0.0, y + 12.0), Anchor::Start, "event", bar.name);
        self.picture.text((WIDTH, y + 26.0), Anchor::End, "most", &bar.value.1);
        self.picture.rect((0.0, y + 17.0), (end, 10.0), bar.class, bar.told);
        if let Some(reach) = bar.reach {
            self.picture.line((end, y + 22.0), (self.x(reach), y + 22.0), "lane");
        }
        if let Some((mark, says)) = &bar.mark {
            self.picture.rect((self.x(*mark) - 1.0, y + 14.0), (2.0, 16.0), "mark", says);
        }
        self.y += ROW;
    }

    /// Returns the picture; `told` is its description for screen readers.
    pub(super) fn finish(self, told: &str) -> String {
        self.picture.finish(self.y + 4.0, told)
    }
}

/// Returns numbers from 1 to `count` that fit below an axis without touching each other: the first, and
/// all multiples of a step of one, two or five times a power of ten.
pub(super) fn numbered(count: usize) -> impl Iterator<Item = usize> {
    /// How many labels of four digits fit.
    const MOST: usize = 8;
    let mut steps = (0..).flat_map(|power| [1, 2, 5].map(|times| times * 10usize.pow(power)));
    let step = steps.find(move |step| count / step <= MOST).unwrap_or(1);
    (1..=count).filter(move |number| *number % step == 0 || (*number == 1 && step > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_begins_at_the_power_of_ten_below_what_is_on_it() {
        let scale = Scale::span([19.6, 39_000.0].into_iter());
        assert_eq!(scale.ticks().collect::<Vec<_>>(), [10.0, 100.0, 1e3, 1e4, 1e5]);
        assert!(scale.part(19.6) > 0.05 && scale.part(39_000.0) < 0.95);
        assert_eq!(Scale::span(std::iter::empty()).ticks().count(), 2);
    }

    #[test]
    fn however_many_segments_there_are_their_numbers_have_room() {
        let all = |count| numbered(count).collect::<Vec<_>>();
        assert_eq!(all(5), [1, 2, 3, 4, 5]);
        assert_eq!(all(35), [1, 5, 10, 15, 20, 25, 30, 35]);
        assert_eq!(all(175), [1, 20, 40, 60, 80, 100, 120, 140, 160]);
        assert_eq!(all(999), [1, 200, 400, 600, 800]);
        for count in 0..5000 {
            assert!(all(count).len() <= 9, "{count}");
        }
    }
}
