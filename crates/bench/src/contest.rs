//! Interleaved rounds: what is compared is measured side by side, so that what the machine does
//! besides hits all alike.

use anyhow::{Context, Result};

use crate::progress::Progress;

/// One contestant.
pub(crate) struct Case<'a> {
    name: String,
    measure: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Case<'a> {
    /// A contestant; each call of `measure` is one run and gives the same number of figures.
    pub(crate) fn new(
        name: impl Into<String>,
        measure: impl FnMut() -> Result<Vec<f64>> + 'a,
    ) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// What was measured: by contestant, figure and round.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Vec<Vec<f64>>>);

impl Samples {
    /// All rounds of one figure of one contestant.
    pub(crate) fn get(&self, case: usize, figure: usize) -> &[f64] {
        self.0.get(case).and_then(|figures| figures.get(figure)).map_or(&[], Vec::as_slice)
    }
}

/// Runs all cases once without counting it, then `rounds` times: A B C, C B A, A B C …
/// The order turns round each time so that nobody always follows the same neighbour.
pub(crate) fn interleave(
    cases: &mut [Case<'_>],
    rounds: usize,
    progress: &Progress,
) -> Result<Samples> {
    let mut samples = Samples(vec![Vec::new(); cases.len()]);
    progress.begin(cases.len() * (rounds + 1));
    for round in 0..=rounds {
        for step in 0..cases.len() {
            let index = if round % 2 == 0 { step } else { cases.len() - 1 - step };
            let case = &mut cases[index];
            progress.on(&case.name);
            let figures = (case.measure)().with_context(|| case.name.clone())?;
            progress.done();
            if round == 0 {
                samples.0[index] = vec![Vec::with_capacity(rounds); figures.len()];
                continue;
            }
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
        let samples = interleave(&mut cases, 2, &Progress::silent()).unwrap();
        assert_eq!(*order.borrow(), "ABCCBAABC");
        assert_eq!(samples.get(0, 0), [2.0, 3.0]);
        assert_eq!(samples.get(2, 1), [-2.0, -3.0]);
        assert!(samples.get(3, 0).is_empty());
    }

    #[test]
    fn an_error_names_the_contestant() {
        let mut cases = [Case::new("the slow one", || anyhow::bail!("out of breath"))];
        let error = interleave(&mut cases, 1, &Progress::silent()).unwrap_err();
        assert_eq!(format!("{error:#}"), "the slow one: out of breath");
    }
}
