//! Results of benchmarks: rows, the bars that they are held against, and what was skipped.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::place::Place;
use crate::stats::{Spread, quantile, sorted};

/// A benchmark that cannot be run here, and what would make it possible.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skip(String);

impl Skip {
    /// Creates a skip with this sentence.
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// The limit for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Exactly this.
    Exactly(f64),
}

impl Bar {
    fn allows(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bar) => figure <= bar,
            Self::AtLeast(bar) => figure >= bar,
            Self::Exactly(bar) => (figure - bar).abs() < 1e-9,
        }
    }
}

/// The unit of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Operations a second.
    PerSecond,
    /// Percent of a core.
    PercentOfCore,
    /// A count per logical packet.
    PerPacket,
    /// Millions of octets.
    Megabytes,
    /// Millions of bits a second.
    Megabits,
    /// Seconds of processor time for a thousand million octets.
    SecondsPerGigabyte,
    /// One measurement divided by another.
    Times,
}

impl Unit {
    /// Formats `value` for people.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Microseconds => format!("{} µs", digits(value)),
            Self::Milliseconds => format!("{value:.3} ms"),
            Self::Nanoseconds => format!("{} ns", digits(value)),
            Self::PerSecond => format!("{}/s", thousands(value)),
            Self::PercentOfCore => format!("{value:.2} %"),
            Self::Megabits => format!("{value:.1} Mbit/s"),
            Self::Megabytes => format!("{} MB", digits(value)),
            Self::PerPacket => format!("{value:.4}"),
            Self::SecondsPerGigabyte => format!("{} s/GB", digits(value)),
            Self::Times => format!("{}×", digits(value)),
        }
    }
}

/// Formats three to four significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => thousands(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats it rounded to an integer, with separators.
pub(crate) fn thousands(value: f64) -> String {
    let text = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(text.len() + text.len() / 3 + 1);
    if value <= -0.5 {
        out.push('-');
    }
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The statistic of the rounds that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Judged {
    /// The median, which the machine's noise affects least.
    Median,
    /// The 95th percentile: for what must hold every time, on a machine that now and then takes the
    /// processor away from all programs.
    Most,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the benchmark.
    pub(crate) bench: &'static str,
    /// What is compared with what.
    pub(crate) what: String,
    /// The cores that it ran on.
    pub(crate) place: Place,
    /// Unit of `measured` and `against`.
    pub(crate) unit: Unit,
    /// What was measured.
    pub(crate) measured: Spread,
    /// What it is compared with, in the same rounds.
    pub(crate) against: Option<Spread>,
    /// Unit of `figure`.
    pub(crate) figure_unit: Unit,
    /// The figure that is judged: of each round, then spread over the rounds.
    pub(crate) figure: Spread,
    /// 95th percentile of the figure.
    pub(crate) most: f64,
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// The bar, if the row has one.
    #[serde(serialize_with = "bar_as_text")]
    pub(crate) bar: Option<Bar>,
    /// The statistic that is held against the bar.
    pub(crate) judged: Judged,
    /// Whether the bar is met; `None` without a bar.
    pub(crate) pass: Option<bool>,
    /// A remark for the reader of this row.
    pub(crate) note: Option<String>,
}

/// The ways in which the two sides of a comparison are combined, round by round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// Measured divided by the other: of times (1.2× is slower), of rates (0.9× is slower).
    Ratio,
    /// The other divided by measured: how many times faster, for times.
    Faster,
    /// Measured minus the other.
    Difference,
}

impl Row {
    /// Creates a comparison of `measured` with `against`, round by round.
    pub(crate) fn compare(
        (bench, what): (&'static str, impl Into<String>),
        place: Place,
        unit: Unit,
        (measured, compare, against): (&[f64], Compare, &[f64]),
    ) -> Self {
        let figure: Vec<f64> = measured
            .iter()
            .zip(against)
            .map(|(&a, &b)| match compare {
                Compare::Ratio => a / b,
                Compare::Faster => b / a,
                Compare::Difference => a - b,
            })
            .collect();
        let figure_unit = if compare == Compare::Difference { unit } else { Unit::Times };
        let row = Self::absolute((bench, what), place, figure_unit, &figure);
        Self { unit, measured: Spread::of(measured), against: Some(Spread::of(against)), ..row }
    }

    /// Creates a figure that stands for itself.
    pub(crate) fn absolute(
        (bench, what): (&'static str, impl Into<String>),
        place: Place,
        unit: Unit,
        measured: &[f64],
    ) -> Self {
        let spread = Spread::of(measured);
        Self {
            bench,
            what: what.into(),
            place,
            unit,
            measured: spread,
            against: None,
            figure_unit: unit,
            figure: spread,
            most: quantile(&sorted(measured), 0.95),
            rounds: measured.len(),
            bar: None,
            judged: Judged::Median,
            pass: None,
            note: None,
        }
    }

    /// Holds the median against `bar`.
    pub(crate) fn bar(self, bar: Bar) -> Self {
        let pass = self.rounds > 0 && bar.allows(self.figure.median);
        Self { bar: Some(bar), pass: Some(pass), ..self }
    }

    /// Holds the 95th percentile against `bar`.
    pub(crate) fn bar_for_most(self, bar: Bar) -> Self {
        let pass = self.rounds > 0 && bar.allows(self.most);
        Self { bar: Some(bar), pass: Some(pass), judged: Judged::Most, ..self }
    }

    /// Holds the median against `bar` if both ends share a core; elsewhere it is only reported.
    pub(crate) fn bar_on_one_core(self, bar: Bar) -> Self {
        match self.place {
            Place::OneCore => self.bar(bar),
            Place::TwoCores => self,
        }
    }

    /// Shows another measurement beside it; the figure remains its own.
    pub(crate) fn beside(self, against: &[f64]) -> Self {
        Self { against: Some(Spread::of(against)), ..self }
    }

    /// Adds a remark for the reader.
    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }
}

fn bar_as_text<S: Serializer>(bar: &Option<Bar>, serializer: S) -> Result<S::Ok, S::Error> {
    match bar {
        Some(bar) => serializer.serialize_some(&bar.to_string()),
        None => serializer.serialize_none(),
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bar) => write!(f, "≤ {bar}"),
            Self::AtLeast(bar) => write!(f, "≥ {bar}"),
            Self::Exactly(bar) => write!(f, "= {bar}"),
        }
    }
}

