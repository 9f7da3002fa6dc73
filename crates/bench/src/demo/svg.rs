//! Generation of SVG and HTML with correct escaping.

use std::fmt::{self, Write};

/// An SVG picture under construction, in user units of a fixed width.
pub(crate) struct Svg {
    body: String,
    width: f64,
}

impl Svg {
    /// Creates an empty picture.
    pub(crate) fn new(width: f64) -> Self {
        Self { body: String::new(), width }
    }

    /// Appends elements.
    pub(crate) fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), (class, anchor): (&str, Anchor), text: &str) {
        let anchor = anchor.name();
        let text = escape(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// Adds a straight line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="{class}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    /// Adds a straight line with an arrowhead.
    pub(crate) fn arrow(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        const LENGTH: f64 = 7.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length, dy / length);
        let base = (to.0 - ux * LENGTH, to.1 - uy * LENGTH);
        let side = (-uy * LENGTH * 0.45, ux * LENGTH * 0.45);
        self.line(from, base, class);
        self.add(format_args!(
            r#"<path d="M{:.1} {:.1} L{:.1} {:.1} L{:.1} {:.1} Z" class="{class} head"/>"#,
            to.0,
            to.1,
            base.0 + side.0,
            base.1 + side.1,
            base.0 - side.0,
            base.1 - side.1
        ));
    }

    /// Returns the finished picture; `title` is for screen readers.
    pub(crate) fn finish(self, height: f64, title: &str) -> String {
        let (width, title, body) = (self.width, escape(title), self.body);
        format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
             {body}</svg>\n"
        )
    }
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// At its beginning.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Escapes `text` so that nothing in it is HTML markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_stays_text() {
        let mut svg = Svg::new(100.0);
        svg.text((1.0, 2.0), ("name", Anchor::Start), "<b> & \"c\"");
        let svg = svg.finish(10.0, "a < b");
        assert!(svg.contains("&lt;b&gt; &amp; &quot;c&quot;"));
        assert!(svg.contains("aria-label=\"a &lt; b\""));
    }
}
