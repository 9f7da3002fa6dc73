//! A real browser, for tests: what it draws, what it logs, and what it requests from the network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::svg::escape;

/// A browser with a fresh profile and no network access.
pub(crate) struct Browser {
    home: tempfile::TempDir,
}

/// What the browser observed of a page.
pub(crate) struct Opened {
    pub(crate) document: String,
    /// Its log, including the page's errors.
    pub(crate) log: String,
    /// The page's network requests.
    pub(crate) requests: Vec<String>,
}

impl Browser {
    pub(crate) fn new() -> Option<Self> {
        let there = Command::new("chromium").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "chromium is not installed");
            eprintln!("skipped: the page in a browser: chromium is not installed");
            return None;
        }
        Some(Self { home: tempfile::tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, page: &Path, more: &[&str]) -> std::process::Output {
        let profile = tempfile::tempdir_in(self.home.path()).unwrap();
        let done = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-dev-shm-usage"])
            .args(["--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(more)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done
    }

    pub(crate) fn open(&self, name: &str, page: &str) -> Opened {
        let path = self.path(&format!("{name}.html"));
        std::fs::write(&path, page).unwrap();
        let net = self.path("net.json");
        let done = self.run(&path, &["--dump-dom", &format!("--log-net-log={}", net.display())]);
        Opened {
            document: String::from_utf8(done.stdout).unwrap(),
            log: String::from_utf8_lossy(&done.stderr).into_owned(),
            requests: requests(&net),
        }
    }
}

/// Returns the addresses that a page requested, without those that the browser requests by itself:
/// those do not have a page as their origin.
fn requests(log: &Path) -> Vec<String> {
    let log: serde_json::Value = serde_json::from_slice(&std::fs::read(log).unwrap()).unwrap();
    let events = log["events"].as_array().unwrap();
    let by_page = |event: &&serde_json::Value| {
        let initiator = event["params"]["initiator"].as_str();
        initiator.is_some_and(|initiator| initiator != "not an origin")
    };
    let address = |event: &serde_json::Value| Some(event["params"]["url"].as_str()?.to_owned());
    events.iter().filter(by_page).filter_map(address).collect()
}

/// The measuring script: it runs in the page around the measured one, whose own policy allows no script.
const LAYOUT: &str = include_str!("layout.js");

impl Browser {
    /// Returns the faults of a page's layout on screens of so many pixels: what is cut off, and
    /// texts of pictures that overlap each other, lie outside the picture, or under a line.
    pub(crate) fn faults(&self, name: &str, page: &str, widths: &[u32]) -> Vec<String> {
        let inside = page.replace('&', "&amp;").replace('"', "&quot;");
        let frame = |pixels: &u32| {
            format!("<iframe width=\"{pixels}\" height=\"900\" srcdoc=\"{inside}\"></iframe>")
        };
        let frames: String = widths.iter().map(frame).collect();
        let around = format!(
            "<!doctype html><meta charset=\"utf-8\"><style>iframe {{ border: 0 }}</style>{frames}\
             <pre id=\"told\"></pre><script>{LAYOUT}</script>"
        );
        let path = self.path(&format!("{name}-around.html"));
        std::fs::write(&path, around).unwrap();
        let done = self.run(&path, &["--dump-dom"]);
        let document = String::from_utf8(done.stdout).unwrap();
        let told = document.split("<pre id=\"told\">").nth(1).unwrap();
        let mut lines = told.split("</pre>").next().unwrap().lines();
        let texts = page.matches("<text ").count() * widths.len();
        assert_eq!(lines.next(), Some(format!("measured {texts}").as_str()), "{name}");
        lines.map(str::to_owned).collect()
    }
}

/// The test above can fail: a page that makes a request is detected.
#[test]
fn a_page_that_asks_for_something_is_found_out() {
    let Some(browser) = Browser::new() else { return };
    let page = "<!doctype html><title>x</title><img src=\"http://uncork.invalid/x\"><script>\
                console.error('here')</script>";
    let opened = browser.open("asks", page);
    assert_eq!(opened.requests, ["http://uncork.invalid/x"]);
    assert!(opened.log.contains("CONSOLE"), "{}", opened.log);
}

/// A page with something unreadable is detected, too.
#[test]
fn what_cannot_be_read_on_a_page_is_found_out() {
    let Some(browser) = Browser::new() else { return };
    let text = |x: u32, words: &str| format!("<text x=\"{x}\" y=\"50\">{}</text>", escape(words));
    let page = |inside: &str| {
        format!("<!doctype html><body style=\"margin:0\"><main>{inside}</main></body>")
    };
    let picture = |inside: &str| page(&format!("<svg viewBox=\"0 0 200 100\">{inside}</svg>"));
    let faults = |page: &str| browser.faults("layout", page, &[400]);
    assert_eq!(faults(&picture(&(text(0, "left") + &text(100, "right")))), [""; 0]);
    for (page, says) in [
        (picture(&(text(0, "left") + &text(10, "right"))), "left lies on right"),
        (picture(&text(180, "far out")), "far out is cut"),
        (
            picture(&(text(0, "struck") + "<line x1=\"0\" y1=\"46\" x2=\"200\" y2=\"46\"/>")),
            "a line goes through struck",
        ),
        (page("<div style=\"width:500px\">x</div>"), "the page is 500 pixels wide"),
        (
            page("<div style=\"overflow:auto\"><table style=\"width:500px\"><td>x</table></div>"),
            "a table is 500 pixels wide, of 400",
        ),
    ] {
        let found = faults(&page);
        assert!(found.iter().any(|fault| fault.contains(says)), "{says}: {found:?}");
    }
}
