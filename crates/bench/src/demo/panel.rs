//! The settings that the demonstration shows, with their measurements.

use anyhow::Result;
use uncork_lab::contest::Rounds;
use uncork_lab::nodelay::{self, Asks, Cut, Measured, Plan, Setting, Who};

use crate::progress::Progress;
use crate::toolbox::Toolbox;

/// How many packets are sent in settings that stall, 44 ms each.
pub(crate) const STALLED_PACKETS: u64 = 25;
/// The column on two cores needs less precision.
pub(crate) const TWO_CORES_SHARE: u64 = 5;

/// All settings for one size of logical packet.
pub(crate) struct Panel {
    /// Buffers of two bytes in a logical packet.
    pub(crate) buffers: u32,
    /// In the order of [`shown`].
    pub(crate) rows: Vec<Measured>,
}

/// Returns the settings of the experiment that fit a picture.
pub(crate) fn shown(buffers: u32) -> Vec<Setting> {
    let is_shown = |setting: &Setting| match setting.pattern.cut {
        Cut::Buffers | Cut::Single => true,
        Cut::HeaderPayload => setting.pattern.asks == Asks::Nodelay,
        Cut::HeaderSendfile | Cut::Writev => false,
    };
    Setting::all(buffers).into_iter().filter(is_shown).collect()
}

/// Measures every setting for logical packets of `buffers` buffers.
pub(crate) fn measure(
    (tools, progress): (&Toolbox, &Progress),
    buffers: u32,
    packets: u64,
) -> Result<Panel> {
    let plan = Plan {
        packets,
        packets_on_two_cores: packets / TWO_CORES_SHARE,
        stalled_packets: STALLED_PACKETS,
        rounds: Rounds::warm(5),
        rounds_on_two_cores: Rounds::warm(1),
        stalls_on_two_cores: true,
        spin: false,
    };
    let rows = nodelay::measure(tools, &shown(buffers), &plan, progress)?;
    Ok(Panel { buffers, rows })
}

impl Panel {
    /// Returns the row of a setting.
    pub(crate) fn row(&self, who: Who, asks: Asks, cut: Cut) -> Option<&Measured> {
        self.rows.iter().find(|row| {
            let setting = &row.setting;
            setting.who == who && setting.pattern.asks == asks && setting.pattern.cut == cut
        })
    }

    /// Returns how many times faster `row` is than the program alone with this option.
    pub(crate) fn speed_against(&self, row: &Measured, asks: Asks) -> Option<f64> {
        let other = self.row(Who::Alone, asks, Cut::Buffers)?;
        Some(other.one_core.us_per_packet / row.one_core.us_per_packet)
    }
}

/// Returns the name of the style class.
pub(crate) fn class(setting: &Setting) -> &'static str {
    match setting.who {
        _ if setting.stalls() => "stalled",
        Who::Alone => "alone",
        Who::Kernel => "kernel",
        Who::User => "user",
    }
}

/// Returns the logical packets in a run of this setting, out of so many.
pub(crate) fn packets_of(setting: &Setting, packets: u64) -> u64 {
    if setting.stalls() { STALLED_PACKETS } else { packets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_stalls_once_and_has_what_the_headlines_are_about() {
        let rows = shown(15);
        assert_eq!(rows.len(), 11);
        assert_eq!(rows.iter().filter(|row| row.stalls()).count(), 1);
        for who in Who::ALL {
            assert!(rows.iter().any(|row| row.who == who && row.pattern.asks == Asks::Nodelay));
        }
    }
}
