//! What `uncork lab nodelay` measured, as tables.

use uncork_lab::nodelay::{Figures, Measured, Plan, Who};

use super::{amounts, count, heading, panels, published_rate, published_reads, rate, time};
use crate::tables::{Width, lines, table};

pub(super) fn render(rows: &[Measured], plan: &Plan, kernel: &str, width: Width) -> String {
    let mut text = String::new();
    for rows in panels(rows) {
        text += &format!("{}\n", width.bold(&heading(rows)));
        text += &panel(rows, width);
        text.push('\n');
    }
    text += &format!(
        "Linux {kernel}. µs: a logical packet and its answer, both ends on one core; then on a core \
         each, and so with --spin auto at both ends.\nB/ms: throughput. segments, reads: of a \
         logical packet, at the server. published: 10,000 packets of 15 buffers in 2007 and 2008, \
         under\nuncork run with TCP_NODELAY those of libautocork. Medians; {}.\n",
        amounts(plan)
    );
    text
}

fn panel(rows: &[Measured], width: Width) -> String {
    let header = [
        "client",
        "µs",
        "B/ms",
        "published",
        "segments",
        "reads",
        "published",
        "core each: µs",
        "--spin: µs",
    ];
    let mut table = table(&header, &[1, 2, 3, 4, 5, 6, 7, 8], width);
    for who in Who::ALL {
        let empty = || std::iter::repeat_n(String::new(), header.len() - 1);
        table.add_row(std::iter::once(who.heading().to_owned()).chain(empty()));
        for row in rows.iter().filter(|row| row.setting.who == who) {
            let [name, figures @ ..] = cells(row);
            table.add_row(std::iter::once(format!("  {name}")).chain(figures));
        }
    }
    lines(&table)
}

/// What is told of a row: its name, and the figures in the order of the headings.
pub(super) fn cells(row: &Measured) -> [String; 9] {
    let one = &row.one_core;
    let us = |figures: Option<Figures>| {
        figures.map(|figures| time(figures.us_per_packet)).unwrap_or_default()
    };
    [
        row.setting.name(),
        time(one.us_per_packet),
        rate(one.bytes_per_ms),
        published_rate(row),
        count(one.segments_per_packet),
        count(one.reads_per_packet),
        published_reads(row),
        us(row.two_cores),
        us(row.two_cores_spinning),
    ]
}
