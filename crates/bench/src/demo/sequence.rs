//! The sequence diagram of one recorded logical packet: time runs downwards, gaps are compressed.

use super::svg::{Anchor, Svg};
use super::tables::{count, time};
use super::timeline::{Subject, Timeline, WRITES};

const WIDTH: f64 = 352.0;
const CLIENT: f64 = 117.0;
const SERVER: f64 = 235.0;
const TOP: f64 = 50.0;
/// Least distance of two events, so that their labels can be read.
const STEP: f64 = 16.0;
/// A gap longer than this is a stall.
const STALL_US: f64 = 5_000.0;
/// Room for the text about a stall.
const STALL_ROOM: f64 = 42.0;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Write(usize),
    Read(usize),
    Answer,
    Reply,
}

/// An event, its time, and its height in the drawing.
struct Event {
    what: What,
    us: f64,
    y: f64,
}

/// Draws the diagram.
pub(crate) fn render(timeline: &Timeline) -> String {
    let events = place(timeline);
    let bottom = events.last().map_or(TOP, |event| event.y) + 18.0;
    let mut svg = Svg::new(WIDTH);
    stall(&mut svg, timeline, &events);
    lane(&mut svg, (CLIENT, "client"), bottom);
    lane(&mut svg, (SERVER, "server"), bottom);
    data(&mut svg, timeline, &events);
    reply(&mut svg, &events);
    labels(&mut svg, timeline, &events);
    svg.text((WIDTH / 2.0, bottom + 24.0), ("total", Anchor::Middle), &total(timeline));
    svg.finish(bottom + 34.0, caption(timeline.subject))
}

/// Returns what the diagram shows, in one line.
pub(crate) fn caption(subject: Subject) -> &'static str {
    match subject {
        Subject::Nothing => "No option",
        Subject::Nodelay => "TCP_NODELAY",
        Subject::Uncork => "No option, under uncork run",
    }
}

/// Explains the diagram.
pub(crate) fn explanation(subject: Subject) -> &'static str {
    match subject {
        Subject::Nothing => {
            "The first write leaves at once. The client’s kernel keeps the rest until that is \
             acknowledged (Nagle); the server’s kernel keeps the acknowledgement until it has \
             something to send with it (delayed ACK). Both wait."
        }
        Subject::Nodelay => {
            "Nobody waits, but every write is a segment of its own, with its own headers, its \
             own way through both kernels and its own wake-up of the server."
        }
        Subject::Uncork => {
            "The same program as on the first picture. Its writes are held until it turns to \
             read the reply; then all leave in one segment, at once."
        }
    }
}

fn total(timeline: &Timeline) -> String {
    let segments = count(timeline.segments);
    let plural = if segments == "1" { "" } else { "s" };
    format!("{} · {WRITES} writes, {segments} segment{plural}", time(timeline.replied))
}

/// Places all events in order, each as far below the one before as the time between them, compressed.
fn place(timeline: &Timeline) -> Vec<Event> {
    let writes = timeline.writes.iter().enumerate().map(|(index, &us)| (What::Write(index), us));
    let reads = timeline.reads.iter().enumerate().map(|(index, &(us, _))| (What::Read(index), us));
    let ends = [(What::Answer, timeline.answered), (What::Reply, timeline.replied)];
    let mut events: Vec<Event> =
        writes.chain(reads).chain(ends).map(|(what, us)| Event { what, us, y: 0.0 }).collect();
    events.sort_by(|a, b| a.us.total_cmp(&b.us));
    let (mut y, mut before) = (TOP, 0.0);
    for event in &mut events {
        let gap = (event.us - before).max(0.0);
        y += STEP + 9.0 * (1.0 + gap).log10();
        y += if gap > STALL_US { STALL_ROOM } else { 0.0 };
        before = event.us;
        event.y = y;
    }
    events
}

fn y_of(events: &[Event], what: What) -> f64 {
    events.iter().find(|event| event.what == what).map_or(TOP, |event| event.y)
}

fn lane(svg: &mut Svg, (x, name): (f64, &str), bottom: f64) {
    svg.line((x, 30.0), (x, bottom), "lane");
    svg.add(format_args!(
        r#"<rect x="{:.1}" y="4" width="76" height="26" rx="5" class="end"/>"#,
        x - 38.0
    ));
    svg.text((x, 22.0), ("endname", Anchor::Middle), name);
}

/// Draws the band in which nothing moves.
fn stall(svg: &mut Svg, timeline: &Timeline, events: &[Event]) {
    let gap = events.windows(2).find(|pair| pair[1].us - pair[0].us > STALL_US);
    let Some([from, to]) = gap else { return };
    // Room below for the arrow of what arrives at last.
    let (top, height) = (from.y + 9.0, to.y - from.y - 42.0);
    svg.add(format_args!(
        r#"<rect x="{:.1}" y="{top:.1}" width="{:.1}" height="{height:.1}" rx="4" class="stall"/>"#,
        CLIENT + 8.0,
        SERVER - CLIENT - 16.0
    ));
    let middle = (CLIENT + SERVER) / 2.0;
    let centre = top + height / 2.0;
    let label = time(to.us - from.us);
    let why = timeline.subject == Subject::Nothing;
    let up = if why { 3.0 } else { -4.0 };
    svg.text((middle, centre - up), ("stalltext", Anchor::Middle), &label);
    if why {
        svg.text((middle, centre + 13.0), ("stallwhy", Anchor::Middle), "both ends wait");
    }
}

