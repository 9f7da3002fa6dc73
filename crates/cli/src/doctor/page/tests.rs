use super::*;
use crate::doctor::samples;

mod browser;

fn all() -> Vec<(&'static str, String)> {
    [
        ("evening", samples::evening()),
        ("every_kind", samples::every_kind()),
        ("many", samples::many()),
        ("empty", samples::empty()),
        ("healthy", samples::healthy()),
        ("slow_program", samples::slow_program()),
        ("looked_at", samples::looked_at()),
        ("hostile", samples::hostile()),
        ("by_the_doctor", samples::by_the_doctor()),
    ]
    .map(|(name, report)| (name, render(&report)))
    .into()
}

/// Returns all text between `begin` and the next quotation mark.
fn values<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    page.split(begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Returns the names of the opening tags.
fn elements(page: &str) -> Vec<&str> {
    let name = |rest: &'_ str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '!');
    page.split('<').skip(1).filter_map(|rest| rest.get(..name(rest)?)).collect()
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_runs_nothing() {
    let known = [
        "!doctype",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "footer",
        "section",
        "figure",
        "figcaption",
        "details",
        "summary",
        "div",
        "p",
        "h1",
        "h2",
        "h3",
        "b",
        "strong",
        "span",
        "a",
        "ul",
        "li",
        "pre",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "wbr",
        "svg",
        "text",
        "line",
        "rect",
        "circle",
        "path",
        "",
    ];
    for (name, page) in all() {
        for element in elements(&page) {
            assert!(known.contains(&element), "{name}: <{element}>");
        }
        assert!(page.contains("default-src 'none'"));
        for link in values(&page, "href=\"") {
            assert!(link.starts_with('#'), "{name}: {link}");
        }
        let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        assert!(!style.contains("url(") && !style.contains("@import"));
        for attribute in [" src=", " style=", " onerror=\"", " onload=\""] {
            assert!(!page.contains(attribute) || name == "hostile", "{name}: {attribute}");
        }
    }
}

#[test]
fn what_a_capture_brought_along_stays_text() {
    let page = render(&samples::hostile());
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("\"'&<b>"));
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn every_element_is_closed() {
    for (name, page) in all() {
        for element in [
            "div", "section", "table", "tr", "td", "svg", "pre", "p", "h3", "details", "figure",
            "a",
        ] {
            let open = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            assert_eq!(open, page.matches(&format!("</{element}>")).count(), "{name}: {element}");
        }
    }
}

#[test]
fn every_link_leads_somewhere_and_no_place_is_named_twice() {
    for (name, page) in all() {
        let mut places = values(&page, " id=\"");
        for link in values(&page, "href=\"#") {
            assert!(places.contains(&link), "{name}: {link}");
        }
        let named = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), named, "{name}");
    }
}

#[test]
fn every_kind_has_its_section_its_words_and_its_cure() {
    let report = samples::every_kind();
    let page = render(&report);
    for connection in &report.connections {
        for finding in &connection.findings {
            assert!(page.contains(&format!("<section id=\"{}\">", anchor(finding.kind))));
            assert!(page.contains(&escape(words::explanation(finding.kind))));
            assert!(page.contains(&escape(&finding.evidence)));
            for remedy in &finding.remedies {
                assert!(page.contains(&format!("<pre>{}</pre>", escape(&remedy.line))));
            }
        }
    }
}

#[test]
fn five_hundred_connections_are_cut_and_counted() {
    let page = render(&samples::many());
    assert_eq!(page.matches("<details class=\"card\"").count(), connections::LISTED);
    assert!(page.contains("400 more connections are not listed here, and lost less"), "{page}");
    // The worst corked connection is not among the hundred: it has no number to look up.
    assert!(page.contains("What was seen on [2001:db8::"), "{page}");
    assert!(page.len() < 2_000_000, "{}", page.len());
}

#[test]
fn a_page_without_findings_is_a_page() {
    assert!(render(&samples::empty()).contains("<h1>No TCP connection was seen"));
    assert!(render(&samples::healthy()).contains("nothing found"));
    assert!(render(&samples::slow_program()).contains("<h1>TCP is not to blame"));
}

/// With a shut window no end holds an ACK, and no ACK timer ends what waits in a queue.
#[test]
fn nobody_is_blamed_for_what_another_mechanism_does() {
    let page = render(&samples::every_kind());
    let section = |kind: Kind| {
        let rest = page.split_once(&format!("<section id=\"{}\">", anchor(kind))).unwrap().1;
        rest.split_once("</section>").unwrap().0
    };
    let window = section(Kind::ZeroWindow);
    assert!(window.contains("shut its window.") && !window.contains("held the ACK"), "{window}");
    assert!(!window.contains("holds the ACK"), "{window}");
    let queue = section(Kind::SenderQueue);
    let caption = queue.split("<figcaption>").last().unwrap();
    assert!(!caption.contains("delayed ACK") && caption.contains(" in all.<"), "{queue}");
}

#[test]
fn one_of_a_kind_is_told_as_one_and_looking_as_looking() {
    let mut report = samples::looked_at();
    report.summary.stalls = 1;
    let page = render(&report);
    assert!(page.contains("<strong>stall</strong>"), "{page}");
    assert!(page.contains("<strong>connection affected</strong>"), "{page}");
    assert!(page.contains("at least 1 stall, which costs"), "{page}");
    assert!(page.contains("12 writes left as 4 packets"), "{page}");
    assert!(page.contains("The command ended with status 3."), "{page}");
    assert!(page.contains("The sockets were not traced but looked at."), "{page}");
    assert!(!page.contains("0 requests"), "{page}");
}
