//! The settings, their spelling and where they come from.
//!
//! One definition serves the library (which reads the environment), `uncork run` (which
//! writes it) and the reports (which repeat it).

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the bytes of an unfinished logical packet are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// In the kernel, under MSG_MORE: nothing that was written can be lost with the process.
    #[default]
    Kernel,
    /// In the process, in a buffer: one system call a logical packet.
    User,
    /// Nowhere: every call goes through (for `--spin` alone, or for comparison).
    Off,
}

/// Which TCP sockets are helped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Every TCP socket that the program does not cork itself.
    #[default]
    All,
    /// Only those on which the program sets TCP_NODELAY.
    Nodelay,
}

/// How long a wait polls before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spin {
    /// Waits sleep at once.
    #[default]
    Off,
    /// As long as this thread's recent waits make it worthwhile.
    Auto,
    /// Always for this long.
    For(Duration),
}

/// For how long received frames may wait in a stack's ring for others, when many requests come (`--moderation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation(Option<Duration>);

/// Largest number of bytes of one connection in a stack's device queue (`--small-queue`); if unset, the stack's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallQueue(Option<u32>);

/// A setting that could not be understood; the text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

macro_rules! spelled {
    ($type:ident, $what:literal, $($text:literal => $value:path),+) => {
        impl FromStr for $type {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                match text {
                    $($text => Ok($value),)+
                    _ => Err(Invalid(format!(concat!("{:?} is not ", $what), text))),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($value => $text,)+ })
            }
        }
    };
}

spelled!(Hold, "one of kernel, user, off", "kernel" => Hold::Kernel, "user" => Hold::User, "off" => Hold::Off);
spelled!(Scope, "one of all, nodelay", "all" => Scope::All, "nodelay" => Scope::Nodelay);

impl FromStr for Spin {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => match parse_duration(text) {
                Ok(limit) if limit <= MAX_SPIN => Ok(Self::For(limit)),
                Ok(_) => Err(Invalid(format!("{text} is too long to spin: at most 100ms"))),
                Err(_) => {
                    Err(Invalid(format!("{text:?} is not off, auto or a duration such as 50us")))
                }
            },
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::For(limit) => f.write_str(&format_duration(*limit)),
        }
    }
}

impl Spin {
    /// Returns whether waits sleep at once.
    pub fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::For(Duration::ZERO))
    }
}

impl Moderation {
    /// No moderation.
    pub const OFF: Self = Self(None);

    /// Returns the longest time that frames wait; zero if moderation is off.
    pub fn longest(self) -> Duration {
        self.0.unwrap_or_default()
    }
}

impl FromStr for Moderation {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match (text, parse_duration(text)) {
            ("off", _) => Ok(Self::OFF),
            (_, Ok(longest)) if (MODERATION.0..=MODERATION.1).contains(&longest) => {
                Ok(Self(Some(longest)))
            }
            (_, Ok(_)) => {
                Err(Invalid(format!("{text} is out of range: a moderation is 10us to 1ms, or off")))
            }
            _ => Err(Invalid(format!("{text:?} is not off or a duration such as 128us"))),
        }
    }
}

impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(longest) => f.write_str(&format_duration(longest)),
        }
    }
}

impl SmallQueue {
    /// The stack's own limit applies.
    pub const UNSET: Self = Self(None);

    /// Returns the limit, if one was given.
    pub fn bytes(self) -> Option<u32> {
        self.0
    }
}

impl FromStr for SmallQueue {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.parse() {
            Ok(bytes) if (1..=SMALL_QUEUE).contains(&bytes) => Ok(Self(Some(bytes))),
            Ok(_) => Err(Invalid(format!(
                "{text} is out of range: a small queue is 1 to {SMALL_QUEUE} bytes"
            ))),
            Err(_) => Err(Invalid(format!("{text:?} is not a number of bytes such as 131072"))),
        }
    }
}

impl fmt::Display for SmallQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |bytes| bytes.fmt(f))
    }
}

