//! The page: one self-contained HTML file.

use std::fmt::Write;

use uncork_lab::nodelay::{Asks, Cut, Measured, Who};

use super::Demo;
use super::chart::{self, Scale};
use super::panel::{Panel, STALLED_PACKETS, TWO_CORES_SHARE, class, packets_of};
use super::sequence;
use super::svg::escape;
use super::tables::{count, speed, time};
use crate::outcome::thousands;

const STYLE: &str = include_str!("style.css");

/// Renders the whole page.
pub(crate) fn render(demo: &Demo) -> String {
    let mut body = String::new();
    header(&mut body, demo);
    charts(&mut body, demo);
    sequences(&mut body, demo);
    for panel in &demo.panels {
        table(&mut body, panel);
    }
    repeat(&mut body, demo);
    machine(&mut body, demo);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Small writes, without and with uncork</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Appends to the page; writing into a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, $($arg)*);
    }};
}

fn header(out: &mut String, demo: &Demo) {
    put!(out, "<header>\n<h1>Small writes, without and with uncork</h1>");
    put!(
        out,
        "<p class=\"soft\">A client sends logical packets made of several writes of 2 bytes and \
         waits for a reply of 2 bytes after each: the published experiment of \
         <code>tcp_nodelay_client</code> and <code>tcp_nodelay_server</code>, run on this machine \
         over loopback, client and server on one core. The program is the same in every row; \
         <code>uncork run</code> only starts it.</p>"
    );
    put!(out, "<div class=\"figures\">");
    for headline in headlines(demo) {
        put!(
            out,
            "<div class=\"card figure\"><b class=\"good\">{}</b><span class=\"what\">{}</span>\
             <span class=\"from\">{}</span></div>",
            escape(&headline.figure),
            escape(&headline.what),
            escape(&headline.from)
        );
    }
    put!(out, "</div>\n</header>");
}

/// One of the large figures.
struct Headline {
    figure: String,
    what: String,
    from: String,
}

fn headlines(demo: &Demo) -> Vec<Headline> {
    let mut all = Vec::new();
    let fewest = demo.panels.first();
    let most = demo.panels.last();
    if let Some(h) = fewest.and_then(|p| faster(p, (Who::User, Asks::Nothing), Asks::Nothing)) {
        all.push(h);
    }
    if let Some(h) = most.and_then(|p| faster(p, (Who::User, Asks::Nodelay), Asks::Nodelay)) {
        all.push(h);
    }
    if let Some(h) = most.and_then(segments) {
        all.push(h);
    }
    if let Some(h) = most.and_then(limit) {
        all.push(h);
    }
    all
}

fn option(asks: Asks) -> &'static str {
    match asks {
        Asks::Nothing => "a client without options",
        Asks::Nodelay => "a client with TCP_NODELAY",
        Asks::Cork => "a client with TCP_CORK",
        Asks::More => "a client with MSG_MORE",
    }
}

fn faster(panel: &Panel, (who, asks): (Who, Asks), than: Asks) -> Option<Headline> {
    let row = panel.row(who, asks, Cut::Buffers)?;
    let other = panel.row(Who::Alone, than, Cut::Buffers)?;
    let times = panel.speed_against(row, than)?;
    Some(Headline {
        figure: speed(Some(times)),
        what: format!("faster: {}", option(asks)),
        from: format!(
            "{} → {} a packet of {} writes, {}",
            time(other.one_core.us_per_packet),
            time(row.one_core.us_per_packet),
            panel.buffers,
            who.heading()
        ),
    })
}

fn segments(panel: &Panel) -> Option<Headline> {
    let row = panel.row(Who::Kernel, Asks::Nodelay, Cut::Buffers)?;
    let other = panel.row(Who::Alone, Asks::Nodelay, Cut::Buffers)?;
    Some(Headline {
        figure: format!(
            "{} → {}",
            count(other.one_core.segments_per_packet),
            count(row.one_core.segments_per_packet)
        ),
        what: "segments a packet".to_owned(),
        from: format!(
            "{}, TCP_NODELAY; the server received it in {} read{} instead of {}",
            Who::Kernel.heading(),
            count(row.one_core.reads_per_packet),
            if count(row.one_core.reads_per_packet) == "1" { "" } else { "s" },
            count(other.one_core.reads_per_packet)
        ),
    })
}

