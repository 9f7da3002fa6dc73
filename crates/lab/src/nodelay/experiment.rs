//! The experiment in every setting.

use std::cell::RefCell;

use anyhow::Result;
use serde::Serialize;

use super::programs::{Figures, Options, Program, Server, Stage, client_args, server_args};
use super::setting::{Published, Setting};
use crate::contest::{Case, Rounds, Samples, Watch, interleave};
use crate::cores::Cores;
use crate::stats::median;

/// The extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Logical packets of a run with both ends on one core.
    pub packets: u64,
    /// Logical packets of a run with a core for each end.
    pub packets_on_two_cores: u64,
    /// Logical packets of a run that stalls: 40 ms each.
    pub stalled_packets: u64,
    /// How often each is measured on one core.
    #[serde(skip)]
    pub rounds: Rounds,
    /// How often each is measured with a core for each end.
    #[serde(skip)]
    pub rounds_on_two_cores: Rounds,
    /// Whether stalling runs are measured with a core for each end, too.
    #[serde(skip)]
    pub stalls_on_two_cores: bool,
    /// Whether all is measured again with both ends spinning, a core for each.
    #[serde(skip)]
    pub spin: bool,
}

impl Plan {
    /// Plans all of it, in a few minutes, or, if `quick`, less precisely in less than 20 seconds.
    #[must_use]
    pub fn new(quick: bool) -> Self {
        let once = Rounds { counted: 1, warm_up: false };
        let (packets, stalled_packets) = if quick { (300, 8) } else { (10_000, 25) };
        Self {
            packets,
            packets_on_two_cores: if quick { 300 } else { 2000 },
            stalled_packets,
            rounds: if quick { once } else { Rounds::warm(3) },
            rounds_on_two_cores: if quick { once } else { Rounds::warm(3) },
            stalls_on_two_cores: !quick,
            spin: true,
        }
    }
}

/// The medians measured in one setting.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// Both ends on one core.
    pub one_core: Figures,
    /// A core for each end, where there are two.
    pub two_cores: Option<Figures>,
    /// A core for each end, both polling before they sleep (`--spin auto`).
    pub two_cores_spinning: Option<Figures>,
    /// The published figures for it.
    pub published: Option<Published>,
}

/// Measures these settings, all for the same number of buffers.
///
/// # Errors
/// If a program is missing or fails, or soon after the stage was told to stop.
pub fn measure(
    stage: &impl Stage,
    settings: &[Setting],
    plan: &Plan,
    watch: &impl Watch,
) -> Result<Vec<Measured>> {
    let packets = |setting: &Setting, packets| {
        if setting.stalls() { plan.stalled_packets } else { packets }
    };
    let one_core = |setting: &Setting| Some(packets(setting, plan.packets));
    let two_cores = |setting: &Setting| {
        let measured = plan.stalls_on_two_cores || !setting.stalls();
        measured.then(|| packets(setting, plan.packets_on_two_cores))
    };
    let one = Run { stage, cores: Cores::one()?, spin: false, rounds: plan.rounds };
    let one = one.figures(settings, one_core, watch)?;
    let beside = |spin: bool| -> Result<Vec<Option<Figures>>> {
        let Some(cores) = Cores::two()?.filter(|_| !spin || plan.spin) else {
            return Ok(vec![None; settings.len()]);
        };
        let run = Run { stage, cores, spin, rounds: plan.rounds_on_two_cores };
        run.figures(settings, two_cores, watch)
    };
    let (two, spinning) = (beside(false)?, beside(true)?);
    let rows = settings.iter().zip(one).zip(two.into_iter().zip(spinning));
    Ok(rows
        .filter_map(|((setting, one), (two_cores, two_cores_spinning))| {
            let published = setting.published();
            Some(Measured {
                setting: *setting,
                one_core: one?,
                two_cores,
                two_cores_spinning,
                published,
            })
        })
        .collect())
}

/// Rounds of all settings on the same cores.
struct Run<'a, S> {
    stage: &'a S,
    cores: Cores,
    spin: bool,
    rounds: Rounds,
}

impl<S: Stage> Run<'_, S> {
    /// Returns the medians of each setting for which there are `packets` to send.
    fn figures(
        &self,
        settings: &[Setting],
        packets: impl Fn(&Setting) -> Option<u64>,
        watch: &impl Watch,
    ) -> Result<Vec<Option<Figures>>> {
        /// Spinning only, without holding.
        const SPIN: Options = &[("hold", "off"), ("spin", "auto")];
        let Some(first) = settings.first() else { return Ok(Vec::new()) };
        let args = server_args(first.pattern.buffers);
        let help = self.spin.then_some(SPIN);
        let command = self.stage.command(Program::Server, help, self.cores.server, &args)?;
        let server = RefCell::new(Server::start(command)?);
        let wanted: Vec<Option<u64>> = settings.iter().map(packets).collect();
        let mut cases: Vec<Case<'_>> = settings
            .iter()
            .zip(&wanted)
            .filter_map(|(setting, packets)| {
                let (server, packets) = (&server, (*packets)?);
                let name = format!("{}: {}", setting.who.heading(), setting.name());
                Some(Case::new(name, move || {
                    self.once(&mut server.borrow_mut(), setting, packets).map(Vec::from)
                }))
            })
            .collect();
        let samples = interleave(&mut cases, self.rounds, watch)?;
        let mut index = 0..;
        Ok(wanted
            .into_iter()
            .map(|packets| packets.and_then(|_| index.next()).map(|at| medians(&samples, at)))
            .collect())
    }

    fn once(&self, server: &mut Server, setting: &Setting, packets: u64) -> Result<[f64; 5]> {
        let (pattern, help) = (&setting.pattern, setting.who.help(self.spin));
        let args = client_args(pattern, packets, server.port());
        let command = self.stage.command(Program::Client, help, self.cores.client, &args)?;
        let limit = pattern.limit(packets, !setting.stalls());
        let figures = server.run(command, packets, limit, self.stage.stop())?;
        Ok([
            figures.us_per_packet,
            figures.bytes_per_ms,
            figures.writes_per_packet,
            figures.segments_per_packet,
            figures.reads_per_packet,
        ])
    }
}

/// Returns the medians, in the order of [`Run::once`].
fn medians(samples: &Samples, case: usize) -> Figures {
    let figure = |index| median(samples.get(case, index));
    Figures {
        us_per_packet: figure(0),
        bytes_per_ms: figure(1),
        writes_per_packet: figure(2),
        segments_per_packet: figure(3),
        reads_per_packet: figure(4),
    }
}
