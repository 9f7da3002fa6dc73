//! Interleaved rounds: what is compared is measured side by side, so that other load on the machine
//! affects all alike.

use anyhow::{Context, Result};

/// An observer of the progress.
pub trait Watch {
    /// Says how many measurements follow.
    fn begin(&self, steps: usize);
    /// Names the measurement that starts now.
    fn on(&self, what: &str);
    /// Says that the measurement is done.
    fn done(&self);
}

/// How often each case is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Rounds that count.
    pub counted: usize,
    /// Whether an uncounted round precedes them.
    pub warm_up: bool,
}

impl Rounds {
    /// Returns that many rounds, after one that does not count.
    #[must_use]
    pub fn warm(counted: usize) -> Self {
        Self { counted, warm_up: true }
    }
}

/// One contestant.
pub struct Case<'a> {
    name: String,
    measure: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Case<'a> {
    /// Creates a contestant; each call of `measure` is one run and returns the same number of figures.
    pub fn new(name: impl Into<String>, measure: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// The measurements, by contestant, figure and round.
#[derive(Debug, Default)]
pub struct Samples(Vec<Vec<Vec<f64>>>);

impl Samples {
    /// Returns all rounds of one figure of one contestant.
    #[must_use]
    pub fn get(&self, case: usize, figure: usize) -> &[f64] {
        self.0.get(case).and_then(|figures| figures.get(figure)).map_or(&[], Vec::as_slice)
    }
}

/// Runs all cases once without counting it, if they are to be warmed up, and then round by round: A
/// B C, C B A, A B C … The order alternates so that no case always follows the same neighbour.
///
/// # Errors
/// What a case returns, with its name.
pub fn interleave(cases: &mut [Case<'_>], rounds: Rounds, watch: &impl Watch) -> Result<Samples> {
    let mut samples = Samples(vec![Vec::new(); cases.len()]);
    let uncounted = usize::from(rounds.warm_up);
    watch.begin(cases.len() * (rounds.counted + uncounted));
    for round in 0..rounds.counted + uncounted {
        for step in 0..cases.len() {
            let index = if round % 2 == 0 { step } else { cases.len() - 1 - step };
            let case = &mut cases[index];
            watch.on(&case.name);
            let figures = (case.measure)().with_context(|| case.name.clone())?;
            watch.done();
            if round < uncounted {
                continue;
            }
            samples.0[index].resize_with(figures.len(), Vec::new);
            for (into, figure) in samples.0[index].iter_mut().zip(figures) {
                into.push(figure);
            }
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Nobody;

    impl Watch for Nobody {
        fn begin(&self, _: usize) {}
        fn on(&self, _: &str) {}
        fn done(&self) {}
    }

    #[test]
    fn rounds_alternate_and_the_first_is_not_counted() {
        let order = RefCell::new(String::new());
        let case = |name: &'static str| {
            let order = &order;
            let mut runs = 0.0;
            Case::new(name, move || {
                order.borrow_mut().push_str(name);
                runs += 1.0;
                Ok(vec![runs, -runs])
            })
        };
        let mut cases = [case("A"), case("B"), case("C")];
        let samples = interleave(&mut cases, Rounds::warm(2), &Nobody).unwrap();
        assert_eq!(*order.borrow(), "ABCCBAABC");
        assert_eq!(samples.get(0, 0), [2.0, 3.0]);
        assert_eq!(samples.get(2, 1), [-2.0, -3.0]);
        assert!(samples.get(3, 0).is_empty());
    }

    #[test]
    fn without_a_warm_up_every_round_counts() {
        let mut runs = 0.0;
        let mut cases = [Case::new("A", || {
            runs += 1.0;
            Ok(vec![runs])
        })];
        let cold = Rounds { counted: 2, warm_up: false };
        let samples = interleave(&mut cases, cold, &Nobody).unwrap();
        assert_eq!(samples.get(0, 0), [1.0, 2.0]);
    }

    #[test]
    fn an_error_names_the_contestant() {
        let mut cases = [Case::new("the slow one", || anyhow::bail!("out of breath"))];
        let error = interleave(&mut cases, Rounds::warm(1), &Nobody).unwrap_err();
        assert_eq!(format!("{error:#}"), "the slow one: out of breath");
    }
}
