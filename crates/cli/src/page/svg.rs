//! SVG pictures, and the escaping of text.

use crate::output::shown;

/// Appends a line; writing into a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = writeln!($out, $($arg)*);
    }};
}
pub(crate) use put;

/// Escapes `text` so that nothing in it is markup for HTML, or a control sequence for a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

/// The anchor of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture of a given width, scaled to where it is placed.
pub(crate) struct Picture {
    width: f64,
    elements: String,
}

impl Picture {
    pub(crate) fn new(width: f64) -> Self {
        Self { width, elements: String::new() }
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        put!(
            self.elements,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{}</text>"#,
            escape(text)
        );
    }

    pub(crate) fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), class: &str) {
        put!(
            self.elements,
            r#"<line x1="{x:.1}" y1="{y:.1}" x2="{to_x:.1}" y2="{to_y:.1}" class="{class}"/>"#
        );
    }

    /// Draws a rectangle with the tooltip `title`.
    pub(crate) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        class: &str,
        title: &str,
    ) {
        let title = match title {
            "" => String::new(),
            title => format!("<title>{}</title>", escape(title)),
        };
        put!(
            self.elements,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2" class="{class}">{title}</rect>"#
        );
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        put!(self.elements, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" class="{class}"/>"#);
    }

    /// Draws a horizontal line with an arrowhead.
    pub(crate) fn arrow(&mut self, y: f64, (from, to): (f64, f64), class: &str) {
        let back = if to > from { -8.0 } else { 8.0 };
        self.line((from, y), (to + back * 0.8, y), class);
        let base = to + back;
        put!(
            self.elements,
            r#"<path d="M{to:.1} {y:.1}L{base:.1} {:.1}V{:.1}Z" class="{class} point"/>"#,
            y - 3.6,
            y + 3.6
        );
    }

    /// Returns the picture; `told` is its description for screen readers.
    pub(crate) fn finish(self, height: f64, told: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width,
            escape(told),
            self.elements
        )
    }
}