fn limit(panel: &Panel) -> Option<Headline> {
    let row = panel.row(Who::User, Asks::Nodelay, Cut::Buffers)?;
    let best = panel.row(Who::Alone, Asks::Nothing, Cut::Single)?;
    let cork = panel.row(Who::Alone, Asks::Cork, Cut::Buffers)?;
    Some(Headline {
        figure: speed(Some(row.one_core.us_per_packet / best.one_core.us_per_packet)),
        what: "the time of a single write".to_owned(),
        from: format!(
            "{} for {} writes, {} for one; the program’s own TCP_CORK needs {}",
            time(row.one_core.us_per_packet),
            panel.buffers,
            time(best.one_core.us_per_packet),
            time(cork.one_core.us_per_packet)
        ),
    })
}

fn charts(out: &mut String, demo: &Demo) {
    let scale = Scale::of(&demo.panels);
    put!(out, "<section>\n<h2>Time of a logical packet</h2>");
    put!(
        out,
        "<p class=\"soft\">Logarithmic scale: each line is ten times the one before it. Shorter is \
         better.</p>\n<div class=\"two\">"
    );
    for panel in &demo.panels {
        put!(out, "<div class=\"card\">\n<h3>{} writes of 2 bytes</h3>", panel.buffers);
        put!(out, "{}</div>", chart::render(panel, scale));
    }
    put!(out, "</div>\n</section>");
}

fn sequences(out: &mut String, demo: &Demo) {
    put!(out, "<section>\n<h2>What happens within one packet</h2>");
    put!(
        out,
        "<p class=\"soft\">Recorded just now: a packet of 5 writes, each call timed at both ends, \
         the typical one of a run, on a core each where there are two. Time runs down; the times \
         are real, the distances are compressed. Segments are counted by the kernel over the \
         whole run.</p>\n<div class=\"three\">"
    );
    for timeline in &demo.timelines {
        let subject = timeline.subject;
        put!(out, "<div class=\"card\">\n<h3>{}</h3>", escape(sequence::caption(subject)));
        put!(out, "{}", sequence::render(timeline));
        let explanation = escape(sequence::explanation(subject));
        put!(out, "<p class=\"soft small\">{explanation}</p>\n</div>");
    }
    put!(out, "</div>\n</section>");
}

const COLUMNS: [&str; 8] = [
    "",
    "time<br>a packet",
    "against<br>no option",
    "against<br>TCP_NODELAY",
    "writes<br>a packet",
    "segments<br>a packet",
    "server’s buffers<br>a packet",
    "time, on<br>a core each",
];

fn table(out: &mut String, panel: &Panel) {
    put!(
        out,
        "<section>\n<h2>{} writes a packet, in figures</h2>\n<div class=\"card scroll\">\n<table>",
        panel.buffers
    );
    put!(out, "<thead><tr><th>{}</th></tr></thead>\n<tbody>", COLUMNS.join("</th><th>"));
    for who in Who::ALL {
        let columns = COLUMNS.len();
        put!(out, "<tr class=\"group\"><td colspan=\"{columns}\">{}</td></tr>", who.heading());
        for row in panel.rows.iter().filter(|row| row.setting.who == who) {
            put!(out, "{}", table_row(panel, row));
        }
    }
    put!(out, "</tbody>\n</table>\n</div>\n</section>");
}

fn table_row(panel: &Panel, row: &Measured) -> String {
    let class = class(&row.setting);
    let cells = [
        time(row.one_core.us_per_packet),
        speed(panel.speed_against(row, Asks::Nothing)),
        speed(panel.speed_against(row, Asks::Nodelay)),
        count(row.one_core.writes_per_packet),
        count(row.one_core.segments_per_packet),
        count(row.one_core.reads_per_packet),
        row.two_cores.map(|two| time(two.us_per_packet)).unwrap_or_default(),
    ];
    format!(
        "<tr><td><span class=\"dot {class}\"></span>{}</td><td>{}</td></tr>",
        escape(&row.setting.name()),
        cells.map(|cell| escape(&cell)).join("</td><td>")
    )
}