/// Draws the path of the data: an arrow for each write if each was a segment, otherwise one for all
/// writes that arrived together, from the last of them.
fn data(svg: &mut Svg, timeline: &Timeline, events: &[Event]) {
    let each = timeline.segments > WRITES as f64 - 0.5;
    for (index, &(_, bytes)) in timeline.reads.iter().enumerate() {
        let writes: Vec<usize> =
            (0..timeline.writes.len()).filter(|&w| timeline.read_of(w) == Some(index)).collect();
        let (Some(&first), Some(&last)) = (writes.first(), writes.last()) else { continue };
        let to = (SERVER, y_of(events, What::Read(index)));
        if each {
            for write in writes {
                svg.arrow((CLIENT, y_of(events, What::Write(write))), to, "data");
            }
            continue;
        }
        let top = y_of(events, What::Write(first));
        let mut from = y_of(events, What::Write(last));
        let waited = timeline.reads[index].0 - timeline.writes[last] > STALL_US;
        if waited {
            from = to.1 - 12.0;
        }
        if last > first || waited {
            svg.add(format_args!(
                r#"<rect x="{:.1}" y="{:.1}" width="7" height="{:.1}" rx="3.5" class="held"/>"#,
                CLIENT - 3.5,
                top - 3.5,
                from - top + 7.0
            ));
        }
        svg.arrow((CLIENT, from), to, "data");
        let middle = ((CLIENT + SERVER) / 2.0, f64::midpoint(from, to.1) - 6.0);
        svg.text(middle, ("bytes", Anchor::Middle), &format!("{bytes} bytes"));
    }
}

fn reply(svg: &mut Svg, events: &[Event]) {
    let from = (SERVER, y_of(events, What::Answer));
    let to = (CLIENT, y_of(events, What::Reply));
    svg.arrow(from, to, "reply");
    let middle = ((CLIENT + SERVER) / 2.0, f64::midpoint(from.1, to.1) - 6.0);
    svg.text(middle, ("bytes", Anchor::Middle), "reply");
}

fn labels(svg: &mut Svg, timeline: &Timeline, events: &[Event]) {
    for event in events {
        let (client, label) = match event.what {
            What::Write(index) => (true, format!("write {}", index + 1)),
            What::Reply => (true, "reply".to_owned()),
            What::Read(index) => (false, format!("read {} B", timeline.reads[index].1)),
            What::Answer => (false, "reply".to_owned()),
        };
        let y = event.y;
        let x = if client { CLIENT } else { SERVER };
        svg.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" class="event"/>"#));
        let (x, anchor) =
            if client { (CLIENT - 10.0, Anchor::End) } else { (SERVER + 10.0, Anchor::Start) };
        svg.text((x, y + 4.0), ("what", anchor), &format!("{label} · {}", clock(event.us)));
    }
}

/// Formats the time since the first write, briefly.
fn clock(us: f64) -> String {
    match us {
        us if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        us if us >= 10.0 => format!("{us:.0} µs"),
        us => format!("{us:.1} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled() -> Timeline {
        Timeline {
            subject: Subject::Nothing,
            writes: vec![0.0, 6.0, 6.4, 6.8, 7.2],
            reads: vec![(40.0, 2), (44_000.0, 8)],
            answered: 44_001.0,
            replied: 44_030.0,
            segments: 2.0,
        }
    }

    #[test]
    fn time_runs_down_and_no_labels_collide() {
        let events = place(&stalled());
        assert_eq!(events.len(), 9);
        assert!(events.windows(2).all(|pair| pair[1].y - pair[0].y >= STEP));
        assert_eq!(events.last().unwrap().what, What::Reply);
    }

    #[test]
    fn a_stall_is_drawn_and_named() {
        let svg = render(&stalled());
        assert!(svg.contains("class=\"stall\""));
        assert!(svg.contains(">44.0 ms<"), "{svg}");
        assert!(svg.contains("44.0 ms · 5 writes, 2 segments"));
        assert_eq!(svg.matches("class=\"data head\"").count(), 2);
    }

    #[test]
    fn without_a_stall_none_is_drawn_and_each_segment_has_its_arrow() {
        let quick = Timeline {
            subject: Subject::Nodelay,
            reads: vec![(9.0, 4), (12.0, 6)],
            answered: 13.0,
            replied: 20.0,
            segments: 5.0,
            ..stalled()
        };
        let svg = render(&quick);
        assert!(!svg.contains("class=\"stall\""));
        assert_eq!(svg.matches("class=\"data head\"").count(), 5);
    }
}
