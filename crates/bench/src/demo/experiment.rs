//! Running the experiment in every setting.

use std::cell::RefCell;

use anyhow::Result;

use super::count::segments_per_packet;
use super::setting::{Setting, Who};
use crate::contest::{Case, Samples, interleave};
use crate::nodelay::{Asks, Cut, Server};
use crate::place::Place;
use crate::progress::Progress;
use crate::stats::median;
use crate::toolbox::Toolbox;

/// Rounds on one core and, for the column beside it, on two.
const ROUNDS: (usize, usize) = (5, 1);
/// 44 ms each.
const STALLED_PACKETS: u64 = 25;
/// The column on two cores needs less precision.
const TWO_CORES_SHARE: u64 = 5;

/// What the experiment stands on.
pub(crate) struct Bed<'a> {
    /// Our programs.
    pub(crate) tools: &'a Toolbox,
    /// What to show.
    pub(crate) progress: &'a Progress,
    /// Logical packets of a run.
    pub(crate) packets: u64,
}

/// What was measured in one setting.
pub(crate) struct Measured {
    /// The setting.
    pub(crate) setting: Setting,
    /// Microseconds a logical packet, both ends on one core.
    pub(crate) us_one_core: f64,
    /// The same with a core each, where there are two.
    pub(crate) us_two_cores: Option<f64>,
    /// Writes that the program made for a logical packet.
    pub(crate) writes: f64,
    /// Segments on the wire for a logical packet.
    pub(crate) segments: f64,
    /// Reads that a logical packet took on the server.
    pub(crate) buffers: f64,
}

/// All settings for one size of logical packet.
pub(crate) struct Panel {
    /// Buffers of two bytes in a logical packet.
    pub(crate) buffers: u32,
    /// In the order of [`Setting::all`].
    pub(crate) rows: Vec<Measured>,
}

impl Panel {
    /// The row of a setting.
    pub(crate) fn row(&self, who: Who, asks: Asks, cut: Cut) -> Option<&Measured> {
        self.rows.iter().find(|row| {
            let setting = &row.setting;
            setting.who == who && setting.pattern.asks == asks && setting.pattern.cut == cut
        })
    }

    /// How many times faster `row` is than the program alone with this option.
    pub(crate) fn speed_against(&self, row: &Measured, asks: Asks) -> Option<f64> {
        let other = self.row(Who::Alone, asks, Cut::Buffers)?;
        Some(other.us_one_core / row.us_one_core)
    }
}

/// Measures every setting for logical packets of `buffers` buffers.
pub(crate) fn measure(bed: &Bed<'_>, buffers: u32) -> Result<Panel> {
    let settings = Setting::all(buffers);
    let one = rounds(bed, (&settings, buffers), (Place::OneCore, ROUNDS.0))?;
    let two = match Place::TwoCores.cores() {
        Ok(_) => Some(rounds(bed, (&settings, buffers), (Place::TwoCores, ROUNDS.1))?),
        Err(_) => None,
    };
    bed.progress.begin(settings.len());
    let cores = Place::OneCore.cores()?;
    let mut rows = Vec::with_capacity(settings.len());
    for (index, setting) in settings.into_iter().enumerate() {
        bed.progress.on("counting segments");
        let segments = segments_per_packet(bed.tools, &setting, cores)?;
        bed.progress.done();
        rows.push(Measured {
            us_one_core: median(one.get(index, 0)),
            us_two_cores: two.as_ref().map(|two| median(two.get(index, 0))),
            writes: median(one.get(index, 1)),
            buffers: median(one.get(index, 2)),
            segments,
            setting,
        });
    }
    Ok(Panel { buffers, rows })
}

fn rounds(
    bed: &Bed<'_>,
    (settings, buffers): (&[Setting], u32),
    (place, rounds): (Place, usize),
) -> Result<Samples> {
    let server = RefCell::new(Server::start(bed.tools, buffers, place.cores()?)?);
    let mut cases: Vec<Case<'_>> = settings
        .iter()
        .map(|setting| {
            let server = &server;
            let packets = match (setting.stalls(), place) {
                (true, _) => STALLED_PACKETS,
                (false, Place::OneCore) => bed.packets,
                (false, Place::TwoCores) => bed.packets / TWO_CORES_SHARE,
            };
            let name = format!("{}: {}", setting.who.heading(), setting.name());
            Case::new(name, move || {
                let mut server = server.borrow_mut();
                let way = setting.way();
                let run = server.run(bed.tools, (&setting.pattern, &way), packets)?;
                Ok(vec![run.us_per_packet, run.writes_per_packet, run.buffers_per_packet])
            })
        })
        .collect();
    interleave(&mut cases, rounds, bed.progress)
}
