//! What `uncork lab nodelay` measured, as a page with plots.

use uncork_lab::nodelay::{Measured, Plan, Who};

use super::super::page::Scale;
use super::tables::cells;
use super::{amounts, heading, panels, time};
use crate::page::document;
use crate::page::svg::{Anchor, Picture, escape, put};

const WIDTH: f64 = 440.0;
/// A name, then a bar.
const ROW: f64 = 34.0;
const HEADING: f64 = 26.0;
const TOP: f64 = 24.0;
/// The client of the published runs sent packets of so many bytes.
const PUBLISHED_BYTES: f64 = 30.0;

pub(super) fn render(rows: &[Measured], plan: &Plan, kernel: &str) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab nodelay</p>\n<h1>What small writes \
         cost</h1>\n</header>"
    );
    put!(
        body,
        "<p class=\"prose\">A client sends logical packets made of several buffers of two bytes and \
         waits for the answer to each, over loopback, both ends on one core. Shorter bars are \
         better; the scale is logarithmic. A thin mark is what was published in 2007 and 2008.</p>"
    );
    let times = rows.iter().flat_map(|row| {
        [Some(row.one_core.us_per_packet), published_us(row)].into_iter().flatten()
    });
    let scale = Scale::span(times);
    put!(body, "<div class=\"pair\">");
    for rows in panels(rows) {
        put!(body, "<figure class=\"card\">\n<h3>{}</h3>\n{}", heading(rows), bars(rows, scale));
        put!(body, "<figcaption>microseconds of a logical packet</figcaption>\n</figure>");
    }
    put!(body, "</div>\n<section>\n<h2>All figures</h2>\n<div class=\"card scroll\">");
    for rows in panels(rows) {
        table(&mut body, rows);
    }
    put!(body, "</div>\n</section>");
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

/// Microseconds of a logical packet in the fastest of the published runs.
fn published_us(row: &Measured) -> Option<f64> {
    let rates = row.published?.bytes_per_ms;
    rates.iter().copied().reduce(f64::max).map(|rate| PUBLISHED_BYTES / rate * 1e3)
}

fn bars(rows: &[Measured], scale: Scale) -> String {
    let mut picture = Picture::new(WIDTH);
    #[allow(clippy::cast_precision_loss)] // some twenty of them
    let height = TOP + rows.len() as f64 * ROW + Who::ALL.len() as f64 * HEADING + 4.0;
    for tick in scale.ticks() {
        let x = scale.part(tick) * (WIDTH - 50.0);
        picture.line((x, TOP - 6.0), (x, height), "lane program");
        picture.text((x + 2.0, TOP - 10.0), Anchor::Start, "ruler", &format!("{tick} µs"));
    }
    let mut y = TOP;
    for who in Who::ALL {
        picture.text((0.0, y + 18.0), Anchor::Start, "most", who.heading());
        y += HEADING;
        for row in rows.iter().filter(|row| row.setting.who == who) {
            bar(&mut picture, row, scale, y);
            y += ROW;
        }
    }
    picture.finish(height, &heading(rows))
}

fn bar(picture: &mut Picture, row: &Measured, scale: Scale, y: f64) {
    let (name, us) = (row.setting.name(), row.one_core.us_per_packet);
    let x = |us: f64| (scale.part(us) * (WIDTH - 50.0)).max(2.0);
    let class = if row.setting.who == Who::Alone { "bar" } else { "bytes" };
    picture.text((0.0, y + 12.0), Anchor::Start, "event", &name);
    picture.text((WIDTH, y + 26.0), Anchor::End, "most", &time(us));
    picture.rect((0.0, y + 17.0), (x(us), 10.0), class, &format!("{name}: {} µs", time(us)));
    if let Some(published) = published_us(row) {
        let at = x(published);
        picture.rect(
            (at, y + 14.0),
            (1.5, 16.0),
            "bar",
            &format!("published: {} µs", time(published)),
        );
    }
}

fn table(out: &mut String, rows: &[Measured]) {
    put!(
        out,
        "<table>\n<thead><tr><th>{}</th><th>µs</th><th>B/ms</th><th>published</th>\
         <th>segments</th><th>reads</th><th>published</th><th>a core each: µs</th>\
         <th>--spin auto: µs</th></tr></thead>\n<tbody>",
        heading(rows)
    );
    for row in rows {
        let [name, figures @ ..] = cells(row);
        let who = row.setting.who.heading();
        put!(out, "<tr><td>{}: {}</td>", escape(who), escape(&name));
        for figure in figures {
            put!(out, "<td>{figure}</td>");
        }
        put!(out, "</tr>");
    }
    put!(out, "</tbody>\n</table>");
}
