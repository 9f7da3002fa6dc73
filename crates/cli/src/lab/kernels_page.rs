//! The measurements of `uncork lab kernels`, as a page with plots.

use uncork_lab::kernels::Accelerator;

use super::kernels::{COMMITS, Found, HEADINGS, Row, figures, found};
use super::quickack::plot;
use crate::page::broad::broad_words;
use crate::page::document;
use crate::page::svg::{escape, put};

pub(super) fn render(rows: &[Row], result: Option<&Found>) -> String {
    let mut body = String::new();
    put!(
        body,
        "<header>\n<p class=\"brand\">uncork lab kernels</p>\n<h1>When kernels \
         acknowledge</h1>\n</header>"
    );
    if let Some(result) = result {
        put!(body, "<p class=\"prose\">{}</p>", escape(&found(result)));
    }
    let columns: Vec<&str> = std::iter::once("release").chain(HEADINGS).chain(COMMITS).collect();
    let cells = |row: &Row| std::iter::once(row.name()).chain(figures(row)).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    put!(body, "<section>");
    broad_words(&mut body, "kernel", &columns, &cells);
    for row in rows {
        if let Some(error) = row.error() {
            let why = escape(&error.sentence);
            put!(body, "<p class=\"prose\">{} did not come up: {why}</p>", escape(&row.name()));
        }
    }
    put!(body, "</section>");
    for row in rows {
        plots(&mut body, row);
    }
    put!(
        body,
        "<footer><p>Made by <code>uncork lab kernels</code>, version {}. Server and client talk over \
         the loopback device of each kernel.</p></footer>",
        env!("CARGO_PKG_VERSION")
    );
    document("uncork lab kernels", &body)
}

fn plots(body: &mut String, row: &Row) {
    let Some(shown) = row.shown() else { return };
    put!(body, "<section>\n<h2>{}</h2>", escape(&row.name()));
    let (release, version) = (&shown.identity.release, &shown.identity.version);
    let how = match shown.accelerator {
        None => "",
        Some(Accelerator::Kvm) => ", in a virtual machine",
        Some(Accelerator::Emulation) => {
            ", emulated: its clock counts instructions, so that delays of less than a millisecond mean \
             little"
        }
    };
    put!(body, "<p class=\"prose\">Linux {} {}{how}</p>", escape(release), escape(version));
    put!(body, "<div class=\"pair\">");
    for told in &shown.runs {
        let name = escape(told.run.name);
        put!(body, "<figure class=\"card\">\n<h3>{name}</h3>\n{}", plot(told));
        put!(
            body,
            "<figcaption>ACK delay by segment number: {}.</figcaption>\n</figure>",
            escape(&told.sentence)
        );
    }
    put!(body, "</div>\n</section>");
}
