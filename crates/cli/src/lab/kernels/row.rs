//! A kernel's row.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use uncork_ack::kernel::{self, Corrections, Side};
use uncork_lab::kernels::{Failed, Pattern, RUNS, Shown};
use uncork_lab::quickack::Told;

/// The results of a kernel.
#[derive(Debug, Serialize)]
pub(in crate::lab) struct Row {
    /// Its name as given; this machine's own kernel has none.
    kernel: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    shown: Option<Shown>,
    /// Patterns, in the runs' order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<Pattern>,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrections: Option<Both>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failed>,
}

/// The corrections of October 2023: what the runs show, and what the version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(in crate::lab) struct Both {
    pub(in crate::lab) measured: Corrections,
    pub(in crate::lab) by_version: Corrections,
}

impl Row {
    pub(in crate::lab) fn of(kernel: Option<String>, result: Result<Shown, Failed>) -> Self {
        let (shown, error) = match result {
            Ok(shown) => (Some(shown), None),
            Err(failed) => (None, Some(failed)),
        };
        let runs = shown.as_ref().map_or(&[] as &[Told], |shown| &shown.runs);
        let patterns = runs.iter().map(|told| Pattern::of(&told.verdict)).collect();
        let corrections = shown.as_ref().map(|shown| Both {
            measured: measured(&shown.runs),
            by_version: kernel::of(
                &shown.identity.release,
                &shown.identity.version,
                &shown.identity.signature,
            ),
        });
        Self { kernel, shown, patterns, corrections, error }
    }

    /// Returns its name, without the directory.
    pub(in crate::lab) fn name(&self) -> String {
        let Some(kernel) = &self.kernel else { return "this machine".to_owned() };
        let file = Path::new(kernel).file_name();
        file.map_or_else(|| kernel.clone(), |file| file.to_string_lossy().into_owned())
    }

    /// Returns its name as given.
    pub(in crate::lab) fn whole_name(&self) -> &str {
        self.kernel.as_deref().unwrap_or("this machine")
    }

    pub(in crate::lab) fn shown(&self) -> Option<&Shown> {
        self.shown.as_ref()
    }

    pub(in crate::lab) fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    pub(in crate::lab) fn corrections(&self) -> Option<Both> {
        self.corrections
    }

    pub(in crate::lab) fn error(&self) -> Option<&Failed> {
        self.error.as_ref()
    }
}

/// Returns what the runs show of the corrections. The lab knows what a single verdict cannot: the reader
/// of the reference run never falls behind, so credits spent there mean that reading does not acknowledge.
fn measured(runs: &[Told]) -> Corrections {
    let reference = runs.first().map(|told| Pattern::of(&told.verdict));
    let mss_boundary = match reference {
        Some(Pattern::Quick) => Side::After,
        Some(Pattern::LateFrom(_)) => Side::Before,
        _ => Side::Unknown,
    };
    let sides = runs.iter().map(|told| match &told.verdict["credit_counting"] {
        Value::String(side) if side == "after" => Side::After,
        Value::String(side) if side == "before" => Side::Before,
        _ => Side::Unknown,
    });
    let credit_counting = sides.into_iter().find(|side| *side != Side::Unknown);
    Corrections { credit_counting: credit_counting.unwrap_or(Side::Unknown), mss_boundary }
}

/// Headings of the runs, short enough to be placed side by side.
pub(in crate::lab) const HEADINGS: [&str; RUNS.len()] =
    ["reference run", "reader behind", "behind, and sends", "replies of 3"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn runs(kinds: [(&str, u64, &str); 4]) -> Vec<Told> {
        let told = |(run, (kind, quick, counting))| Told {
            run,
            ack_delays_ms: Vec::new(),
            verdict: json!({
                "kind": kind, "quick_at_first": quick, "acks": 100, "late": 0,
                "credit_counting": counting,
            }),
            sentence: String::new(),
        };
        RUNS.into_iter().zip(kinds).map(told).collect()
    }

    #[test]
    fn each_correction_is_told_by_the_run_that_shows_it() {
        let quick = ("quick_throughout", 100, "unknown");
        let late = |quick, counting| ("quick_then_late", quick, counting);
        let both = runs([quick, late(18, "unknown"), late(18, "after"), quick]);
        let shown = measured(&both);
        assert_eq!((shown.credit_counting, shown.mss_boundary), (Side::After, Side::After));
        let neither = runs([late(16, "unknown"), late(16, "unknown"), late(8, "before"), quick]);
        let shown = measured(&neither);
        assert_eq!((shown.credit_counting, shown.mss_boundary), (Side::Before, Side::Before));
        let nothing = runs([("too_few", 2, "unknown"); 4]);
        let shown = measured(&nothing);
        assert_eq!((shown.credit_counting, shown.mss_boundary), (Side::Unknown, Side::Unknown));
    }
}
