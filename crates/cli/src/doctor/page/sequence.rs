//! The sequence diagram of one stall: time runs downwards, the two ends are on the left and right.
//!
//! The longest silence and all other long intervals are drawn to one scale, with a ruler. Events
//! that follow each other too closely to be read are spread out, with their times beside them.

use std::time::Duration;

use uncork_doctor::{Example, Finding, Kind, Role, Seen, What};

use crate::doctor::words;
use crate::page::svg::{Anchor, Picture};

const WIDTH: f64 = 436.0;
/// Right edge of the column of times.
const TIMES: f64 = 44.0;
const TOP: f64 = 52.0;
/// Least distance of two events, so that each can be read.
const STEP: f64 = 23.0;
/// Height of the longest silence.
const SILENCE: f64 = 190.0;
/// With more events than this there is no picture.
const MOST: usize = 24;

/// Positions of the columns.
struct Columns {
    client: f64,
    server: f64,
    /// Distance of a program's column from its end, where calls were seen.
    program: Option<f64>,
}

impl Columns {
    fn of(example: &Example) -> Self {
        let by_program =
            |seen: &Seen| matches!(seen.what, What::Write | What::Read | What::AckTimer);
        if example.events.iter().any(by_program) {
            Self { client: 154.0, server: 322.0, program: Some(32.0) }
        } else {
            Self { client: 96.0, server: 390.0, program: None }
        }
    }

    fn end(&self, role: Role) -> f64 {
        match role {
            Role::Client => self.client,
            Role::Server => self.server,
        }
    }

    /// Returns the direction away from the other end.
    fn outward(role: Role) -> f64 {
        match role {
            Role::Client => -1.0,
            Role::Server => 1.0,
        }
    }

    fn middle(&self) -> f64 {
        f64::midpoint(self.client, self.server)
    }
}

/// An event and the height at which it is drawn.
struct Placed<'a> {
    seen: &'a Seen,
    y: f64,
}

/// Renders the picture, if there is anything to draw.
pub(super) fn render(finding: &Finding, example: &Example) -> Option<String> {
    let placed = place(example)?;
    let columns = Columns::of(example);
    let bottom = placed.last()?.y + 20.0;
    let mut picture = Picture::new(WIDTH);
    ruler(&mut picture, example, &placed);
    lanes(&mut picture, &columns, bottom);
    holders(&mut picture, &columns, finding, example, &placed);
    silence(&mut picture, &columns, finding, example, &placed);
    for at in 0..placed.len() {
        event(&mut picture, &columns, &placed, at);
        time(&mut picture, example, &placed[at]);
    }
    let told = format!(
        "{}: {} between client and server",
        words::name(finding),
        words::time(example.end.saturating_sub(example.begin))
    );
    Some(picture.finish(bottom + 6.0, &told))
}

/// Places each event as far below the one before as the time between them, at one scale, but never
/// too close to be read.
fn place(example: &Example) -> Option<Vec<Placed<'_>>> {
    let mut events: Vec<&Seen> = example.events.iter().take(MOST).collect();
    events.sort_by_key(|seen| seen.at);
    let events = &events[around(example, &events)];
    let scale = scale(events)?;
    let (mut y, mut before) = (TOP, None::<Duration>);
    let place = |seen: &'_ Seen| {
        if let Some(before) = before {
            y += (scale * ms(seen.at.saturating_sub(before))).max(STEP);
        }
        before = Some(seen.at);
        y
    };
    let heights: Vec<f64> = events.iter().copied().map(place).collect();
    Some(events.iter().copied().zip(heights).map(|(seen, y)| Placed { seen, y }).collect())
}

/// Returns the events of the stall and those close to it: what is separated from it by another long
/// silence would only take up space.
fn around(example: &Example, events: &[&Seen]) -> std::ops::Range<usize> {
    let length = example.end.saturating_sub(example.begin);
    let far = |pair: &[&Seen]| pair[1].at.saturating_sub(pair[0].at) * 4 > length * 3;
    let (mut first, mut last) = (0, events.len());
    for (at, pair) in events.windows(2).enumerate() {
        if far(pair) && pair[1].at <= example.begin {
            first = at + 1;
        }
        if far(pair) && pair[0].at >= example.end {
            last = last.min(at + 1);
        }
    }
    first..last
}

