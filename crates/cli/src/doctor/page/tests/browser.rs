//! The page in a real browser: it is drawn, nothing complains, and nothing leaves it.
//!
//! UNCORK_DOCTOR_PAGES=DIRECTORY keeps the pages there, for the eye.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::all;

/// A browser that has never been used, and may reach nobody.
struct Browser {
    home: tempfile::TempDir,
}

/// What the browser made of a page.
struct Opened {
    document: String,
    /// What it logged, complaints of the page among it.
    log: String,
    /// What the page asked of the network.
    requests: Vec<String>,
}

impl Browser {
    fn new() -> Option<Self> {
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

    fn open(&self, name: &str, page: &str) -> Opened {
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

/// The addresses that a page asked for, without those that the browser asks for by itself: those
/// have no page as their origin.
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

/// The test above can fail: a page that asks for something is found out.
#[test]
fn a_page_that_asks_for_something_is_found_out() {
    let Some(browser) = Browser::new() else { return };
    let page = "<!doctype html><title>x</title><img src=\"http://uncork.invalid/x\"><script>\
                console.error('here')</script>";
    let opened = browser.open("asks", page);
    assert_eq!(opened.requests, ["http://uncork.invalid/x"]);
    assert!(opened.log.contains("CONSOLE"), "{}", opened.log);
}
