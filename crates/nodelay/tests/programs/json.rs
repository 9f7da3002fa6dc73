//! What both programs report as JSON.

use crate::common::{Server, client_says};
use serde_json::{Value, json};

fn client_json(server: &Server, words: &[&str]) -> Value {
    let line = client_says(server, &[&["--json"], words].concat());
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn client_tells_what_it_did() {
    let server = Server::start(&["50"]);
    let told = client_json(&server, &["-n", "-N50", "127.0.0.1"]);
    for (field, expected) in [
        ("mode", json!("buffers")),
        ("options", json!(["TCP_NODELAY"])),
        ("server", json!("127.0.0.1")),
        ("peer", json!(format!("127.0.0.1:{}", server.port))),
        ("packets", json!(50)),
        ("buffers", json!(15)),
        ("bytes_per_packet", json!(30)),
        ("bytes", json!(1500)),
        ("writes_per_packet", json!(15)),
        ("writes", json!(750)),
        ("rate", Value::Null),
        ("late_us", Value::Null),
    ] {
        assert_eq!(told[field], expected, "{field} in {told}");
    }
    let elapsed = told["elapsed_ms"].as_f64().unwrap();
    let rate = told["bytes_per_ms"].as_f64().unwrap();
    assert!((rate * elapsed - 1500.0).abs() < 1e-6, "{told}");
    let latency = |name: &str| told["latency_us"][name].as_f64().unwrap();
    let (p50, p99, max) = (latency("p50"), latency("p99"), latency("max"));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{told}");
    // No packet took longer than all of them, but for the histogram's 0.1 %.
    assert!(max <= elapsed * 1e3 * 1.002, "{told}");
}

#[test]
fn client_tells_modes_and_options() {
    let server = Server::start(&["10"]);
    let told = client_json(&server, &["-s", "-N10"]);
    assert_eq!((&told["mode"], &told["writes"]), (&json!("single_request"), &json!(10)));
    assert_eq!(told["options"], json!([]));
    let told = client_json(&server, &["-H", "-n", "-c", "-N10"]);
    assert_eq!((&told["mode"], &told["writes"]), (&json!("header_plus_payload"), &json!(20)));
    assert_eq!(told["options"], json!(["TCP_NODELAY", "TCP_CORK"]));
    let told = client_json(&server, &["--writev", "-N10"]);
    assert_eq!((&told["mode"], &told["writes"]), (&json!("writev"), &json!(10)));
    let told = client_json(&server, &["--sendfile", "-c", "-N10"]);
    assert_eq!((&told["mode"], &told["writes"]), (&json!("sendfile"), &json!(20)));
}

/// Segments as the server's kernel counts them: one call, or a cork, sends one segment.
#[test]
fn server_tells_the_segments_that_came() {
    let mut server = Server::start(&["60", "--json"]);
    for (words, per_packet) in [
        (&["-s"][..], 1),
        (&["--writev", "-n"], 1),
        (&["-c"], 1),
        (&["--sendfile", "-c"], 1),
        (&["--sendfile", "-n"], 2),
        (&["-H", "-n"], 2),
    ] {
        client_says(&server, &[&["-N60"], words].concat());
        let told = server.json();
        assert_eq!(told["segments"], json!(60 * per_packet), "{words:?}: {told}");
        assert_eq!(told["bytes"], json!(1800), "{told}");
    }
}

#[test]
fn paced_client_tells_how_late_it_was() {
    let server = Server::start(&["10"]);
    let told = client_json(&server, &["-s", "-N10", "--rate", "200"]);
    assert_eq!(told["rate"], 200);
    assert!(told["late_us"]["max"].as_f64().unwrap() > 0.0, "{told}");
    assert!(told["elapsed_ms"].as_f64().unwrap() >= 45.0, "{told}");
}

#[test]
fn client_that_awaits_no_reply_knows_no_latency() {
    let mut server = Server::start(&["10", "rate", "--json"]);
    let told = client_json(&server, &["-s", "-N10", "--rate", "500", "--no-reply"]);
    assert_eq!(told["latency_us"], Value::Null);
    let received = server.json();
    let interval = |name: &str| received["interval_us"][name].as_f64().unwrap();
    assert!(interval("min") <= interval("avg") && interval("avg") <= interval("max"), "{received}");
    assert!(interval("max") > 0.0, "{received}");
}

#[test]
fn server_tells_each_connection() {
    let mut server = Server::start(&["40", "--json", "--connections", "2"]);
    client_says(&server, &["-s", "-N40", "127.0.0.1"]);
    let told = server.json();
    for (field, expected) in [
        ("event", json!("connection")),
        ("packets", json!(40)),
        ("packets_expected", json!(40)),
        ("buffers", json!(15)),
        ("reads", json!(40)),
        ("bytes", json!(1200)),
        ("ended", json!("complete")),
        ("interval_us", Value::Null),
    ] {
        assert_eq!(told[field], expected, "{field} in {told}");
    }
    assert!(told["host"].as_str().is_some_and(|host| !host.is_empty()), "{told}");
    assert!(told["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
    client_says(&server, &["-s", "-N39"]);
    let told = server.json();
    assert_eq!((&told["packets"], &told["ended"]), (&json!(39), &json!("closed")));
    assert_eq!(server.end(), (Some(0), String::new(), String::new()));
}