/// Returns the units per millisecond that give the longest silence its height.
fn scale(events: &[&Seen]) -> Option<f64> {
    let between = events.windows(2).map(|pair| ms(pair[1].at.saturating_sub(pair[0].at)));
    let longest = between.fold(0.0, f64::max);
    (longest > 0.0).then(|| SILENCE / longest)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the milliseconds since the stall began; negative before it.
fn since(example: &Example, at: Duration) -> f64 {
    ms(at) - ms(example.begin)
}

/// Draws a mark for every so many milliseconds, where the drawing is to scale.
fn ruler(picture: &mut Picture, example: &Example, placed: &[Placed<'_>]) {
    for pair in placed.windows(2) {
        let (from, to) = (since(example, pair[0].seen.at), since(example, pair[1].seen.at));
        let height = pair[1].y - pair[0].y;
        if height < 3.0 * STEP {
            continue;
        }
        let each = tick((to - from) / height * 2.0 * STEP);
        let mut mark = (from / each).ceil() * each;
        while mark < to {
            let y = pair[0].y + (mark - from) / (to - from) * height;
            // Not over the times of the events themselves.
            if y - pair[0].y > 13.0 && pair[1].y - y > 13.0 {
                picture.line((TIMES + 4.0, y), (TIMES + 9.0, y), "tick");
                picture.text((TIMES, y + 3.5), Anchor::End, "ruler", &minus(format!("{mark:.0}")));
            }
            mark += each;
        }
        let ends = [pair[0].y, pair[1].y];
        picture.line((TIMES + 9.0, ends[0]), (TIMES + 9.0, ends[1]), "tick");
    }
}

/// Returns a round number of milliseconds, not below `least`.
fn tick(least: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if factor * power >= least {
                return factor * power;
            }
        }
        power *= 10.0;
    }
}

fn lanes(picture: &mut Picture, columns: &Columns, bottom: f64) {
    picture.text((TIMES, 18.0), Anchor::End, "ruler", "ms");
    for role in [Role::Client, Role::Server] {
        let x = columns.end(role);
        picture.line((x, 28.0), (x, bottom), "lane");
        picture.text((x, 18.0), Anchor::Middle, "end", words::role(role));
        if let Some(away) = columns.program {
            let x = x + Columns::outward(role) * away;
            picture.line((x, 38.0), (x, bottom), "lane program");
            picture.text((x, 33.0), Anchor::Middle, "ruler", "program");
        }
    }
}

