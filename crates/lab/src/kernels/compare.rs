//! The behaviour of a kernel in a run as one word, whether two kernels differ in it, and which of a
//! list is the first that does.

use core::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::quickack::Told;

/// Credits are renewed as the window grows, and the machine may be busy: the first late ACK is
/// number 17 here and 19 there. A kernel that spends credits on something else differs by more.
const SAME_WITHIN: u64 = 3;

/// When the receiver of a run acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "pattern", content = "from")]
pub enum Pattern {
    /// At once, except for one in ten at most.
    Quick,
    /// At once, and then late from this segment on.
    LateFrom(u64),
    /// Late from the first.
    Late,
    /// Late now and then.
    NowAndThen,
    /// One ACK for several segments.
    Shared,
    /// Too few were timed.
    Unclear,
}

impl Pattern {
    /// Returns the pattern in a verdict of `uncork ack`.
    #[must_use]
    pub fn of(verdict: &Value) -> Self {
        let number = |name: &str| verdict[name].as_u64().unwrap_or_default();
        match verdict["kind"].as_str() {
            Some("quick_throughout") => Self::Quick,
            Some("quick_then_late") => Self::LateFrom(number("quick_at_first") + 1),
            Some("late_throughout") => Self::Late,
            Some("late_now_and_then") if number("late") * 10 <= number("acks") => Self::Quick,
            Some("late_now_and_then") => Self::NowAndThen,
            Some("several_per_ack") => Self::Shared,
            _ => Self::Unclear,
        }
    }

    /// Returns whether two kernels with these patterns behave differently.
    #[must_use]
    pub fn differs(self, other: Self) -> bool {
        match (self, other) {
            (Self::LateFrom(one), Self::LateFrom(other)) => one.abs_diff(other) > SAME_WITHIN,
            (one, other) => one != other,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quick => f.write_str("quick"),
            Self::LateFrom(segment) => write!(f, "late from {segment}"),
            Self::Late => f.write_str("late"),
            Self::NowAndThen => f.write_str("late at times"),
            Self::Shared => f.write_str("ACKs shared"),
            Self::Unclear => f.write_str("unclear"),
        }
    }
}

/// Returns the first run in which two kernels differ, and how each behaves in it.
#[must_use]
pub fn difference(one: &[Told], other: &[Told]) -> Option<(&'static str, Pattern, Pattern)> {
    let patterns = one
        .iter()
        .zip(other)
        .map(|(a, b)| (a.run.name, Pattern::of(&a.verdict), Pattern::of(&b.verdict)));
    patterns.into_iter().find(|(_, a, b)| a.differs(*b))
}

/// Finds the first of `count` that differs from number 0, if the last one does; `differs` is called
/// for as few as possible, and never for number 0. Without a result all are taken to be alike.
///
/// # Errors
/// What `differs` returns.
pub fn bisect<E>(
    count: usize,
    mut differs: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    let Some(last) = count.checked_sub(1).filter(|last| *last > 0) else { return Ok(None) };
    if !differs(last)? {
        return Ok(None);
    }
    let (mut same, mut different) = (0, last);
    while different - same > 1 {
        let middle = usize::midpoint(same, different);
        if differs(middle)? {
            different = middle;
        } else {
            same = middle;
        }
    }
    Ok(Some(different))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::RUNS;
    use serde_json::json;

    #[test]
    fn bisecting_finds_every_first_one_and_asks_about_few() {
        for count in 0..70_usize {
            for first in 1..=count {
                let mut asked = Vec::new();
                let found = bisect(count, |number| {
                    assert!(number > 0 && number < count && !asked.contains(&number));
                    asked.push(number);
                    Ok::<_, ()>(number >= first)
                });
                assert_eq!(found, Ok((first < count).then_some(first)), "{first} of {count}");
                let most = 1 + count.next_power_of_two().ilog2() as usize;
                assert!(asked.len() <= most, "{} asked of {count}", asked.len());
            }
        }
    }

    #[test]
    fn what_cannot_be_told_ends_the_search() {
        assert_eq!(
            bisect(9, |number| if number == 4 { Err("broken") } else { Ok(true) }),
            Err("broken")
        );
    }

    fn told(kinds: [Value; 4]) -> Vec<Told> {
        let told = |(run, verdict)| Told {
            run,
            ack_delays_ms: Vec::new(),
            verdict,
            sentence: String::new(),
        };
        RUNS.into_iter().zip(kinds).map(told).collect()
    }

    fn late_after(quick: u64) -> Value {
        json!({ "kind": "quick_then_late", "quick_at_first": quick, "late": 50, "acks": 100 })
    }

    #[test]
    fn kernels_differ_in_what_they_do_and_not_in_a_credit_or_a_busy_moment() {
        let quick = || json!({ "kind": "quick_throughout", "late": 0, "acks": 100 });
        let hiccup = json!({ "kind": "late_now_and_then", "late": 4, "acks": 100 });
        let now = told([quick(), late_after(18), late_after(17), quick()]);
        let busy = told([hiccup, late_after(17), late_after(19), quick()]);
        assert_eq!(difference(&now, &busy), None);
        let per_segment = told([quick(), late_after(18), late_after(8), quick()]);
        let name = "a reader behind that also sends";
        let (was, is) = (Pattern::LateFrom(18), Pattern::LateFrom(9));
        assert_eq!(difference(&now, &per_segment), Some((name, was, is)));
        let before = told([late_after(16), late_after(18), late_after(17), quick()]);
        let (was, is) = (Pattern::Quick, Pattern::LateFrom(17));
        assert_eq!(difference(&now, &before), Some(("the reference run", was, is)));
        assert_eq!(Pattern::of(&json!({})), Pattern::Unclear);
        assert_eq!(is.to_string(), "late from 17");
    }
}
