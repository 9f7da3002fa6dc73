//! Self-contained pages of HTML: no script, no font, no picture but those in them.

pub(crate) mod broad;
#[cfg(test)]
pub(crate) mod browser;
pub(crate) mod svg;

use svg::escape;

/// The style of a page: light and dark, wide and narrow, and on paper.
const STYLE: &str = include_str!("style.css");

/// Returns the whole page. Its own policy keeps a browser from following anything in the body.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title),
    )
}