fn repeat(out: &mut String, demo: &Demo) {
    put!(out, "<section>\n<h2>Repeat it</h2>");
    put!(
        out,
        "<p class=\"soft\">This page: <code>make demo</code>. One row by hand, the server in one \
         terminal and a client in another (put <code>taskset -c 0</code> before both to have them \
         on one core):</p>"
    );
    for panel in &demo.panels {
        let mut lines =
            vec![format!("tcp_nodelay_server --buffers={} 5001 {}", panel.buffers, demo.packets)];
        let command = |row: &Measured| row.setting.command(packets_of(&row.setting, demo.packets));
        lines.extend(panel.rows.iter().map(command));
        put!(out, "<pre>{}</pre>", escape(&lines.join("\n")));
    }
    put!(out, "</section>");
}

fn machine(out: &mut String, demo: &Demo) {
    let machine = &demo.machine;
    let kind = if machine.virtual_machine { "virtual" } else { "physical, as far as it tells" };
    put!(out, "<section>\n<h2>Measured on</h2>\n<div class=\"card\">\n<dl>");
    let facts = [
        ("Kernel", format!("{}, {}", machine.kernel, machine.architecture)),
        ("Processor", machine.processor.clone()),
        ("Cores", format!("{} ({kind})", machine.cores)),
        ("Load before", machine.load.clone()),
        ("uncork", machine.version.to_owned()),
        (
            "Runs",
            format!(
                "{} packets each ({STALLED_PACKETS} where each stalls), interleaved, medians; on a \
                 core each {}",
                thousands(demo.packets as f64),
                thousands((demo.packets / TWO_CORES_SHARE) as f64)
            ),
        ),
    ];
    for (name, fact) in facts {
        put!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&fact));
    }
    put!(out, "</dl>\n</div>\n</section>");
    put!(
        out,
        "<footer>Times drift with the machine; ratios within one run hold. On two cores the \
         wake-up of an idle core hides most of what the writes cost, which is why the first \
         columns are measured on one.</footer>"
    );
}

#[cfg(test)]
mod tests {
    use uncork_lab::nodelay::Figures;

    use super::*;
    use crate::demo::panel::shown;
    use crate::demo::timeline::{Subject, Timeline};
    use crate::machine::Machine;

    fn demo() -> Demo {
        let rows = |buffers| {
            let measured = |(index, setting)| Measured {
                setting,
                one_core: Figures {
                    us_per_packet: 5.0 * (index as f64 + 1.0),
                    bytes_per_ms: 100.0,
                    writes_per_packet: f64::from(buffers),
                    segments_per_packet: 1.0,
                    reads_per_packet: 1.0,
                },
                two_cores: None,
                two_cores_spinning: None,
                published: None,
            };
            shown(buffers).into_iter().enumerate().map(measured).collect()
        };
        let panel = |buffers| Panel { buffers, rows: rows(buffers) };
        let timeline = Timeline {
            subject: Subject::Uncork,
            writes: vec![0.0, 1.0, 2.0, 3.0, 4.0],
            reads: vec![(9.0, 10)],
            answered: 10.0,
            replied: 15.0,
            segments: 1.0,
        };
        let panels = vec![panel(15), panel(100)];
        Demo { machine: Machine::read(), panels, timelines: vec![timeline], packets: 10_000 }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = render(&demo());
        for outside in ["http://", "https://", "src=", "href=", "@import", "url(", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_element_is_closed() {
        let page = render(&demo());
        for element in ["div", "section", "table", "tr", "td", "svg", "pre", "p", "h3", "dl"] {
            let open = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            assert_eq!(open, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn every_row_stands_in_chart_table_and_commands() {
        let page = render(&demo());
        assert_eq!(page.matches("<tr><td>").count(), 22);
        assert_eq!(page.matches("class=\"bar ").count(), 22);
        assert_eq!(page.matches("tcp_nodelay_client --").count(), 22);
    }
}
