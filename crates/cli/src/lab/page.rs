//! The measurements of `uncork lab tsq`, as a page with plots.

use uncork_lab::plan::{Outcome, Row, published_ping_ms};
use uncork_lab::tsq::Setting;

use super::plot::{Bar, Bars, Scale, WIDTH};
use super::tables::{cells, ms, places};
use super::tsq::{place, setting, size};
use crate::page::broad::broad;
use crate::page::document;
use crate::page::svg::{Anchor, Picture, escape, put};

/// Position of the sweep's plot.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 415.0;
const HIGH: f64 = 20.0;
const LOW: f64 = 220.0;

/// The effect on others, and what is queued: as in the cells of the terminal's table.
const NOTICED: [&str; 7] =
    ["ping p50 (ms)", "p99", "in 2012", "request p50 (ms)", "p99", "Mbit/s", "shares"];
const WAITING: [&str; 6] = [
    "queue p50 (bytes)",
    "p50 (ms)",
    "p99 (bytes)",
    "p99 (ms)",
    "in sockets (bytes)",
    "unsent (bytes)",
];

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
    let pings = outcome.compared.iter().map(|row| &row.measured.ping);
    let scale = Scale::span(pings.flat_map(|times| [times.p50_ms, times.p99_ms]));
    put!(body, "<div class=\"pair\">");
    for rows in outcome.compared.chunk_by(|one, next| place(&one.case) == place(&next.case)) {
        let name = escape(&place(&rows[0].case));
        put!(body, "<figure class=\"card\">\n<h3>{name}</h3>\n{}", bars(rows, scale));
        put!(body, "<figcaption>ping under load</figcaption>\n</figure>");
    }
    put!(body, "</div>");
    if !outcome.sweep.is_empty() {
        limits(&mut body, &outcome.sweep);
    }
    put!(body, "<section>\n<h2>All figures</h2>");
    for (heading, rows) in places(outcome) {
        let (mut noticed, mut waiting) = (Vec::new(), Vec::new());
        for row in rows {
            let mut cells = cells(row);
            let rest = cells.split_off(1 + NOTICED.len());
            waiting.push(cells.first().cloned().into_iter().chain(rest).collect());
            noticed.push(cells);
        }
        broad(&mut body, &heading, &NOTICED, &noticed);
        broad(&mut body, &format!("{heading}: what waits"), &WAITING, &waiting);
    }
    put!(body, "</section>");
    tuned(&mut body, outcome);
    put!(
        body,
        "<footer><p>Made by <code>uncork lab tsq</code>, version {}, on Linux {}. In 2012: the \
         published ping under one bulk sender, before and after.</p></footer>",
        env!("CARGO_PKG_VERSION"),
        escape(kernel)
    );
    document("uncork lab tsq", &body)
}

/// Draws the plots of the sweep.
fn limits(body: &mut String, sweep: &[Row]) {
    put!(body, "<section>\n<h2>The limit alone, and with smaller trains</h2>");
    put!(
        body,
        "<p class=\"prose\">The kernel's limit alone does little, as a train of segments may be \
         larger than it; with trains of half the limit it does what it says.</p>\n\
         <div class=\"pair\">"
    );
    for rows in sweep.chunk_by(|one, next| place(&one.case) == place(&next.case)) {
        let name = escape(&place(&rows[0].case));
        put!(body, "<figure class=\"card\">\n<h3>{name}</h3>\n{}", plot(rows));
        let trains = if rows.iter().any(has_trains) {
            ", <span class=\"key bytes\"></span>with trains of half of it"
        } else {
            ""
        };
        put!(
            body,
            "<figcaption>ping under load by the limit: <span class=\"key bar\"></span>alone{trains}\
             </figcaption>\n</figure>"
        );
    }
    put!(body, "</div>\n</section>");
}

/// Lists what `uncork tune` changed.
fn tuned(body: &mut String, outcome: &Outcome) {
    let rows = || outcome.compared.iter().filter(|row| !row.tuned.is_empty());
    if rows().next().is_none() {
        return;
    }
    put!(body, "<section>\n<h2>What uncork tune small-queues changed</h2>\n<ul class=\"well\">");
    for row in rows() {
        let name = place(&row.case);
        put!(body, "<li>{}: {}</li>", escape(&name), escape(&row.tuned.join("; ")));
    }
    put!(body, "</ul>\n</section>");
}

fn bars(rows: &[Row], scale: Scale) -> String {
    let mut bars = Bars::new(scale, |tick| format!("{tick} ms"));
    for row in rows {
        let ping = &row.measured.ping;
        let published = published_ping_ms(&row.case)
            .map(|published| format!(" (2012: {published} ms)"))
            .unwrap_or_default();
        let name = format!("{}{published}", setting(row.case.setting));
        let class = match row.case.setting {
            Setting::SmallQueues | Setting::Paced | Setting::Tuned => "bytes",
            _ => "bar",
        };
        bars.bar(&Bar {
            name: &name,
            value: (ping.p50_ms, format!("{} ms", ms(ping.p50_ms))),
            class,
            reach: Some(ping.p99_ms),
            mark: None,
            told: &format!("{name}: p50 {} ms, p99 {} ms", ms(ping.p50_ms), ms(ping.p99_ms)),
        });
    }
    bars.finish(&format!("Ping under load, {}", place(&rows[0].case)))
}

fn has_trains(row: &Row) -> bool {
    matches!(row.case.setting, Setting::LimitAndTrains(_))
}

fn limit(row: &Row) -> u32 {
    match row.case.setting {
        Setting::Limit(bytes) | Setting::LimitAndTrains(bytes) => bytes,
        _ => 1,
    }
}

/// Plots ping by the limit, both logarithmic.
fn plot(rows: &[Row]) -> String {
    let mut picture = Picture::new(WIDTH);
    let scale = Scale::span(rows.iter().map(|row| row.measured.ping.p50_ms));
    let log = |row: &Row| f64::from(limit(row)).log2();
    let least = rows.iter().map(log).reduce(f64::min).unwrap_or(0.0);
    let most = rows.iter().map(log).reduce(f64::max).unwrap_or(0.0);
    // With room beside the dots at either end.
    let x = |row: &Row| {
        LEFT + 14.0 + (RIGHT - LEFT - 28.0) * (log(row) - least) / (most - least).max(1.0)
    };
    let y = |ms: f64| LOW - (LOW - HIGH) * scale.part(ms);
    for tick in scale.ticks() {
        picture.line((LEFT, y(tick)), (RIGHT, y(tick)), "lane program");
        picture.text((LEFT - 5.0, y(tick) + 4.0), Anchor::End, "ruler", &format!("{tick} ms"));
    }
    let (trains, alone): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| has_trains(row));
    for row in &alone {
        picture.line((x(row), LOW), (x(row), LOW + 4.0), "tick");
        picture.text((x(row), LOW + 16.0), Anchor::Middle, "ruler", &size(limit(row)));
    }
    for (line, line_class, dot_class) in
        [(alone, "sent shut", "bar"), (trains, "sent client", "bytes")]
    {
        let at = |row: &&Row| (x(row), y(row.measured.ping.p50_ms));
        let points: Vec<(f64, f64)> = line.iter().map(at).collect();
        for pair in points.windows(2) {
            picture.line(pair[0], pair[1], line_class);
        }
        points.iter().for_each(|point| picture.dot(*point, 3.4, dot_class));
    }
    picture.finish(LOW + 24.0, &format!("Ping under load by the limit, {}", place(&rows[0].case)))
}
