//! What `uncork lab tsq` measured, as a page with plots.

use uncork_lab::plan::{Outcome, Row, published_ping_ms};
use uncork_lab::tsq::Setting;

use super::tables::ms;
use super::tsq::{place, rate, setting};
use crate::page::document;
use crate::page::svg::{Anchor, Picture, escape, put};

const WIDTH: f64 = 440.0;
/// A name, then a bar.
const ROW: f64 = 34.0;
const TOP: f64 = 24.0;
/// Where the plot of the sweep is.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 425.0;
const HIGH: f64 = 20.0;
const LOW: f64 = 220.0;

pub(super) fn render(outcome: &Outcome, kernel: &str) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab tsq</p>\n<h1>What a bulk sender does to everybody \
         behind it</h1>\n</header>"
    );
    put!(
        body,
        "<p class=\"prose\">Bulk senders keep the link busy; a ping beside them waits as long as \
         what TCP has put into the queues below it. Bars are medians, the thin line reaches to the \
         99th percentile; scales are logarithmic.</p>"
    );
    let scale = Scale::of(outcome.compared.iter().map(|row| &row.measured.ping));
    let places = outcome.compared.chunk_by(|one, next| place(&one.case) == place(&next.case));
    put!(body, "<div class=\"pair\">");
    for rows in places.clone() {
        let name = escape(&place(&rows[0].case));
        put!(body, "<figure class=\"card\">\n<h3>{name}</h3>\n{}", bars(rows, scale));
        put!(body, "<figcaption>ping under load</figcaption>\n</figure>");
    }
    put!(body, "</div>");
    if !outcome.sweep.is_empty() {
        put!(body, "<section>\n<h2>The limit alone, and with smaller trains</h2>");
        put!(
            body,
            "<p class=\"prose\">One sender. The kernel's limit alone does little, as a train of \
             segments may be larger than it; with trains of half the limit it does what it \
             says.</p>\n<div class=\"pair\">"
        );
        let rates = outcome.sweep.chunk_by(|one, next| one.case.bottleneck == next.case.bottleneck);
        for rows in rates {
            let rate = escape(&rate(rows[0].case.bottleneck.rate));
            put!(body, "<figure class=\"card\">\n<h3>{rate}</h3>\n{}", sweep(rows));
            put!(
                body,
                "<figcaption>ping under load (ms) by the limit (bytes)</figcaption>\n</figure>"
            );
        }
        put!(body, "</div>\n</section>");
    }
    put!(body, "<section>\n<h2>All figures</h2>\n<div class=\"card scroll\">");
    for rows in places {
        table(&mut body, rows);
    }
    put!(body, "</div>\n</section>");
    put!(
        body,
        "<footer><p>Made by <code>uncork lab tsq</code>, version {}, on Linux {}. Published: ping \
         under one bulk sender in 2012, before and after.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        escape(kernel)
    );
    document("uncork lab tsq", &body)
}

/// Powers of ten of milliseconds, over a width.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of<'a>(times: impl Iterator<Item = &'a uncork_lab::probe::Times>) -> Self {
        Self::span(times.flat_map(|times| [times.p50_ms, times.p99_ms]))
    }

    pub(super) fn span(values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
        let low = logs.iter().copied().fold(0.0, f64::min);
        let high = logs.iter().copied().fold(0.0, f64::max);
        // A bar at the very edge could not be seen. Times are from nanoseconds to minutes.
        #[allow(clippy::cast_possible_truncation)]
        let whole = |log: f64| log.clamp(-9.0, 9.0) as i32;
        let low = whole((low - 0.15).floor());
        Self { low, high: whole(high.ceil()).max(low + 1) }
    }

    /// From 0 to 1.
    pub(super) fn part(self, value: f64) -> f64 {
        let log = value.max(f64::MIN_POSITIVE).log10();
        ((log - f64::from(self.low)) / f64::from(self.high - self.low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10f64.powi(power))
    }
}

