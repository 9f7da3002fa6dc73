use super::request::{Method, Parsed, Refusal, parse};

fn request(text: &str) -> (Method, String, bool, bool, bool) {
    match parse(text.as_bytes()) {
        Parsed::Whole(request, bytes) => {
            assert_eq!(bytes, text.len(), "{text:?}");
            let path = String::from_utf8(request.path.to_vec()).unwrap();
            (request.method, path, request.version_1_1, request.closes, request.has_body)
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_request_is_taken_apart() {
    for (text, method, path, version_1_1, closes, has_body) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, "/", true, false, false),
        ("\r\nHEAD /file?x=1 HTTP/1.1\nhost:a\n\n", Method::Head, "/file", true, false, false),
        ("GET http://a:80/b HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, "/b", true, false, false),
        ("GET HTTP://a HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, "/", true, false, false),
        ("GET / HTTP/1.0\r\n\r\n", Method::Get, "/", false, true, false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Method::Get, "/", false, false, false),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: te, Close\r\n\r\n",
            Method::Get,
            "/",
            true,
            true,
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n",
            Method::Other,
            "/",
            true,
            false,
            true,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            Method::Get,
            "/",
            true,
            false,
            false,
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Method::Other, "*", true, false, false),
    ] {
        assert_eq!(request(text), (method, path.to_owned(), version_1_1, closes, has_body));
    }
}

#[test]
fn what_is_no_request_is_refused_and_half_a_one_is_waited_for() {
    for (text, refusal) in [
        ("GET /\r\n\r\n", Refusal::Malformed),
        ("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
        ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::Malformed),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Refusal::Malformed),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Refusal::Malformed),
        ("GET file HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
        ("\x16\x03\x01\n\r\n", Refusal::Malformed),
    ] {
        assert_eq!(parse(text.as_bytes()), Parsed::Refused(refusal), "{text:?}");
    }
    let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for bytes in 0..whole.len() {
        assert_eq!(parse(&whole.as_bytes()[..bytes]), Parsed::Incomplete);
    }
}
