//! The measurements of `uncork lab tsq`, as tables.

use uncork_lab::plan::{Outcome, Row, published_ping_ms};
use uncork_lab::tsq::Case;

use super::broad::Broad;
use super::paragraph;
use super::tsq::{place, setting};
use crate::tables::Width;

pub(super) fn render(outcome: &Outcome, kernel: &str, width: Width) -> String {
    let mut text = String::new();
    for (heading, rows) in places(outcome) {
        text += &format!("{}\n", width.bold(&heading));
        let table = Broad {
            names: "setting",
            groups: &[
                &[
                    "ping\np50",
                    "\np99",
                    "in\n2012",
                    "request\np50",
                    "\np99",
                    "\nMbit/s",
                    "\nshares",
                ],
                &["queue\nbytes", "\nms", "p99\nbytes", "\nms", "sockets\nbytes", "unsent\nbytes"],
            ],
            rows: rows.into_iter().map(cells).collect(),
            words: false,
        };
        text += &table.render(width);
        text.push('\n');
    }
    let last = format!(
        "Linux {kernel}. ping, request: ms under load (a byte to and fro over TCP). in 2012: the \
         published ping, before and after. shares: least and largest of a sender, 1 is an even one. \
         queue: bytes below TCP, and the ms they take; sockets: bytes written and not acknowledged; \
         unsent: those of them that were not sent even once (medians)."
    );
    text + &paragraph(&last, width)
}

/// Returns the rows of each link and load, by name: settings, then limits.
pub(super) fn places(outcome: &Outcome) -> Vec<(String, Vec<&Row>)> {
    let mut places: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in outcome.compared.iter().chain(&outcome.sweep) {
        let name = place(&row.case);
        match places.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => places.push((name, vec![row])),
        }
    }
    places
}

/// Returns the cells of a row: its setting, then the effect on others, then what is queued.
pub(super) fn cells(row: &Row) -> Vec<String> {
    let measured = &row.measured;
    let queued = &measured.queued;
    vec![
        setting(row.case.setting),
        ms(measured.ping.p50_ms),
        ms(measured.ping.p99_ms),
        published_ping_ms(&row.case).unwrap_or_default().to_owned(),
        ms(measured.request.p50_ms),
        ms(measured.request.p99_ms),
        format!("{:.1}", measured.throughput / 1e6),
        shares(&row.case, measured.least_share, measured.largest_share),
        queued.backlog.p50_bytes.to_string(),
        ms(queued.backlog_p50_ms),
        queued.backlog.p99_bytes.to_string(),
        ms(queued.backlog_p99_ms),
        queued.sockets.p50_bytes.to_string(),
        queued.unsent.p50_bytes.to_string(),
    ]
}

fn shares(case: &Case, least: f64, largest: f64) -> String {
    if case.senders == 1 { String::new() } else { format!("{least:.2}–{largest:.2}") }
}

/// Formats milliseconds with as many decimals as make sense.
pub(super) fn ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::broad::tests::assert_whole;
    use crate::lab::samples;

    #[test]
    fn a_terminal_of_80_columns_breaks_no_word_and_no_figure() {
        let outcome = samples::tsq();
        let text = render(&outcome, "6.18.44", Width::fixed(Some(80), false));
        let rows = outcome.compared.iter().chain(&outcome.sweep);
        let words: Vec<String> = rows.flat_map(cells).collect();
        assert_whole(&text, 80, &words);
        let parts = places(&outcome).len() * 2;
        assert_eq!(text.matches("tune small-queues").count(), parts, "{text}");
    }

    #[test]
    fn a_row_tells_what_others_notice_and_what_waits() {
        let outcome = samples::tsq();
        let text = render(&outcome, "6.18.44", Width::fixed(None, false));
        let row = text.lines().find(|line| line.contains("this kernel")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        let expected =
            "this kernel 11.3 13.4 132 11.4 13.5 95.5 121215 9.70 146912 11.8 435900 343295";
        assert_eq!(cells.join(" "), expected);
    }
}