/// Largest `--small-queue`: the most that Linux lets a connection have in its send buffer by default (tcp_wmem).
const SMALL_QUEUE: u32 = 4 << 20;
/// Longest `--spin DURATION`: a longer one is a mistake in the unit.
const MAX_SPIN: Duration = Duration::from_millis(100);
/// Shortest and longest `--moderation`: below that a timer gathers nothing, and longer waits are what this project is
/// meant to avoid.
const MODERATION: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));
/// Shortest and longest `--bound`. Below 100 µs the timer costs more than it saves; past 200 ms the kernel sends MSG_MORE
/// data by itself.
const BOUND: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(200));

/// How long anything may stay held at most, whatever the program does (`--bound`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bound(pub Duration);

impl Default for Bound {
    fn default() -> Self {
        Self(Duration::from_millis(1))
    }
}

impl FromStr for Bound {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bound = parse_duration(text)?;
        if bound < BOUND.0 || bound > BOUND.1 {
            return Err(Invalid(format!("{text} is out of range: a bound is 100us to 200ms")));
        }
        Ok(Self(bound))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

/// Parses a duration such as `1ms`, `250us`, `1.5ms` or `2s`. The unit is required.
pub fn parse_duration(text: &str) -> Result<Duration, Invalid> {
    let invalid = || Invalid(format!("{text:?} is not a duration such as 1ms, 250us or 2s"));
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(invalid)?;
    let (number, unit) = text.split_at(unit_at);
    let nanoseconds = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(invalid()),
    };
    let number: f64 = number.trim_end().parse().map_err(|_| invalid())?;
    let total = number * nanoseconds;
    if !(0.0..=3.6e12).contains(&total) {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// Returns the shortest spelling that [`parse_duration`] reads back to the same value.
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (size, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanoseconds >= size && nanoseconds.is_multiple_of(size) {
            return format!("{}{unit}", nanoseconds / size);
        }
    }
    format!("{nanoseconds}ns")
}

/// Where a process's report goes when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatsTo {
    /// No report is kept.
    #[default]
    Nowhere,
    /// One line for people, on standard error.
    Stderr,
    /// One JSON line, appended to this file.
    File(String),
    /// One JSON line, over a stream connection to this abstract Unix socket (`uncork run` listens there).
    Socket(String),
}

impl From<&str> for StatsTo {
    fn from(text: &str) -> Self {
        match text {
            "" | "0" | "off" => Self::Nowhere,
            "1" | "stderr" => Self::Stderr,
            _ => match text.strip_prefix("unix:@") {
                Some(name) => Self::Socket(name.to_owned()),
                None => Self::File(text.to_owned()),
            },
        }
    }
}

/// All settings of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `UNCORK_HOLD`.
    pub hold: Hold,
    /// `UNCORK_SCOPE`.
    pub scope: Scope,
    /// `UNCORK_BOUND`.
    pub bound: Bound,
    /// `UNCORK_SPIN`.
    pub spin: Spin,
    /// `UNCORK_MODERATION`.
    pub moderation: Moderation,
    /// `UNCORK_SMALL_QUEUE`.
    pub small_queue: SmallQueue,
    /// `UNCORK_STATS`.
    pub stats: StatsTo,
    /// `UNCORK_DEBUG`: 1 says what is helped and what is passed through, 2 each push.
    pub debug: u8,
    /// Behave as the library of 2007 (the file is called `libautocork.so`).
    pub autocork: bool,
    /// `AUTOCORK_MAX_QLEN`: push after so many held writes (0: no such limit).
    pub max_qlen: u16,
    /// `AUTOCORK_DUMP_INTERVAL`: write per-fd statistics this often.
    pub dump_interval: Option<Duration>,
    /// Variables that were set but not understood, each as a sentence.
    pub ignored: Vec<String>,
}