/// A benchmark without rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Absent {
    /// Name of the benchmark (and of the part, if only a part is absent).
    pub(crate) bench: String,
    /// The reason.
    pub(crate) why: String,
}

/// The results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    /// The rows.
    pub(crate) rows: Vec<Row>,
    /// Benchmarks that could not be run here.
    pub(crate) skipped: Vec<Absent>,
    /// Benchmarks that failed.
    pub(crate) failed: Vec<Absent>,
}

impl Outcome {
    /// Adds the result of a benchmark (or of a part of one).
    pub(crate) fn take(&mut self, bench: &str, result: anyhow::Result<Vec<Row>>) {
        match result {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => {
                let absent = Absent { bench: bench.to_owned(), why: format!("{error:#}") };
                if error.is::<Skip>() {
                    self.skipped.push(absent);
                } else {
                    self.failed.push(absent);
                }
            }
        }
    }

    /// Returns the number of rows that have a bar and meet it, and the number that have one.
    pub(crate) fn score(&self) -> (usize, usize) {
        let judged = self.rows.iter().filter_map(|row| row.pass);
        (judged.clone().filter(|&pass| pass).count(), judged.count())
    }

    /// Returns whether the run was a success; `strict` permits no skip either.
    pub(crate) fn success(&self, strict: bool) -> bool {
        let (kept, bars) = self.score();
        kept == bars && self.failed.is_empty() && (self.skipped.is_empty() || !strict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: &[f64], compare: Compare, against: &[f64]) -> Row {
        let sides = (measured, compare, against);
        Row::compare(("test", "a / b"), Place::OneCore, Unit::Microseconds, sides)
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        // The machine slowed down threefold in the second round: the ratio is not affected.
        let row = row(&[2.0, 6.0, 2.0], Compare::Ratio, &[1.0, 3.0, 1.0]).bar(Bar::AtMost(2.0));
        assert_eq!(row.figure, Spread { min: 2.0, median: 2.0, max: 2.0 });
        assert_eq!(row.pass, Some(true));
    }

    #[test]
    fn a_missed_bar_fails_the_run() {
        let mut outcome = Outcome::default();
        outcome.take("x", Ok(vec![row(&[1.0], Compare::Faster, &[14.0]).bar(Bar::AtLeast(15.0))]));
        assert_eq!(outcome.score(), (0, 1));
        assert!(!outcome.success(false));
    }

    #[test]
    fn a_bar_for_most_allows_one_in_twenty_and_no_more() {
        let judge = |late: usize| {
            let samples: Vec<f64> = (0..40).map(|n| if n < late { 9.0 } else { 1.0 }).collect();
            let row = Row::absolute(("t", "w"), Place::OneCore, Unit::Milliseconds, &samples);
            assert_eq!(row.clone().bar(Bar::AtMost(2.0)).pass, Some(true));
            row.bar_for_most(Bar::AtMost(2.0)).pass
        };
        assert_eq!(judge(2), Some(true));
        assert_eq!(judge(3), Some(false));
    }

    #[test]
    fn nothing_measured_keeps_no_bar() {
        let row = Row::absolute(("t", "w"), Place::OneCore, Unit::Milliseconds, &[]);
        assert_eq!(row.clone().bar(Bar::AtMost(1.0)).pass, Some(false));
        assert_eq!(row.bar_for_most(Bar::AtMost(1.0)).pass, Some(false));
    }

    #[test]
    fn a_skip_fails_only_a_strict_run_and_a_failure_every_run() {
        let mut outcome = Outcome::default();
        outcome.take("nginx", Err(Skip::new("install nginx").into()));
        assert!(outcome.success(false));
        assert!(!outcome.success(true));
        outcome.take("redis", Err(anyhow::anyhow!("it crashed")));
        assert!(!outcome.success(false));
        assert_eq!((outcome.skipped.len(), outcome.failed.len()), (1, 1));
    }

    #[test]
    fn numbers_are_shown_with_separators() {
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(-1000.0), "-1,000");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(digits(44612.0), "44,612");
        assert_eq!(digits(0.97), "0.970");
    }
}
