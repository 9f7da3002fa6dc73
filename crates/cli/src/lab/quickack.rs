//! `uncork lab quickack`.

use std::time::Duration;

use serde::Serialize;
use uncork_lab::quickack::{RUNS, Told, measure_all};

use super::arguments::Quickack;
use super::page::Scale;
use super::tables::ms;
use super::{INTERRUPTED, bar, json, kernel, open_page, stopped_by_signals, unless_stopped};
use crate::failure::Failure;
use crate::output;
use crate::page::document;
use crate::page::svg::{Anchor, Picture, escape, put};
use crate::tables::{Width, lines, table};

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

/// The shortest, the median and the longest of the delays that are known.
fn spread(told: &Told) -> [String; 3] {
    let mut known: Vec<f64> = told.ack_delays_ms.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let at = |index: usize| known.get(index).map_or_else(|| "?".to_owned(), |delay| ms(*delay));
    [at(0), at(known.len() / 2), at(known.len().saturating_sub(1))]
}

fn rows(runs: &[Told], kernel: &str, width: Width) -> String {
    let header = ["run", "segments", "late", "ACK: least ms", "p50", "most", "published"];
    let mut table = table(&header, &[1, 2, 3, 4, 5], width);
    for told in runs {
        let [least, middle, most] = spread(told);
        table.add_row([
            told.run.name.to_owned(),
            told.ack_delays_ms.len().to_string(),
            told.late().to_string(),
            least,
            middle,
            most,
            told.run.published.unwrap_or_default().to_owned(),
        ]);
    }
    let mut text = lines(&table);
    text.push('\n');
    for told in runs {
        text += &format!("{}: {}\n", told.run.name, told.sentence);
    }
    if runs.iter().any(|told| told.run.reply_segments.is_some()) {
        text += "\nACK delay by the segment's place in its reply, medians in ms:\n";
        text += &places(runs, width);
    }
    text + &format!("\nLinux {kernel}. docs/QUICKACK.md says what decides when an ACK is sent.\n")
}

/// What the ACK of each segment of a reply took.
fn places(runs: &[Told], width: Width) -> String {
    let replies = || runs.iter().filter(|told| told.run.reply_segments.is_some());
    let most = replies().filter_map(|told| told.run.reply_segments).max().unwrap_or(0);
    let numbers: Vec<String> = (1..=most).map(|number| number.to_string()).collect();
    let header: Vec<&str> =
        std::iter::once("run").chain(numbers.iter().map(String::as_str)).collect();
    let right: Vec<usize> = (1..=most).collect();
    let mut table = table(&header, &right, width);
    for told in replies() {
        let mut cells = vec![told.run.name.to_owned()];
        cells.extend(told.by_place().iter().map(|delay| delay.map_or("?".to_owned(), ms)));
        cells.resize(most + 1, String::new());
        table.add_row(cells);
    }
    lines(&table)
}

const WIDTH: f64 = 440.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 425.0;
const HIGH: f64 = 20.0;
const LOW: f64 = 200.0;

fn render(runs: &[Told], kernel: &str) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab quickack</p>\n<h1>When a receiver \
         acknowledges</h1>\n</header>\n<div class=\"pair\">"
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

/// The delays by segment number.
pub(super) fn plot(told: &Told) -> String {
    let mut picture = Picture::new(WIDTH);
    // The same for all, so that they can be compared.
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
        if index == 0 || (index + 1) % 10 == 0 {
            let number = (index + 1).to_string();
            picture.text((x(index), LOW + 16.0), Anchor::Middle, "ruler", &number);
        }
    }
    picture.finish(LOW + 24.0, &format!("ACK delay by segment number, {}", told.run.name))
}
