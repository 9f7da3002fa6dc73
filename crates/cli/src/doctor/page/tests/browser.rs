//! The page in a real browser: it is drawn, logs no error, and makes no request.
//!
//! UNCORK_DOCTOR_PAGES=DIRECTORY keeps the pages there, for inspection.

use std::path::Path;

use super::all;
use crate::page::browser::Browser;

#[test]
fn a_browser_draws_every_page_in_silence_and_nothing_leaves_it() {
    let Some(browser) = Browser::new() else { return };
    for (name, page) in all() {
        if let Some(kept) = std::env::var_os("UNCORK_DOCTOR_PAGES") {
            std::fs::write(Path::new(&kept).join(format!("{name}.html")), &page).unwrap();
        }
        let opened = browser.open(name, &page);
        let drawn = page.matches("<svg ").count();
        assert_eq!(opened.document.matches("<svg ").count(), drawn, "{name}");
        assert!(opened.document.contains("</footer>"), "{name}");
        assert!(!opened.log.contains("CONSOLE"), "{name}: {}", opened.log);
        assert!(opened.requests.is_empty(), "{name}: {:?}", opened.requests);
    }
}
