//! Conditions for continuous integration: `--fail-on 'stall>5ms'`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uncork_doctor::{Kind, Report, Severity};
use uncork_posix::config::parse_duration;

/// Kinds of findings, by their names in the JSON.
pub(crate) const KINDS: [(&str, Kind); 11] = [
    ("nagle_delayed_ack", Kind::NagleDelayedAck),
    ("delayed_ack", Kind::DelayedAck),
    ("quickack_exhausted", Kind::QuickAckExhausted),
    ("cork_timeout", Kind::CorkTimeout),
    ("tiny_packets", Kind::TinyPackets),
    ("runt", Kind::Runt),
    ("nodelay_not_in_force", Kind::NoDelayNotInForce),
    ("sender_queue", Kind::SenderQueue),
    ("zero_window", Kind::ZeroWindow),
    ("retransmission", Kind::Retransmission),
    ("application", Kind::Application),
];

/// A condition on a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FailOn {
    /// One stall is longer than this.
    Stall(Duration),
    /// All stalls together are longer than this.
    Lost(Duration),
    /// All stalls together are more than this share of the time that clients waited for replies.
    Share(f64),
    /// There is a finding of this kind that is not harmless.
    Kind(Kind),
}

impl FailOn {
    /// Returns whether it holds.
    pub(crate) fn holds(self, report: &Report) -> bool {
        match self {
            Self::Stall(limit) => longest_stall(report) > limit,
            Self::Lost(limit) => report.summary.lost > limit,
            Self::Share(limit) => share(report) > limit,
            Self::Kind(kind) => {
                let mut findings = report.connections.iter().flat_map(|c| &c.findings);
                findings.any(|f| f.kind == kind && f.severity > Severity::Harmless)
            }
        }
    }
}

/// Returns the longest wait for TCP; a slow program is not TCP's fault.
fn longest_stall(report: &Report) -> Duration {
    let findings = report.connections.iter().flat_map(|connection| &connection.findings);
    let stalls = findings
        .filter(|f| f.severity == Severity::LostTime && f.kind != Kind::Application)
        .map(|f| f.each.max);
    stalls.max().unwrap_or_default()
}

/// Returns the time lost as a share of the time that requests took. Without requests it is all or nothing.
fn share(report: &Report) -> f64 {
    let (lost, request_time) = (report.summary.lost, report.summary.request_time);
    if request_time.is_zero() {
        return if lost.is_zero() { 0.0 } else { 1.0 };
    }
    lost.as_secs_f64() / request_time.as_secs_f64()
}

/// Why a condition is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl FromStr for FailOn {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some((what, limit)) = text.split_once('>') else {
            let kind = KINDS.iter().find(|(name, _)| *name == text.trim());
            return kind.map(|(_, kind)| Self::Kind(*kind)).ok_or_else(|| {
                Invalid(format!(
                    "{text:?} is neither a condition such as stall>5ms, lost>50ms or share>1%, \
                     nor a kind of finding"
                ))
            });
        };
        let limit = limit.trim();
        let duration = || parse_duration(limit).map_err(|error| Invalid(error.to_string()));
        match what.trim() {
            "stall" => duration().map(Self::Stall),
            "lost" => duration().map(Self::Lost),
            "share" => percentage(limit).map(Self::Share),
            other => Err(Invalid(format!("{other:?} is not one of stall, lost and share"))),
        }
    }
}

/// Parses `1%` as 0.01.
fn percentage(text: &str) -> Result<f64, Invalid> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let share = number.filter(|percent| (0.0..=100.0).contains(percent));
    let invalid = || Invalid(format!("{text:?} is not a percentage such as 1% or 0.5%"));
    share.map(|percent| percent / 100.0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use uncork_doctor::Doctor;

    fn report(lost: u64, request_time: u64) -> Report {
        let mut report = Doctor::default().finish();
        report.summary.lost = Duration::from_millis(lost);
        report.summary.request_time = Duration::from_millis(request_time);
        report
    }

    fn holds(condition: &str, report: &Report) -> bool {
        condition.parse::<FailOn>().unwrap().holds(report)
    }

    #[test]
    fn names_of_kinds_are_those_of_the_json() {
        for (name, kind) in KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
            assert_eq!(name.parse(), Ok(FailOn::Kind(kind)));
        }
    }

    #[test]
    fn limits_are_passed_only_when_they_are_exceeded() {
        assert!(holds("lost>50ms", &report(51, 100)));
        assert!(!holds("lost > 51ms", &report(51, 100)));
        assert!(holds("share>50%", &report(51, 100)));
        assert!(!holds("share>51.5%", &report(51, 100)));
        assert!(!holds("stall>0ms", &report(51, 100)));
    }

    #[test]
    fn without_requests_the_share_is_all_or_nothing() {
        assert!(!holds("share>0%", &report(0, 0)));
        assert!(holds("share>99%", &report(1, 0)));
    }

    #[test]
    fn what_is_no_condition_is_told_in_one_sentence() {
        for (text, part) in [
            ("", "neither a condition"),
            ("stall", "neither a condition"),
            ("nagle", "nor a kind of finding"),
            ("stalls>5ms", "\"stalls\" is not one of stall, lost and share"),
            ("stall>5", "\"5\" is not a duration"),
            ("lost>-5ms", "\"-5ms\" is not a duration"),
            ("stall>=5ms", "\"=5ms\" is not a duration"),
            ("share>5ms", "\"5ms\" is not a percentage"),
            ("share>101%", "\"101%\" is not a percentage"),
            ("share>NaN%", "\"NaN%\" is not a percentage"),
        ] {
            let error = text.parse::<FailOn>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
