//! HTTP's date format.

use std::fmt::Write as _;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECONDS: u64 = 86_400;

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_days(year: u64, month: usize) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Returns the IMF-fixdate (RFC 9110 §5.6.7) of a time in seconds since 1970.
pub(super) fn http_date(seconds: u64) -> String {
    let mut day = seconds / DAY_SECONDS;
    let name = DAYS[usize::try_from(day % 7).unwrap_or(0)];
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    while day >= month_days(year, month) {
        day -= month_days(year, month);
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = String::with_capacity(29);
    let _ = write!(
        text,
        "{name}, {:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT",
        day + 1,
        MONTHS[month]
    );
    text
}

#[cfg(test)]
mod tests {
    use super::http_date;

    #[test]
    fn dates_are_those_of_date_1() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(seconds), date);
        }
    }
}
