//! The bar chart: time of a logical packet in every setting, on a logarithmic scale.

use uncork_lab::nodelay::{Measured, Who};

use super::panel::{Panel, class};
use super::svg::{Anchor, Svg};
use super::tables::time;

const WIDTH: f64 = 440.0;
/// Height of a row: text, then bar, then space.
const ROW: f64 = 35.0;
const BAR: f64 = 11.0;
const HEADING: f64 = 30.0;
const TOP: f64 = 26.0;

/// Powers of ten that span all values, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Returns a scale that spans the values of all panels, so that their bars can be compared.
    pub(crate) fn of(panels: &[Panel]) -> Self {
        let values =
            panels.iter().flat_map(|panel| &panel.rows).map(|row| row.one_core.us_per_packet);
        Self::span(values)
    }

    fn span(values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min).min(6.0);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(0.0);
        // A bar at the very edge could not be seen.
        let low = (low - 0.15).floor() as i32;
        Self { low, high: (high.ceil() as i32).max(low + 1) }
    }

    fn x(self, us: f64) -> f64 {
        let share = (us.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        share.clamp(0.0, 1.0) * WIDTH
    }
}

/// Returns the chart as a file of its own: with the page's style, and its colours for light and dark.
pub(crate) fn alone(panel: &Panel, scale: Scale) -> String {
    let style = include_str!("style.css");
    let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" ";
    let picture = render(panel, scale).replacen("<svg ", open, 1);
    picture.replacen(">\n", &format!("><style>{style}</style>\n"), 1)
}

/// Returns the chart for one size of logical packet.
pub(crate) fn render(panel: &Panel, scale: Scale) -> String {
    let mut svg = Svg::new(WIDTH);
    let height = TOP + Who::ALL.len() as f64 * HEADING + panel.rows.len() as f64 * ROW;
    grid(&mut svg, scale, height);
    let mut y = TOP;
    for who in Who::ALL {
        svg.text((0.0, y + 19.0), ("group", Anchor::Start), who.heading());
        y += HEADING;
        for row in panel.rows.iter().filter(|row| row.setting.who == who) {
            bar(&mut svg, row, scale, y);
            y += ROW;
        }
    }
    let title = format!("Time of a logical packet of {} buffers in each setting", panel.buffers);
    svg.finish(height, &title)
}

fn grid(svg: &mut Svg, scale: Scale, height: f64) {
    for power in scale.low..=scale.high {
        let us = 10f64.powi(power);
        let x = scale.x(us);
        svg.line((x, TOP - 6.0), (x, height), "grid");
        let anchor = match power {
            power if power == scale.low => Anchor::Start,
            power if power == scale.high => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.text((x, TOP - 12.0), ("tick", anchor), &tick(us));
    }
}

fn tick(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.0} s", us / 1e6),
        us if us >= 1e3 => format!("{:.0} ms", us / 1e3),
        us if us >= 1.0 => format!("{us:.0} µs"),
        us => format!("{:.0} ns", us * 1e3),
    }
}

fn bar(svg: &mut Svg, row: &Measured, scale: Scale, y: f64) {
    let (class, us) = (class(&row.setting), row.one_core.us_per_packet);
    svg.text((0.0, y + 12.0), ("name", Anchor::Start), &row.setting.name());
    svg.text((WIDTH, y + 12.0), ("value", Anchor::End), &time(us));
    let width = scale.x(us).max(2.0);
    let y = y + 17.0;
    svg.add(format_args!(
        r#"<rect x="0" y="{y:.1}" width="{WIDTH:.1}" height="{BAR}" rx="2" class="track"/>"#
    ));
    svg.add(format_args!(
        r#"<rect x="0" y="{y:.1}" width="{width:.1}" height="{BAR}" rx="2" class="bar {class}"/>"#
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_spans_all_values_in_whole_powers() {
        let scale = Scale::span([5.2, 44_612.0].into_iter());
        assert_eq!(scale, Scale { low: 0, high: 5 });
        assert_eq!(scale.x(1.0), 0.0);
        assert_eq!(scale.x(1e5), WIDTH);
        assert!((scale.x(10.0) - WIDTH / 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_value_just_above_a_power_still_shows() {
        let scale = Scale::span([1.05, 50.0].into_iter());
        assert!(scale.x(1.05) > 10.0);
    }

    #[test]
    fn ticks_change_unit() {
        let ticks = [0.1, 1.0, 1e3, 1e5, 1e6].map(tick);
        assert_eq!(ticks, ["100 ns", "1 µs", "1 ms", "100 ms", "1 s"]);
    }
}