/// Draws a bar at each end for as long as it held something.
fn holders(
    picture: &mut Picture,
    columns: &Columns,
    finding: &Finding,
    example: &Example,
    placed: &[Placed<'_>],
) {
    let mut bar = |role: Role, until: Duration, class: &str, title: &str| {
        let (top, bottom) = (height_at(placed, example.begin), height_at(placed, until));
        let size = (9.0, (bottom - top).max(0.0));
        picture.rect((columns.end(role) - 4.5, top), size, class, title);
    };
    if finding.kind == Kind::Application {
        bar(Role::Server, example.end, "busy", "the program's own time");
        return;
    }
    if let Some(role) = finding.bytes_held_by {
        bar(role, example.end, "bytes", "bytes were held here");
    }
    if finding.kind == Kind::ZeroWindow {
        let receiver = finding.bytes_held_by.map_or(Role::Server, Role::other);
        bar(receiver, example.end, "ack", "the window was shut here");
    }
    if let Some(role) = finding.ack_held_by {
        let acknowledges = |seen: &&Seen| {
            let ack = matches!(seen.what, What::Ack | What::Data);
            seen.by == role && ack && seen.at > example.begin && seen.at <= example.end
        };
        // The last of them released the bytes; earlier ones were for something else.
        let ack = placed.iter().map(|placed| placed.seen).rfind(acknowledges);
        bar(role, ack.map_or(example.end, |ack| ack.at), "ack", "the ACK was held here");
    }
}

/// Returns the height of a moment that need not be an event's.
fn height_at(placed: &[Placed<'_>], at: Duration) -> f64 {
    let after = placed.iter().position(|placed| placed.seen.at >= at);
    match after {
        None => placed.last().map_or(TOP, |last| last.y),
        Some(0) => placed[0].y,
        Some(after) => {
            let (above, below) = (&placed[after - 1], &placed[after]);
            let whole = ms(below.seen.at.saturating_sub(above.seen.at));
            let part = ms(at.saturating_sub(above.seen.at));
            above.y + (below.y - above.y) * if whole > 0.0 { part / whole } else { 0.0 }
        }
    }
}

/// Draws the band in which nothing moves, and says which end caused it.
fn silence(
    picture: &mut Picture,
    columns: &Columns,
    finding: &Finding,
    example: &Example,
    placed: &[Placed<'_>],
) {
    let during =
        |pair: &&[Placed<'_>]| pair[1].seen.at > example.begin && pair[0].seen.at < example.end;
    let intervals = placed.windows(2).filter(during);
    let longest = intervals.max_by(|a, b| (a[1].y - a[0].y).total_cmp(&(b[1].y - b[0].y)));
    let Some([above, below]) = longest else { return };
    let (top, bottom) = (above.y + 10.0, below.y - 17.0);
    if bottom - top < 60.0 {
        return;
    }
    let (x, width) = (columns.client + 14.0, columns.server - columns.client - 28.0);
    // TCP has lost no time here.
    let calm = if finding.kind == Kind::Application { " calm" } else { "" };
    picture.rect((x, top), (width, bottom - top), &format!("silence{calm}"), "");
    let centre = f64::midpoint(top, bottom);
    let why = why(finding, example);
    let first = centre - 7.0 * why.len() as f64;
    let length = words::time(example.end.saturating_sub(example.begin));
    picture.text((columns.middle(), first), Anchor::Middle, &format!("lost{calm}"), &length);
    for (index, line) in why.iter().enumerate() {
        let y = first + 17.0 + 14.0 * index as f64;
        picture.text((columns.middle(), y), Anchor::Middle, "why", line);
    }
}

fn why(finding: &Finding, example: &Example) -> Vec<String> {
    let octets = example.events.iter().find(|seen| {
        Some(seen.by) == finding.bytes_held_by
            && seen.at >= example.end
            && matches!(seen.what, What::Data | What::Again)
    });
    let held = octets.map_or("bytes".to_owned(), |seen| octets_of(seen.bytes));
    let mut lines = Vec::new();
    match (finding.kind, finding.bytes_held_by) {
        (Kind::Application, _) => lines.push("the program’s own time".to_owned()),
        (Kind::DelayedAck | Kind::QuickAckExhausted, Some(role)) => {
            lines.push(format!("{role} does not go on"));
        }
        (Kind::Retransmission, Some(role)) => lines.push(format!("{role} waits for an ACK")),
        (Kind::ZeroWindow, Some(role)) => {
            // No ACK is held: it arrives, and says that there is no room.
            let reader = role.other();
            return vec![format!("{reader} does not read"), format!("{role} must wait")];
        }
        (Kind::SenderQueue, Some(role)) => {
            lines.push("they wait in a queue".to_owned());
            lines.push(format!("of the {role}’s host"));
        }
        (Kind::CorkTimeout, Some(role)) => {
            lines.push(format!("{role} holds {held}"));
            lines.push("under a cork".to_owned());
        }
        (_, Some(role)) => lines.push(format!("{role} holds {held}")),
        (_, None) => {}
    }
    if let Some(role) = finding.ack_held_by {
        lines.push(format!("{role} holds the ACK"));
    }
    lines
}

fn octets_of(bytes: u32) -> String {
    words::count(u64::from(bytes), "octet")
}

fn event(picture: &mut Picture, columns: &Columns, placed: &[Placed<'_>], at: usize) {
    let Placed { seen, y } = placed[at];
    let (own, other) = (columns.end(seen.by), columns.end(seen.by.other()));
    let outward = Columns::outward(seen.by);
    let beside = |x: f64| (x + outward * 8.0, y + 4.0);
    let side = if outward < 0.0 { Anchor::End } else { Anchor::Start };
    let program = own + outward * columns.program.unwrap_or_default();
    match seen.what {
        What::Write => {
            picture.dot((program, y), 3.2, "call");
            picture.arrow(y, (program, own), "call");
            picture.text(beside(program), side, "event", &format!("write {}", seen.bytes));
        }
        What::Read => {
            picture.dot((program, y), 3.2, "call");
            let text =
                if seen.bytes == 0 { "waits".to_owned() } else { format!("read {}", seen.bytes) };
            picture.text(beside(program), side, "event", &text);
        }
        What::AckTimer => {
            picture.dot((own, y), 6.0, "timer");
            picture.line((own, y), (own, y - 4.0), "hand");
            picture.line((own, y), (own + 3.0, y), "hand");
            picture.text(beside(program), side, "event", "timer");
        }
        _ => {
            let class = class(placed, at);
            picture.arrow(y, (own, other), class);
            picture.text((columns.middle(), y - 4.5), Anchor::Middle, "segment", &label(seen));
        }
    }
}

/// Returns the style of a segment: by what it carries, which end sent it, and whether it was retransmitted.
fn class(placed: &[Placed<'_>], at: usize) -> &'static str {
    let seen = placed[at].seen;
    let again = |later: &Placed<'_>| {
        later.seen.what == What::Again
            && later.seen.by == seen.by
            && later.seen.offset == seen.offset
    };
    match (seen.what, seen.by) {
        (What::Data, _) if placed[at + 1..].iter().any(again) => "sent gone",
        (What::Again, _) => "sent again",
        (What::Data, Role::Client) => "sent client",
        (What::Data, Role::Server) => "sent server",
        (What::WindowShut | What::Reset, _) => "sent shut",
        _ => "sent bare",
    }
}

fn label(seen: &Seen) -> String {
    match seen.what {
        What::Data => octets_of(seen.bytes),
        What::Again => format!("{}, again", octets_of(seen.bytes)),
        What::Syn if seen.by == Role::Server => "SYN, ACK".to_owned(),
        What::Syn => "SYN".to_owned(),
        What::Ack => "ACK".to_owned(),
        What::WindowShut => "window 0".to_owned(),
        What::WindowOpen => "window open".to_owned(),
        What::Fin => "FIN".to_owned(),
        What::Reset => "RST".to_owned(),
        What::Write | What::Read | What::AckTimer => String::new(),
    }
}

fn time(picture: &mut Picture, example: &Example, placed: &Placed<'_>) {
    let since = since(example, placed.seen.at);
    let digits = match since.abs() {
        long if long >= 999.5 => 0,
        long if long >= 99.95 => 1,
        long if long >= 9.995 => 2,
        _ => 3,
    };
    let text = minus(format!("{since:.digits$}"));
    picture.text((TIMES, placed.y + 3.5), Anchor::End, "time", &text);
}

/// Returns a number with a sign as wide as its digits.
fn minus(number: String) -> String {
    number.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::samples;

    fn pictures() -> Vec<(Finding, String)> {
        let report = samples::every_kind();
        let findings = report.connections.into_iter().flat_map(|connection| connection.findings);
        findings
            .filter_map(|finding| {
                let picture = render(&finding, finding.examples.first()?)?;
                Some((finding, picture))
            })
            .collect()
    }

    #[test]
    fn every_stall_with_an_example_is_drawn_with_its_length() {
        let pictures = pictures();
        assert_eq!(pictures.len(), samples::KINDS.len() - 2);
        for (finding, picture) in pictures {
            let example = &finding.examples[0];
            let length = words::time(example.end - example.begin);
            assert!(picture.contains(&format!("\">{length}<")), "{picture}");
            let placed = place(example).unwrap();
            let segments =
                |placed: &&Placed<'_>| !matches!(placed.seen.what, What::Read | What::AckTimer);
            let arrows = placed.iter().filter(segments);
            assert_eq!(picture.matches(" point\"").count(), arrows.count(), "{picture}");
        }
    }

    #[test]
    fn time_runs_down_and_no_labels_collide() {
        for kind in samples::every_kind().connections.iter().flat_map(|c| &c.findings) {
            for example in &kind.examples {
                let placed = place(example).unwrap();
                assert!(placed.windows(2).all(|pair| pair[1].y - pair[0].y >= STEP));
            }
        }
    }

    #[test]
    fn long_intervals_are_to_scale() {
        let report = samples::every_kind();
        let findings = report.connections.iter().flat_map(|connection| &connection.findings);
        let quick = findings.clone().find(|f| f.kind == Kind::QuickAckExhausted).unwrap();
        let placed = place(&quick.examples[0]).unwrap();
        let long = placed.windows(2).filter(|pair| pair[1].y - pair[0].y > STEP + 0.01);
        let scales =
            long.map(|pair| (pair[1].y - pair[0].y) / ms(pair[1].seen.at - pair[0].seen.at));
        let scales: Vec<f64> = scales.collect();
        assert!(scales.len() >= 2);
        assert!(scales.iter().all(|scale| (scale / scales[0] - 1.0).abs() < 1e-6), "{scales:?}");
    }

    #[test]
    fn both_holders_are_named_and_have_their_bar() {
        let (_, picture) =
            pictures().into_iter().find(|(f, _)| f.kind == Kind::NagleDelayedAck).unwrap();
        for part in [">client holds 495 octets<", ">server holds the ACK<", "\"bytes\"", "\"ack\""]
        {
            assert!(picture.contains(part), "{part} in {picture}");
        }
    }

    #[test]
    fn the_silence_is_the_stall_and_not_what_came_later() {
        let report = samples::every_kind();
        let findings = report.connections.iter().flat_map(|connection| &connection.findings);
        let quick = findings.clone().find(|f| f.kind == Kind::QuickAckExhausted).unwrap();
        let example = &quick.examples[0];
        let picture = render(quick, example).unwrap();
        let band = picture.split("class=\"silence\"").next().unwrap();
        let top = band.rsplit("<rect ").next().unwrap().split("y=\"").nth(1).unwrap();
        let top: f64 = top.split('"').next().unwrap().parse().unwrap();
        let placed = place(example).unwrap();
        let within = height_at(&placed, example.begin)..height_at(&placed, example.end);
        assert!(within.contains(&top), "{top} in {within:?}");
    }

    #[test]
    fn another_long_silence_before_or_after_is_left_out() {
        let report = samples::every_kind();
        let findings = report.connections.iter().flat_map(|connection| &connection.findings);
        let cork = findings.clone().find(|f| f.kind == Kind::CorkTimeout).unwrap();
        let mut example = cork.examples[0].clone();
        let whole = place(&example).unwrap().len();
        let mut early = example.events[0].clone();
        for seen in &mut example.events {
            seen.at += Duration::from_millis(300);
        }
        example.begin += Duration::from_millis(300);
        example.end += Duration::from_millis(300);
        early.at = Duration::from_millis(1);
        example.events.insert(0, early);
        let mut late = example.events[whole].clone();
        late.at += Duration::from_secs(3);
        example.events.push(late);
        assert_eq!(place(&example).unwrap().len(), whole);
    }

    #[test]
    fn what_was_sent_again_was_lost_before() {
        let (_, picture) =
            pictures().into_iter().find(|(f, _)| f.kind == Kind::Retransmission).unwrap();
        assert_eq!(picture.matches("\"sent gone\"").count(), 1);
        assert_eq!(picture.matches("\"sent again\"").count(), 1);
    }

    #[test]
    fn odd_examples_are_no_trouble() {
        let (mut finding, _) = pictures().swap_remove(0);
        let mut example = finding.examples.swap_remove(0);
        example.events.truncate(1);
        assert!(render(&finding, &example).is_none());
        example.events.clear();
        assert!(render(&finding, &example).is_none());
    }

    #[test]
    fn ruler_marks_are_round() {
        for (least, round) in [(0.7, 1.0), (1.2, 2.0), (9.0, 10.0), (11.0, 20.0), (43.0, 50.0)] {
            assert_eq!(tick(least), round);
        }
    }
}
