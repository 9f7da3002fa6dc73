//! What `uncork lab tsq` measured, as tables.

use uncork_lab::plan::{Outcome, Row, published_ping_ms};
use uncork_lab::tsq::Setting;

use super::tsq::{place, rate, setting};
use crate::tables::{Width, lines, table};

pub(super) fn render(outcome: &Outcome, kernel: &str, width: Width) -> String {
    let mut text = String::new();
    let places = outcome.compared.chunk_by(|one, next| place(&one.case) == place(&next.case));
    for rows in places {
        text += &format!("{}\n", width.bold(&place(&rows[0].case)));
        text += &compared(rows, width);
        text.push('\n');
    }
    let rates = outcome.sweep.chunk_by(|one, next| one.case.bottleneck == next.case.bottleneck);
    for rows in rates {
        let rate = rate(rows[0].case.bottleneck.rate);
        text += &format!(
            "{}\n",
            width.bold(&format!(
                "{rate}, 1 sender, by the limit alone, and with trains of half of it"
            ))
        );
        text += &sweep(rows, width);
        text.push('\n');
    }
    text += &format!(
        "Linux {kernel}. ping, request: ms under load (a byte to and fro over TCP). published: \
         ping of 2012, before and after.\nqueue: bytes below TCP, and the ms they take; unsent: \
         bytes that wait in the sockets (medians).\n"
    );
    text
}

fn compared(rows: &[Row], width: Width) -> String {
    let header = [
        "setting",
        "ping p50",
        "p99",
        "published",
        "request p50",
        "p99",
        "queue",
        "ms",
        "unsent",
        "Mbit/s",
        "shares",
    ];
    let mut table = table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], width);
    for row in rows {
        let measured = &row.measured;
        let shares = match row.case.senders {
            1 => String::new(),
            _ => format!("{:.2} to {:.2}", measured.least_share, measured.largest_share),
        };
        table.add_row([
            setting(row.case.setting),
            ms(measured.ping.p50_ms),
            ms(measured.ping.p99_ms),
            published_ping_ms(&row.case).unwrap_or_default().to_owned(),
            ms(measured.request.p50_ms),
            ms(measured.request.p99_ms),
            measured.queued.backlog.p50_bytes.to_string(),
            ms(measured.queued.backlog_p50_ms),
            measured.queued.unsent.p50_bytes.to_string(),
            format!("{:.1}", measured.throughput / 1e6),
            shares,
        ]);
    }
    lines(&table)
}

fn sweep(rows: &[Row], width: Width) -> String {
    let header = ["limit", "ping p50", "Mbit/s", "with trains: ping p50", "Mbit/s"];
    let mut table = table(&header, &[0, 1, 2, 3, 4], width);
    for pair in rows.chunks(2) {
        let [alone, trains] = pair else { continue };
        let (Setting::Limit(bytes) | Setting::LimitAndTrains(bytes)) = alone.case.setting else {
            continue;
        };
        let figures = |row: &Row| {
            [ms(row.measured.ping.p50_ms), format!("{:.1}", row.measured.throughput / 1e6)]
        };
        let [a, b] = figures(alone);
        let [c, d] = figures(trains);
        table.add_row([bytes.to_string(), a, b, c, d]);
    }
    lines(&table)
}

/// With as many decimals as make sense.
pub(super) fn ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}