/// The environment variables of the library; `uncork run` sets the same.
pub mod variable {
    /// [`super::Hold`].
    pub const HOLD: &str = "UNCORK_HOLD";
    /// [`super::Scope`].
    pub const SCOPE: &str = "UNCORK_SCOPE";
    /// [`super::Bound`].
    pub const BOUND: &str = "UNCORK_BOUND";
    /// [`super::Spin`].
    pub const SPIN: &str = "UNCORK_SPIN";
    /// [`super::Moderation`].
    pub const MODERATION: &str = "UNCORK_MODERATION";
    /// [`super::SmallQueue`].
    pub const SMALL_QUEUE: &str = "UNCORK_SMALL_QUEUE";
    /// [`super::StatsTo`].
    pub const STATS: &str = "UNCORK_STATS";
    /// Debug level.
    pub const DEBUG: &str = "UNCORK_DEBUG";
    /// Debug level under the name `libautocork.so`.
    pub const AUTOCORK_DEBUG: &str = "AUTOCORK_DEBUG";
    /// See [`super::Settings::max_qlen`].
    pub const AUTOCORK_MAX_QLEN: &str = "AUTOCORK_MAX_QLEN";
    /// See [`super::Settings::dump_interval`], in seconds.
    pub const AUTOCORK_DUMP_INTERVAL: &str = "AUTOCORK_DUMP_INTERVAL";
}

impl Settings {
    /// Reads the settings through `lookup`. `autocork` says that the library was loaded under its second name, whose users
    /// expect scope nodelay and the `AUTOCORK_*` variables. A value that cannot be understood leaves the default and is
    /// reported in `ignored`: a preloaded library may neither print nor stop the program.
    pub fn from_lookup(autocork: bool, lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = Self { autocork, ..Self::default() };
        if autocork {
            settings.scope = Scope::Nodelay;
        }
        let mut ignored = Vec::new();
        read(variable::HOLD, &lookup, &mut settings.hold, &mut ignored);
        read(variable::SCOPE, &lookup, &mut settings.scope, &mut ignored);
        read(variable::BOUND, &lookup, &mut settings.bound, &mut ignored);
        read(variable::SPIN, &lookup, &mut settings.spin, &mut ignored);
        read(variable::MODERATION, &lookup, &mut settings.moderation, &mut ignored);
        read(variable::SMALL_QUEUE, &lookup, &mut settings.small_queue, &mut ignored);
        let mut level = Level(0);
        read(variable::DEBUG, &lookup, &mut level, &mut ignored);
        settings.debug = level.0;
        if let Some(text) = lookup(variable::STATS) {
            settings.stats = StatsTo::from(text.as_str());
        }
        if autocork {
            read(variable::AUTOCORK_DEBUG, &lookup, &mut settings.debug, &mut ignored);
            read(variable::AUTOCORK_MAX_QLEN, &lookup, &mut settings.max_qlen, &mut ignored);
            let mut seconds = 0u32;
            read(variable::AUTOCORK_DUMP_INTERVAL, &lookup, &mut seconds, &mut ignored);
            settings.dump_interval = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        }
        settings.ignored = ignored;
        settings
    }

    /// Returns how long received frames may wait in a stack's ring: not at all if waits spin.
    pub fn moderation(&self) -> Duration {
        if self.spin.is_off() { self.moderation.longest() } else { Duration::ZERO }
    }
}

/// A level of `UNCORK_DEBUG`.
struct Level(u8);

impl FromStr for Level {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let level = text.parse().ok().filter(|level| *level <= 2);
        level
            .map(Self)
            .ok_or_else(|| Invalid(format!("{text:?} is no level of messages: 0, 1 or 2")))
    }
}

