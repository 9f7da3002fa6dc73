//! The settings that are compared: what the client asks for, and who helps.

use crate::launch::{Way, run_args};
use crate::nodelay::{Asks, Cut, Pattern};

/// Who decides when the bytes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The program and the kernel, as they are.
    Alone,
    /// uncork, holding in the kernel.
    Kernel,
    /// uncork, holding in the process.
    User,
}

impl Who {
    /// All, in the order of the table.
    pub(crate) const ALL: [Self; 3] = [Self::Alone, Self::Kernel, Self::User];

    /// Heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Alone => "The program alone",
            Self::Kernel => "uncork run",
            Self::User => "uncork run --hold user",
        }
    }

    /// Name of the style class.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }

    fn way(self) -> Way {
        match self {
            Self::Alone => Way::Plain,
            Self::Kernel => Way::Run(&[]),
            Self::User => Way::Run(&[("hold", "user")]),
        }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Who helps.
    pub(crate) who: Who,
    /// What the client does.
    pub(crate) pattern: Pattern,
}

impl Setting {
    /// All rows for logical packets of `buffers` buffers.
    pub(crate) fn all(buffers: u32) -> Vec<Self> {
        let rows: [(Who, Asks, Cut); 11] = [
            (Who::Alone, Asks::Nothing, Cut::Buffers),
            (Who::Alone, Asks::Nodelay, Cut::Buffers),
            (Who::Alone, Asks::Cork, Cut::Buffers),
            (Who::Alone, Asks::Nodelay, Cut::HeaderPayload),
            (Who::Alone, Asks::Nothing, Cut::Single),
            (Who::Kernel, Asks::Nothing, Cut::Buffers),
            (Who::Kernel, Asks::Nodelay, Cut::Buffers),
            (Who::Kernel, Asks::Nodelay, Cut::HeaderPayload),
            (Who::User, Asks::Nothing, Cut::Buffers),
            (Who::User, Asks::Nodelay, Cut::Buffers),
            (Who::User, Asks::Nodelay, Cut::HeaderPayload),
        ];
        let setting = |(who, asks, cut)| Self { who, pattern: Pattern { asks, cut, buffers } };
        rows.into_iter().map(setting).collect()
    }

    /// How it is started.
    pub(crate) fn way(&self) -> Way {
        self.who.way()
    }

    /// Name within its group.
    pub(crate) fn name(&self) -> &'static str {
        match (self.pattern.cut, self.pattern.asks) {
            (Cut::Single, _) => "single request (the limit)",
            (Cut::HeaderPayload, Asks::Nodelay) => "header + payload, TCP_NODELAY",
            (Cut::HeaderPayload, Asks::Cork) => "header + payload, TCP_CORK",
            (Cut::HeaderPayload, Asks::More) => "header + payload, MSG_MORE",
            (Cut::HeaderPayload, Asks::Nothing) => "header + payload, no option",
            (Cut::Buffers, Asks::Nothing) => "no option",
            (Cut::Buffers, Asks::Nodelay) => "TCP_NODELAY",
            (Cut::Buffers, Asks::Cork) => "TCP_CORK",
            (Cut::Buffers, Asks::More) => "MSG_MORE",
        }
    }

    /// Whether nobody keeps Nagle's algorithm from stalling it.
    pub(crate) fn stalls(&self) -> bool {
        self.who == Who::Alone && self.pattern.stalls()
    }

    /// The command that repeats it.
    pub(crate) fn command(&self, packets: u64) -> String {
        let mut words = Vec::new();
        if let Way::Run(options) = self.way() {
            words.push("uncork".to_owned());
            words.extend(run_args(options));
        }
        words.push("tcp_nodelay_client".to_owned());
        words.extend(self.pattern.flags());
        words.push("--verbose".to_owned());
        words.push(format!("-N {}", if self.stalls() { 25 } else { packets }));
        words.push("localhost".to_owned());
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_command_to_repeat_it() {
        let rows = Setting::all(15);
        for (index, row) in rows.iter().enumerate() {
            let same = |other: &&Setting| other.who == row.who && other.name() == row.name();
            assert_eq!(rows.iter().filter(same).count(), 1, "row {index}");
        }
        assert_eq!(rows.iter().filter(|row| row.stalls()).count(), 1);
        assert_eq!(
            rows[9].command(10_000),
            "uncork run --hold user -- tcp_nodelay_client --no_delay --buffers=15 --verbose \
             -N 10000 localhost"
        );
    }
}
