//! The pages of the lab in a real browser: on a wide, a medium and a narrow screen nothing is cut off, no
//! texts overlap and no line crosses one.
//!
//! UNCORK_LAB_PAGES=DIRECTORY keeps the pages there, for inspection.

use std::path::Path;

use uncork_lab::nodelay::Plan;

use super::{kernels_page, nodelay, page, quickack, samples};
use crate::page::browser::Browser;

fn all() -> [(&'static str, String); 4] {
    let kernel = "6.18.44";
    [
        ("tsq", page::render(&samples::tsq(), kernel)),
        ("nodelay", nodelay::page::render(&samples::nodelay(), &Plan::new(false), kernel)),
        ("quickack", quickack::render(&samples::quickack(), kernel)),
        ("kernels", kernels_page::render(&samples::kernels(), None)),
    ]
}

#[test]
fn nothing_is_cut_off_or_written_over_however_wide_the_screen_is() {
    let Some(browser) = Browser::new() else { return };
    for (name, page) in all() {
        if let Some(kept) = std::env::var_os("UNCORK_LAB_PAGES") {
            std::fs::write(Path::new(&kept).join(format!("{name}.html")), &page).unwrap();
        }
        // Between 830 and 810 tables become rows that stand alone.
        let faults = browser.faults(name, &page, &[1280, 950, 830, 810, 400]);
        assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
        let opened = browser.open(name, &page);
        assert!(!opened.log.contains("CONSOLE"), "{name}: {}", opened.log);
        assert!(opened.requests.is_empty(), "{name}: {:?}", opened.requests);
    }
}
