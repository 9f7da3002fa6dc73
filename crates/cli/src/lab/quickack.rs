//! `uncork lab quickack`.

use std::time::Duration;

use serde::Serialize;
use uncork_lab::quickack::{RUNS, Told, measure_all};
use uncork_lab::stats::median;

use super::arguments::Quickack;
use super::broad::Broad;
use super::plot::{Scale, WIDTH, numbered};
use super::tables::ms;
use super::{
    INTERRUPTED, bar, json, kernel, open_page, paragraph, stopped_by_signals, unless_stopped,
};
use crate::failure::Failure;
use crate::output;
use crate::page::document;
use crate::page::svg::{Anchor, Picture, escape, put};
use crate::tables::Width;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    kernel: &'a str,
    runs: &'a [Told],
}

pub(super) fn run(arguments: &Quickack) -> Result<i32, Failure> {
    let page = arguments.telling.html.as_deref().map(open_page).transpose()?;
    let uncork = std::env::current_exe()
        .map_err(|error| Failure::own(format!("uncork's own file cannot be found: {error}")))?;
    let stop = stopped_by_signals()?;
    let time = Duration::from_millis(if arguments.telling.quick { 3500 } else { 10_000 });
    let bar = bar(RUNS.len());
    bar.set_message("all runs at once");
    let done = measure_all(&uncork, &RUNS, time, &stop, || bar.inc(1));
    bar.finish_and_clear();
    let Some(runs) = unless_stopped(done, &stop)? else { return Ok(INTERRUPTED) };
    let kernel = kernel();
    if let Some(page) = page {
        page.write(&render(&runs, &kernel))?;
    }
    if arguments.telling.json {
        json(&Document { version: 1, kernel: &kernel, runs: &runs })?;
    } else {
        output::print(&rows(&runs, &kernel, Width::of_stdout()))?;
    }
    Ok(0)
}

/// Returns the shortest, the median and the longest of the known delays.
fn spread(told: &Told) -> [String; 3] {
    let mut known: Vec<f64> = told.ack_delays_ms.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let at = |index: usize| known.get(index).map_or_else(|| "?".to_owned(), |delay| ms(*delay));
    [at(0), at(known.len() / 2), at(known.len().saturating_sub(1))]
}

fn rows(runs: &[Told], kernel: &str, width: Width) -> String {
    let row = |told: &Told| {
        let counts = [told.ack_delays_ms.len().to_string(), told.late().to_string()];
        let published = told.run.published.unwrap_or_default().to_owned();
        let name = told.run.name.to_owned();
        let figures = counts.into_iter().chain(spread(told)).chain([published]);
        std::iter::once(name).chain(figures).collect()
    };
    let measured = Broad {
        names: "run",
        groups: &[&["seg-\nments", "late", "least\nms", "p50", "most"], &["published"]],
        rows: runs.iter().map(row).collect(),
        words: false,
    };
    let mut text = measured.render(width);
    text.push('\n');
    for told in runs {
        text += &paragraph(&format!("{}: {}", told.run.name, told.sentence), width);
    }
    text += "\nACK delay by the segment's number, medians of eight in ms:\n";
    text += &numbers(runs, width);
    if runs.iter().any(|told| told.run.reply_segments.is_some()) {
        text += "\nACK delay by the segment's place in its reply, medians in ms:\n";
        text += &places(runs, width);
    }
    let last = format!(
        "late: ACKs that were; least, p50, most: from a segment's departure to its ACK. Linux \
         {kernel}. docs/QUICKACK.md says what decides when an ACK is sent."
    );
    format!("{text}\n{}", paragraph(&last, width))
}

/// Describes the delays of the ACKs, from the first segment to the last.
fn numbers(runs: &[Told], width: Width) -> String {
    const EIGHT: usize = 8;
    let unasked = || runs.iter().filter(|told| told.run.reply_segments.is_none());
    let most = unasked().map(|told| told.ack_delays_ms.len()).max().unwrap_or(0);
    let range = |first| format!("{}–{}", first + 1, most.min(first + EIGHT));
    let headings: Vec<String> = (0..most).step_by(EIGHT).map(range).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let middle = |delays: &[Option<f64>]| {
        let known: Vec<f64> = delays.iter().flatten().copied().collect();
        if known.is_empty() { "?".to_owned() } else { ms(median(&known)) }
    };
    let row = |told: &Told| {
        let cells = told.ack_delays_ms.chunks(EIGHT).map(middle);
        std::iter::once(told.run.name.to_owned()).chain(cells).collect()
    };
    let rows = unasked().map(row).collect();
    Broad { names: "run", groups: &[&headings], rows, words: false }.render(width)
}