fn read<T: FromStr<Err: fmt::Display>>(
    name: &str,
    lookup: impl Fn(&str) -> Option<String>,
    into: &mut T,
    ignored: &mut Vec<String>,
) {
    let Some(text) = lookup(name) else { return };
    match text.parse() {
        Ok(value) => *into = value,
        Err(error) => ignored.push(format!("{name} is ignored: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(autocork: bool, pairs: &[(&str, &str)]) -> Settings {
        Settings::from_lookup(autocork, |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_level_that_there_is_not_is_ignored() {
        assert_eq!(settings(false, &[("UNCORK_DEBUG", "2")]).debug, 2);
        for wrong in ["9", "-1", "all"] {
            let read = settings(false, &[("UNCORK_DEBUG", wrong)]);
            assert_eq!((read.debug, read.ignored.len()), (0, 1), "{wrong}");
            assert!(read.ignored[0].starts_with("UNCORK_DEBUG is ignored: "), "{:?}", read.ignored);
        }
    }

    #[test]
    fn durations_read_back_as_written() {
        for text in ["1ms", "250us", "2s", "1500us", "0ns"] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
        }
        assert_eq!(parse_duration("1.5ms").unwrap(), Duration::from_micros(1500));
        for text in ["", "1", "ms", "-1ms", "1 fortnight", "1e99s", "nans"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bound_out_of_range_is_refused_with_the_range() {
        let error = "2s".parse::<Bound>().unwrap_err();
        assert!(error.to_string().contains("100us to 200ms"));
        assert!("10us".parse::<Bound>().is_err());
    }

    #[test]
    fn a_moderation_is_off_or_a_time_in_its_range_and_nothing_for_who_spins() {
        for text in ["off", "10us", "128us", "1ms"] {
            assert_eq!(text.parse::<Moderation>().unwrap().to_string(), text);
        }
        for (text, why) in [("5us", "10us to 1ms"), ("2ms", "10us to 1ms"), ("on", "such as 128us")]
        {
            let error = text.parse::<Moderation>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let of = |pairs: &[(&str, &str)]| settings(false, pairs).moderation();
        assert_eq!(of(&[]), Duration::ZERO);
        assert_eq!(of(&[("UNCORK_MODERATION", "50us")]), Duration::from_micros(50));
        assert_eq!(of(&[("UNCORK_MODERATION", "off")]), Duration::ZERO);
        let still = [("UNCORK_MODERATION", "50us"), ("UNCORK_SPIN", "0us")];
        assert_eq!(of(&still), Duration::from_micros(50));
        let both = [("UNCORK_MODERATION", "50us"), ("UNCORK_SPIN", "auto")];
        assert_eq!(of(&both), Duration::ZERO);
    }

    #[test]
    fn a_small_queue_is_a_number_of_bytes_and_otherwise_the_stacks_own() {
        let of = |text: &str| text.parse::<SmallQueue>();
        for bytes in [1, 3028, 131_072, 4 << 20] {
            let read = of(&bytes.to_string()).unwrap();
            assert_eq!((read.bytes(), read.to_string()), (Some(bytes), bytes.to_string()));
        }
        for (text, why) in [
            ("0", "1 to 4194304 bytes"),
            ("4194305", "1 to 4194304 bytes"),
            ("128k", "such as 131072"),
            ("-1", "such as 131072"),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(settings(false, &[]).small_queue.bytes(), None);
        let set = settings(false, &[("UNCORK_SMALL_QUEUE", "6000")]);
        assert_eq!(set.small_queue.bytes(), Some(6000));
    }

    #[test]
    fn a_value_not_understood_keeps_the_default_and_is_told() {
        let s = settings(false, &[("UNCORK_HOLD", "maybe"), ("UNCORK_BOUND", "5ms")]);
        assert_eq!(s.hold, Hold::Kernel);
        assert_eq!(s.bound.0, Duration::from_millis(5));
        assert_eq!(s.ignored.len(), 1);
        assert!(s.ignored[0].starts_with("UNCORK_HOLD is ignored"));
    }

    #[test]
    fn the_second_name_means_scope_nodelay_and_its_own_variables() {
        let pairs = [("AUTOCORK_DEBUG", "2"), ("AUTOCORK_MAX_QLEN", "4")];
        assert_eq!(settings(true, &pairs).scope, Scope::Nodelay);
        assert_eq!(settings(true, &pairs).debug, 2);
        assert_eq!(settings(true, &pairs).max_qlen, 4);
        assert_eq!(settings(false, &pairs).debug, 0);
    }
}
