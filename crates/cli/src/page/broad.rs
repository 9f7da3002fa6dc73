//! Tables with many columns, which do not fit on a narrow screen.

use super::svg::{escape, put};

/// Appends a table with a heading. Where there is room for it, it is a table; where there is not, each row
/// stands alone, with every figure below the name of its column.
pub(crate) fn broad(out: &mut String, heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    table(out, "broad", (heading, columns), rows);
}

/// Appends such a table with words for figures, which are left-aligned and may be broken between them.
pub(crate) fn broad_words(out: &mut String, heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    table(out, "broad words", (heading, columns), rows);
}

fn table(out: &mut String, class: &str, (heading, columns): (&str, &[&str]), rows: &[Vec<String>]) {
    put!(out, "<div class=\"card\">\n<table class=\"{class}\">");
    put!(out, "<thead><tr><th>{}</th>", escape(heading));
    for column in columns {
        put!(out, "<th>{}</th>", escape(column));
    }
    put!(out, "</tr></thead>\n<tbody>");
    for row in rows {
        let (name, figures) = row.split_first().map_or(("", &[][..]), |(name, all)| (name, all));
        put!(out, "<tr><td>{}</td>", escape(name));
        for (column, figure) in columns.iter().zip(figures) {
            put!(out, "<td data-name=\"{}\">{}</td>", escape(column), escape(figure));
        }
        put!(out, "</tr>");
    }
    put!(out, "</tbody>\n</table>\n</div>");
}