fn bars(rows: &[Row], scale: Scale) -> String {
    let mut picture = Picture::new(WIDTH);
    #[allow(clippy::cast_precision_loss)] // four of them
    let height = TOP + rows.len() as f64 * ROW + 4.0;
    for tick in scale.ticks() {
        let x = scale.part(tick) * (WIDTH - 50.0);
        picture.line((x, TOP - 6.0), (x, height), "lane program");
        picture.text((x + 2.0, TOP - 10.0), Anchor::Start, "ruler", &format!("{tick} ms"));
    }
    let mut y = TOP;
    for row in rows {
        let ping = &row.measured.ping;
        let published = published_ping_ms(&row.case)
            .map(|published| format!(" (2012: {published} ms)"))
            .unwrap_or_default();
        let name = format!("{}{published}", setting(row.case.setting));
        picture.text((0.0, y + 12.0), Anchor::Start, "event", &name);
        picture.text((WIDTH, y + 26.0), Anchor::End, "most", &format!("{} ms", ms(ping.p50_ms)));
        let x = |value| (scale.part(value) * (WIDTH - 50.0)).max(2.0);
        let class = match row.case.setting {
            Setting::SmallQueues | Setting::Paced => "bytes",
            _ => "bar",
        };
        let told = format!("{name}: p50 {} ms, p99 {} ms", ms(ping.p50_ms), ms(ping.p99_ms));
        picture.rect((0.0, y + 17.0), (x(ping.p50_ms), 10.0), class, &told);
        picture.line((x(ping.p50_ms), y + 22.0), (x(ping.p99_ms), y + 22.0), "lane");
        y += ROW;
    }
    picture.finish(height, &format!("Ping under load, {}", place(&rows[0].case)))
}

fn sweep(rows: &[Row]) -> String {
    let mut picture = Picture::new(WIDTH);
    let scale = Scale::span(rows.iter().map(|row| row.measured.ping.p50_ms));
    let bytes = |row: &Row| match row.case.setting {
        Setting::Limit(bytes) | Setting::LimitAndTrains(bytes) => f64::from(bytes),
        _ => 1.0,
    };
    let across = Scale::span(rows.iter().map(bytes));
    let least = rows.iter().map(bytes).fold(f64::INFINITY, f64::min).log10().floor();
    let span = f64::from(across.high) - least;
    let x = |bytes: f64| LEFT + (RIGHT - LEFT) * (bytes.log10() - least) / span;
    let y = |ms: f64| LOW - (LOW - HIGH) * scale.part(ms);
    for tick in scale.ticks() {
        picture.line((LEFT, y(tick)), (RIGHT, y(tick)), "lane program");
        picture.text((LEFT - 5.0, y(tick) + 4.0), Anchor::End, "ruler", &format!("{tick} ms"));
    }
    for row in rows.iter().filter(|row| matches!(row.case.setting, Setting::Limit(_))) {
        let at = x(bytes(row));
        picture.line((at, LOW), (at, LOW + 4.0), "tick");
        picture.text((at, LOW + 16.0), Anchor::Middle, "ruler", &short(bytes(row)));
    }
    let alone = |row: &&Row| matches!(row.case.setting, Setting::Limit(_));
    let (alone, trains): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(alone);
    for (line, line_class, dot_class, name) in [
        (alone, "sent shut", "bar", "the limit alone"),
        (trains, "sent client", "bytes", "with trains of half of it"),
    ] {
        let points: Vec<(f64, f64)> =
            line.iter().map(|row| (x(bytes(row)), y(row.measured.ping.p50_ms))).collect();
        for pair in points.windows(2) {
            picture.line(pair[0], pair[1], line_class);
        }
        points.iter().for_each(|point| picture.dot(*point, 3.4, dot_class));
        if let Some((at, height)) = points.first() {
            picture.text((*at, height - 8.0), Anchor::End, "segment", name);
        }
    }
    picture.finish(LOW + 24.0, "Ping under load by the limit")
}

fn short(bytes: f64) -> String {
    if bytes >= 1_048_576.0 {
        format!("{} MiB", bytes / 1_048_576.0)
    } else {
        format!("{} KiB", bytes / 1024.0)
    }
}

fn table(out: &mut String, rows: &[Row]) {
    put!(
        out,
        "<table>\n<thead><tr><th>{}</th><th>ping p50, p99 (ms)</th><th>published</th>\
         <th>request p50, p99 (ms)</th><th>queue (bytes)</th><th>in sockets</th><th>unsent</th>\
         <th>Mbit/s</th><th>shares</th></tr></thead>\n<tbody>",
        escape(&place(&rows[0].case))
    );
    for row in rows {
        let measured = &row.measured;
        put!(
            out,
            "<tr><td>{}</td><td>{}, {}</td><td>{}</td><td>{}, {}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{:.1}</td><td>{:.2} to {:.2}</td></tr>",
            escape(&setting(row.case.setting)),
            ms(measured.ping.p50_ms),
            ms(measured.ping.p99_ms),
            escape(published_ping_ms(&row.case).unwrap_or("")),
            ms(measured.request.p50_ms),
            ms(measured.request.p99_ms),
            measured.queued.backlog.p50_bytes,
            measured.queued.sockets.p50_bytes,
            measured.queued.unsent.p50_bytes,
            measured.throughput / 1e6,
            measured.least_share,
            measured.largest_share,
        );
    }
    put!(out, "</tbody>\n</table>");
}
