//! The measurements of `uncork lab nodelay`, as a page with plots.

use uncork_lab::nodelay::{Figures, Measured, Plan, Who};

use super::super::plot::{Bar, Bars, Scale};
use super::tables::{one_core, two_cores};
use super::{amounts, heading, panels, time};
use crate::page::broad::broad;
use crate::page::document;
use crate::page::svg::{escape, put};

/// Size in bytes of the logical packets in the published runs.
const PUBLISHED_BYTES: f64 = 30.0;

/// As in the cells of the terminal's table.
const ON_ONE_CORE: [&str; 6] =
    ["µs", "B/ms", "B/ms published", "segments", "reads", "reads published"];
const ON_TWO_CORES: [&str; 8] = [
    "µs",
    "B/ms",
    "segments",
    "reads",
    "--spin auto: µs",
    "--spin auto: B/ms",
    "--spin auto: segments",
    "--spin auto: reads",
];

/// The cores of the two ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    OneCore,
    CoreEach,
    Spinning,
}

impl Place {
    const ALL: [Self; 3] = [Self::OneCore, Self::CoreEach, Self::Spinning];

    fn words(self) -> &'static str {
        match self {
            Self::OneCore => "both ends on one core",
            Self::CoreEach => "a core each",
            Self::Spinning => "a core each, --spin auto",
        }
    }

    fn of(self, row: &Measured) -> Option<&Figures> {
        match self {
            Self::OneCore => Some(&row.one_core),
            Self::CoreEach => row.two_cores.as_ref(),
            Self::Spinning => row.two_cores_spinning.as_ref(),
        }
    }
}

pub(in crate::lab) fn render(rows: &[Measured], plan: &Plan, kernel: &str) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab nodelay</p>\n<h1>What small writes \
         cost</h1>\n</header>"
    );
    put!(
        body,
        "<p class=\"prose\">A client sends logical packets made of several buffers of two bytes and \
         waits for the answer to each, over loopback. Shorter bars are better; the scale is \
         logarithmic, and the same for all. A thin mark is what was published in 2007 and 2008.</p>"
    );
    let times = rows.iter().flat_map(|row| {
        let all = Place::ALL.iter().filter_map(|place| place.of(row));
        all.map(|figures| figures.us_per_packet).chain(published_us(row))
    });
    let scale = Scale::span(times);
    for place in Place::ALL {
        if rows.iter().all(|row| place.of(row).is_none()) {
            continue;
        }
        put!(body, "<section>\n<h2>{}</h2>\n<div class=\"pair\">", capital(place.words()));
        for rows in panels(rows) {
            let heading = heading(rows);
            put!(body, "<figure class=\"card\">\n<h3>{heading}</h3>\n{}", bars(rows, place, scale));
            put!(
                body,
                "<figcaption>time of a logical packet and its answer</figcaption>\n</figure>"
            );
        }
        put!(body, "</div>\n</section>");
    }
    put!(body, "<section>\n<h2>All figures</h2>");
    for rows in panels(rows) {
        let named = |figures: &dyn Fn(&Measured) -> Vec<String>| -> Vec<Vec<String>> {
            let name =
                |row: &Measured| format!("{}: {}", row.setting.who.heading(), row.setting.name());
            rows.iter()
                .map(|row| std::iter::once(name(row)).chain(figures(row)).collect())
                .collect()
        };
        let one = named(&|row| one_core(row).into());
        broad(&mut body, &format!("{}, on one core", heading(rows)), &ON_ONE_CORE, &one);
        let two = named(&|row| two_cores(row).collect());
        broad(&mut body, &format!("{}, a core each", heading(rows)), &ON_TWO_CORES, &two);
    }
    put!(body, "</section>");
    put!(
        body,
        "<footer><p>Made by <code>uncork lab nodelay</code>, version {}, on Linux {}. Medians; {}. \
         Published: 10,000 packets of 15 buffers over loopback; under uncork run with TCP_NODELAY \
         those of libautocork.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        escape(kernel),
        amounts(plan)
    );
    document("uncork lab nodelay", &body)
}

fn capital(words: &str) -> String {
    let (first, rest) = words.split_at(1);
    first.to_uppercase() + rest
}

/// Returns the microseconds per logical packet in the fastest of the published runs.
fn published_us(row: &Measured) -> Option<f64> {
    let rates = row.published?.bytes_per_ms;
    rates.iter().copied().reduce(f64::max).map(|rate| PUBLISHED_BYTES / rate * 1e3)
}

/// Formats a time: `10 µs`, `0.1 ms`, `38.1 ms`.
fn words(us: f64) -> String {
    match us {
        us if us < 100.0 => format!("{} µs", short(us)),
        us => format!("{} ms", short(us / 1e3)),
    }
}

/// Formats three digits, without trailing zeros.
fn short(value: f64) -> String {
    let decimals = match value {
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn bars(rows: &[Measured], place: Place, scale: Scale) -> String {
    let mut bars = Bars::new(scale, words);
    for who in Who::ALL {
        bars.heading(who.heading());
        for row in rows.iter().filter(|row| row.setting.who == who) {
            let Some(figures) = place.of(row) else { continue };
            let (name, us) = (row.setting.name(), figures.us_per_packet);
            let published = published_us(row).filter(|_| place == Place::OneCore);
            bars.bar(&Bar {
                name: &name,
                value: (us, words(us)),
                class: if who == Who::Alone { "bar" } else { "bytes" },
                reach: None,
                mark: published.map(|us| (us, format!("published: {} µs", time(us)))),
                told: &format!("{name}: {} µs", time(us)),
            });
        }
    }
    bars.finish(&format!("{}, {}", heading(rows), place.words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [10.0, 19.6, 100.0, 507.7, 1000.0, 38_089.0, 1e5].map(words);
        assert_eq!(times, ["10 µs", "19.6 µs", "0.1 ms", "0.508 ms", "1 ms", "38.1 ms", "100 ms"]);
    }
}