/// Describes the delay of the ACK of each segment of a reply.
fn places(runs: &[Told], width: Width) -> String {
    let replies = || runs.iter().filter(|told| told.run.reply_segments.is_some());
    let most = replies().filter_map(|told| told.run.reply_segments).max().unwrap_or(0);
    let numbers: Vec<String> = (1..=most).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let row = |told: &Told| {
        let delays = told.by_place();
        let cells = delays.iter().map(|delay| delay.map_or("?".to_owned(), ms));
        std::iter::once(told.run.name.to_owned()).chain(cells).collect()
    };
    let rows = replies().map(row).collect();
    Broad { names: "run", groups: &[&numbers], rows, words: false }.render(width)
}

const LEFT: f64 = 52.0;
const RIGHT: f64 = 425.0;
const HIGH: f64 = 20.0;
const LOW: f64 = 200.0;

pub(super) fn render(runs: &[Told], kernel: &str) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab quickack</p>\n<h1>When a receiver \
         acknowledges</h1>\n</header>\n<p class=\"prose\">A dot for each segment: how long after its \
         departure its ACK came. Red is later than 20 ms. The scale is logarithmic, and the same for \
         all.</p>\n<div class=\"pair\">"
    );
    for told in runs {
        put!(body, "<figure class=\"card\">\n<h3>{}</h3>\n{}", escape(told.run.name), plot(told));
        put!(body, "<figcaption>ACK delay by segment number: {}.", escape(&told.sentence));
        if let Some(published) = told.run.published {
            put!(body, " Published: {}.", escape(published));
        }
        if told.run.reply_segments.is_some() {
            let places: Vec<String> =
                told.by_place().iter().map(|delay| delay.map_or("?".to_owned(), ms)).collect();
            put!(body, " By place in the reply, medians: {} ms.", places.join(", "));
        }
        put!(
            body,
            "<br><code>uncork ack server {}</code>, <code>uncork ack client {}</code></figcaption>\
             \n</figure>",
            escape(told.run.server),
            escape(told.run.client)
        );
    }
    put!(
        body,
        "</div>\n<footer><p>Made by <code>uncork lab quickack</code>, version {}, on Linux {}.</p>\
         </footer>",
        env!("CARGO_PKG_VERSION"),
        escape(kernel)
    );
    document("uncork lab quickack", &body)
}

/// Plots the delays by segment number.
pub(super) fn plot(told: &Told) -> String {
    let mut picture = Picture::new(WIDTH);
    // One scale for all, so that they can be compared.
    let scale = Scale::span([0.02, 60.0].into_iter());
    let y = |ms: f64| LOW - (LOW - HIGH) * scale.part(ms);
    for tick in scale.ticks() {
        picture.line((LEFT, y(tick)), (RIGHT, y(tick)), "lane program");
        picture.text((LEFT - 5.0, y(tick) + 4.0), Anchor::End, "ruler", &format!("{tick} ms"));
    }
    #[allow(clippy::cast_precision_loss)] // a hundred or so
    let x = |index: usize| {
        LEFT + (RIGHT - LEFT) * (index as f64 + 0.5) / told.ack_delays_ms.len().max(1) as f64
    };
    for (index, delay) in told.ack_delays_ms.iter().enumerate() {
        if let Some(delay) = delay {
            let class = if *delay > 20.0 { "bar" } else { "bytes" };
            picture.dot((x(index), y(*delay)), 2.6, class);
        }
    }
    for number in numbered(told.ack_delays_ms.len()) {
        picture.text((x(number - 1), LOW + 16.0), Anchor::Middle, "ruler", &number.to_string());
    }
    picture.finish(LOW + 24.0, &format!("ACK delay by segment number, {}", told.run.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::broad::tests::assert_whole;
    use crate::lab::samples;

    #[test]
    fn a_terminal_of_80_columns_breaks_no_word_and_no_figure() {
        let runs = samples::quickack();
        let text = rows(&runs, "6.18.44", Width::fixed(Some(80), false));
        let mut words: Vec<String> = runs.iter().flat_map(spread).collect();
        words.extend(runs.iter().map(|told| told.run.name.to_owned()));
        words.extend(runs.iter().filter_map(|told| told.run.published).map(str::to_owned));
        assert_whole(&text, 80, &words);
    }

    #[test]
    fn delays_are_told_by_the_segment_s_number() {
        let mut runs = samples::quickack();
        runs[1].ack_delays_ms = (1..=30).map(|n| Some(if n > 16 { 42.0 } else { 0.02 })).collect();
        let text = numbers(&runs, Width::fixed(None, false));
        assert!(text.lines().next().unwrap().contains("9–16  17–24"), "{text}");
        let row = text.lines().find(|line| line.contains(runs[1].run.name)).unwrap();
        let cells: Vec<&str> = row.split_whitespace().rev().take(4).collect();
        assert_eq!(cells, ["42.0", "42.0", "0.02", "0.02"], "{text}");
    }
}
