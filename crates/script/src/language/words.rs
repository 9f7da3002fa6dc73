//! Words of a line: numbers with units, errors, names.

use std::str::FromStr;
use std::time::Duration;

use nix::errno::Errno;

/// Parses a number, or returns an error text.
pub(super) fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no number that fits here"))
}

/// Parses `40ms`, `1.5s` or `0`.
pub(super) fn time(word: &str) -> Result<Duration, String> {
    let split = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == "0" => 1.0,
        _ => return Err(format!("`{word}` is no time: write 40ms or 1.5s")),
    };
    let value: f64 = self::number(number)?;
    Duration::try_from_secs_f64(value * scale).map_err(|_| format!("`{word}` is no time"))
}

/// Parses `100kbit` or `2mbit`.
pub(super) fn rate(word: &str) -> Result<u64, String> {
    let wrong = || format!("`{word}` is no rate: write 100kbit or 2mbit");
    let (text, scale) = match word.strip_suffix("kbit") {
        Some(text) => (text, 1_000),
        None => (word.strip_suffix("mbit").ok_or_else(wrong)?, 1_000_000),
    };
    let value: u32 = number(text)?;
    Ok(u64::from(value) * scale)
}

/// Parses the name of a socket or connection: one lower-case letter.
pub(super) fn letter(word: &str) -> Result<char, String> {
    let mut letters = word.chars();
    match (letters.next(), letters.next()) {
        (Some(letter @ 'a'..='z'), None) => Ok(letter),
        _ => Err(format!("`{word}` is no name: a socket has one small letter")),
    }
}

pub(super) fn on_off(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{word}` is neither on nor off")),
    }
}

/// Parses an errno by its name in errno(3).
pub(super) fn error(word: &str) -> Result<Errno, String> {
    const KNOWN: [Errno; 10] = [
        Errno::EAGAIN,
        Errno::ECONNABORTED,
        Errno::ECONNREFUSED,
        Errno::ECONNRESET,
        Errno::EHOSTUNREACH,
        Errno::EINPROGRESS,
        Errno::EINVAL,
        Errno::ENOTCONN,
        Errno::EPIPE,
        Errno::ETIMEDOUT,
    ];
    // Debug prints the name of the constant.
    let mut known = KNOWN.into_iter();
    known
        .find(|errno| format!("{errno:?}") == word)
        .ok_or_else(|| format!("`{word}` is neither a number nor an error that is known here"))
}
