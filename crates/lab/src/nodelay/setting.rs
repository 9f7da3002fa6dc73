//! What is compared: what the client asks for, and what helps it.

use serde::Serialize;

use super::pattern::{Asks, Cut, Pattern};
use super::programs::{Options, run_args};

/// What decides when the bytes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The program and the kernel, as they are.
    Alone,
    /// uncork, holding in the kernel.
    Kernel,
    /// uncork, holding in the process.
    User,
}

impl Who {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Alone, Self::Kernel, Self::User];

    /// Returns the heading of its table.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Alone => "The program alone",
            Self::Kernel => "uncork run --hold kernel",
            Self::User => "uncork run --hold user",
        }
    }

    /// Returns the options of `uncork run` for the client; `None` if it is started as it is. Spinning
    /// without holding anything needs uncork, too.
    #[must_use]
    pub fn help(self, spin: bool) -> Option<Options> {
        match (self, spin) {
            (Self::Alone, false) => None,
            (Self::Alone, true) => Some(&[("hold", "off"), ("spin", "auto")]),
            (Self::Kernel, false) => Some(&[("hold", "kernel")]),
            (Self::Kernel, true) => Some(&[("hold", "kernel"), ("spin", "auto")]),
            (Self::User, false) => Some(&[("hold", "user")]),
            (Self::User, true) => Some(&[("hold", "user"), ("spin", "auto")]),
        }
    }
}

/// A row of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// What helps.
    pub who: Who,
    /// What the client does.
    #[serde(flatten)]
    pub pattern: Pattern,
}

/// The published figures of a row, for 15 buffers and 10,000 packets over loopback, with the programs
/// of 2007 and 2008 (repository acmel/libautocork: tcp_nodelay.txt and libautocork.txt).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Bytes per millisecond, of each published run.
    pub bytes_per_ms: &'static [f64],
    /// Reads of the server per logical packet, where they were published.
    pub reads_per_packet: Option<f64>,
}

impl Setting {
    /// Returns all rows for logical packets of `buffers` buffers.
    #[must_use]
    pub fn all(buffers: u32) -> Vec<Self> {
        use Asks::{Cork, Nodelay, Nothing};
        use Cut::{Buffers, HeaderPayload, HeaderSendfile, Single, Writev};
        let alone = [
            (Nothing, Buffers),
            (Nodelay, Buffers),
            (Cork, Buffers),
            (Nothing, HeaderPayload),
            (Nodelay, HeaderPayload),
            (Nothing, HeaderSendfile),
            (Cork, HeaderSendfile),
            (Nodelay, Writev),
            (Nothing, Single),
        ];
        let helped = [
            (Nothing, Buffers),
            (Nodelay, Buffers),
            (Nodelay, HeaderPayload),
            (Nothing, HeaderSendfile),
        ];
        let rows = |who: Who| if who == Who::Alone { &alone[..] } else { &helped[..] };
        let setting = |who, (asks, cut)| Self { who, pattern: Pattern { asks, cut, buffers } };
        let of = |&who: &Who| rows(who).iter().map(move |row| setting(who, *row));
        Who::ALL.iter().flat_map(of).collect()
    }

    /// Returns its name within its group.
    #[must_use]
    pub fn name(&self) -> String {
        let cut = match self.pattern.cut {
            Cut::Single => return "single request (the limit)".to_owned(),
            Cut::Buffers => "",
            Cut::HeaderPayload => "header + payload, ",
            Cut::HeaderSendfile => "header, then sendfile, ",
            Cut::Writev => "writev, ",
        };
        let asks = match self.pattern.asks {
            Asks::Nothing => "no option",
            Asks::Nodelay => "TCP_NODELAY",
            Asks::Cork => "TCP_CORK",
            Asks::More => "MSG_MORE",
        };
        format!("{cut}{asks}")
    }

    /// Returns whether nothing keeps Nagle's algorithm from stalling it.
    #[must_use]
    pub fn stalls(&self) -> bool {
        self.who == Who::Alone && self.pattern.stalls()
    }

    /// Returns the command that repeats it.
    #[must_use]
    pub fn command(&self, packets: u64) -> String {
        let mut words = Vec::new();
        if let Some(options) = self.who.help(false) {
            words.push("uncork".to_owned());
            words.extend(run_args(options));
        }
        words.push("tcp_nodelay_client".to_owned());
        words.extend(self.pattern.flags());
        words.push("--verbose".to_owned());
        words.push(format!("-N {packets}"));
        words.push("localhost".to_owned());
        words.join(" ")
    }

    /// Returns its published figures. What `uncork run` does to TCP_NODELAY was then done by a library.
    #[must_use]
    pub fn published(&self) -> Option<Published> {
        let Pattern { asks, cut: Cut::Buffers, buffers: 15 } = self.pattern else { return None };
        let published =
            |bytes_per_ms, reads_per_packet| Published { bytes_per_ms, reads_per_packet };
        match (self.who, asks) {
            (Who::Alone, Asks::Nothing) => Some(published(&[0.749_757], None)),
            (Who::Alone, Asks::Nodelay) => {
                Some(published(&[168.861_069, 181.843_399], Some(11.9281)))
            }
            (Who::Alone, Asks::Cork) => Some(published(&[352.610_779], None)),
            (Who::Kernel, Asks::Nodelay) => Some(published(&[622.482_666], Some(1.0))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_command_to_repeat_it() {
        let rows = Setting::all(15);
        for row in &rows {
            let same = |other: &&Setting| other.who == row.who && other.name() == row.name();
            assert_eq!(rows.iter().filter(same).count(), 1, "{row:?}");
        }
        assert_eq!(rows.iter().filter(|row| row.stalls()).count(), 3);
        let user = Setting {
            who: Who::User,
            pattern: Pattern { asks: Asks::Nodelay, cut: Cut::Buffers, buffers: 15 },
        };
        assert!(rows.contains(&user));
        assert_eq!(
            user.command(10_000),
            "uncork run --hold user -- tcp_nodelay_client --no_delay --buffers=15 --verbose \
             -N 10000 localhost"
        );
    }

    #[test]
    fn what_was_published_stands_beside_the_rows_it_is_about() {
        let published =
            |buffers| Setting::all(buffers).iter().filter_map(Setting::published).count();
        assert_eq!((published(15), published(100)), (4, 0));
    }
}
