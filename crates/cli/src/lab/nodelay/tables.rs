//! The measurements of `uncork lab nodelay`, as tables.

use uncork_lab::nodelay::{Figures, Measured, Plan, Who};

use super::super::broad::Broad;
use super::super::paragraph;
use super::{amounts, count, heading, panels, published_rate, published_reads, rate, time};
use crate::tables::Width;

pub(super) fn render(rows: &[Measured], plan: &Plan, kernel: &str, width: Width) -> String {
    let mut text = String::new();
    for rows in panels(rows) {
        text += &format!("{}\n", width.bold(&heading(rows)));
        text += &panel(rows, width);
        text.push('\n');
    }
    let last = format!(
        "Linux {kernel}. µs: a logical packet and its answer, both ends on one core; then on a core \
         each, and so with --spin auto at both ends. B/ms: throughput. segments, reads: of a logical \
         packet, at the server. then: published in 2007 and 2008, 10,000 packets of 15 buffers, under \
         uncork run with TCP_NODELAY those of libautocork. Medians; {}.",
        amounts(plan)
    );
    text + &paragraph(&last, width)
}

fn panel(rows: &[Measured], width: Width) -> String {
    let groups: [&[&str]; 3] = [
        &["\nµs", "\nB/ms", "B/ms\nthen", "seg-\nments", "\nreads", "reads\nthen"],
        &["core\neach: µs", "\nB/ms", "seg-\nments", "\nreads"],
        &["--spin\nauto: µs", "\nB/ms", "seg-\nments", "\nreads"],
    ];
    let mut all = Vec::new();
    for who in Who::ALL {
        all.push(vec![who.heading().to_owned()]);
        for row in rows.iter().filter(|row| row.setting.who == who) {
            let name = format!("  {}", row.setting.name());
            let figures = one_core(row).into_iter().chain(two_cores(row));
            all.push(std::iter::once(name).chain(figures).collect());
        }
    }
    Broad { names: "client", groups: &groups, rows: all, words: false }.render(width)
}

/// Returns the cells for both ends on one core, beside what was published.
pub(super) fn one_core(row: &Measured) -> [String; 6] {
    let [us, rate, segments, reads] = figures(Some(&row.one_core));
    [us, rate, published_rate(row), segments, reads, published_reads(row)]
}

/// Returns the cells for a core each, and for that with both ends spinning.
pub(super) fn two_cores(row: &Measured) -> impl Iterator<Item = String> + use<> {
    let plain = figures(row.two_cores.as_ref());
    plain.into_iter().chain(figures(row.two_cores_spinning.as_ref()))
}

fn figures(figures: Option<&Figures>) -> [String; 4] {
    let Some(figures) = figures else { return Default::default() };
    [
        time(figures.us_per_packet),
        rate(figures.bytes_per_ms),
        count(figures.segments_per_packet),
        count(figures.reads_per_packet),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::broad::tests::assert_whole;
    use crate::lab::samples;

    #[test]
    fn a_terminal_of_80_columns_breaks_no_word_and_no_figure() {
        let rows = samples::nodelay();
        let text = render(&rows, &Plan::new(false), "6.18.44", Width::fixed(Some(80), false));
        let mut words: Vec<String> = rows.iter().map(|row| row.setting.name()).collect();
        words.extend(rows.iter().flat_map(one_core));
        words.extend(rows.iter().flat_map(two_cores));
        assert_whole(&text, 80, &words);
    }

    #[test]
    fn every_row_of_the_experiment_is_named_with_and_without_spinning() {
        let rows = samples::nodelay();
        let text = render(&rows, &Plan::new(false), "6.18.44", Width::fixed(None, false));
        for heading in ["The program alone", "uncork run --hold kernel", "uncork run --hold user"] {
            let lines = text.lines().filter(|line| line.trim() == heading);
            assert_eq!(lines.count(), 2, "{heading} in\n{text}");
        }
        for name in [
            "no option",
            "TCP_NODELAY",
            "TCP_CORK",
            "header + payload, TCP_NODELAY",
            "writev, TCP_NODELAY",
            "header, then sendfile, no option",
            "header, then sendfile, TCP_CORK",
            "single request (the limit)",
        ] {
            let mut found = text.lines().filter(|line| line.trim_start().starts_with(name));
            let cells = found.next().unwrap().split_whitespace().count();
            assert!(cells >= name.split(' ').count() + 12, "{name} in\n{text}");
        }
        assert!(text.contains("--spin"), "{text}");
    }
}
