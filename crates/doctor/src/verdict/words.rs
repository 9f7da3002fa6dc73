//! Numbers for human readers.

use std::time::Duration;

/// Formats a time with as many digits as matter: in milliseconds, or in seconds from one on.
pub(crate) fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ms if ms >= 999.5 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

/// Formats a count and its noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

/// Returns `once`, or how many times.
pub(crate) fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { count(number, "time", "times") }
}

/// Says the longest of `number` times; of one its length.
pub(crate) fn at_most(number: u64, longest: Duration) -> String {
    if number == 1 { ms(longest) } else { format!("{} at most", ms(longest)) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{at_most, ms, times};

    #[test]
    fn one_is_no_many() {
        let long = Duration::from_millis(40);
        assert_eq!((times(1), times(2)), ("once".to_owned(), "2 times".to_owned()));
        assert_eq!(at_most(1, long), "40.0 ms");
        assert_eq!(at_most(2, long), "40.0 ms at most");
    }

    #[test]
    fn a_thousand_milliseconds_are_a_second() {
        let texts =
            [20, 5_000, 999_400, 999_600, 12_345_678].map(|us| ms(Duration::from_micros(us)));
        assert_eq!(texts, ["0.020 ms", "5.0 ms", "999 ms", "1.00 s", "12.35 s"]);
    }
}
