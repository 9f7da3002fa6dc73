//! What `uncork lab kernels` measured, as a page with plots.

use uncork_lab::kernels::Accelerator;

use super::kernels::{Found, HEADINGS, Row, found, has};
use super::quickack::plot;
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
    put!(body, "<section>\n<div class=\"card scroll\">\n<table>\n<thead><tr><th>kernel</th>");
    put!(body, "<th>release</th>");
    for heading in HEADINGS {
        put!(body, "<th>{heading}</th>");
    }
    put!(body, "<th>059217c18be6</th><th>4720852ed9af</th></tr></thead>\n<tbody>");
    for row in rows {
        line(&mut body, row);
    }
    put!(body, "</tbody>\n</table>\n</div>\n</section>");
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

fn line(body: &mut String, row: &Row) {
    put!(body, "<tr><td>{}</td>", escape(&row.name()));
    if let (Some(shown), Some(both)) = (row.shown(), row.corrections()) {
        put!(body, "<td>{}</td>", escape(&shown.identity.release));
        for pattern in row.patterns() {
            put!(body, "<td>{pattern}</td>");
        }
        let (measured, version) = (both.measured, both.by_version);
        put!(body, "<td>{}</td>", has(measured.credit_counting, version.credit_counting));
        put!(body, "<td>{}</td></tr>", has(measured.mss_boundary, version.mss_boundary));
    } else {
        let columns = HEADINGS.len() + 3;
        let why = row.error().map_or("", |error| &error.sentence);
        put!(body, "<td colspan=\"{columns}\">did not come up: {}</td></tr>", escape(why));
    }
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
