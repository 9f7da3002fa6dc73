//! Bad command lines, peers that go away, ports that cannot be had, and output that is not read.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Server, client, client_says, run_client, text};

const SERVER: &str = env!("CARGO_BIN_EXE_tcp_nodelay_server");
const CLIENT: &str = env!("CARGO_BIN_EXE_tcp_nodelay_client");

fn errors(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Checks that it failed with one sentence, and returns it.
fn one_sentence(output: &Output) -> String {
    let text = errors(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    text.trim_end().to_owned()
}

#[test]
fn bad_usage_of_the_client_exits_with_2_and_names_what_is_wrong() {
    for (words, named) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["-x"], "-x"),
        (&["-N", "0"], "--nr_logical_packets"),
        (&["-N", "-3"], "-3"),
        (&["-N", "many"], "--nr_logical_packets"),
        (&["-N1000000000001"], "--nr_logical_packets"),
        (&["-p", "0"], "--port"),
        (&["-p", "65536"], "--port"),
        (&["-p"], "--port"),
        (&["-r", "0"], "--rate"),
        (&["-r", "fast"], "--rate"),
        (&["--buffers", "0"], "--buffers"),
        (&["--buffers", "1000001"], "--buffers"),
        (&["-s", "-H"], "--header_plus_payload"),
        (&["-H", "--buffers", "3"], "--buffers 4"),
        (&["--no_reply"], "--rate"),
        (&["localhost", "5001"], "PACKETS"),
        (&["localhost", "port", "10"], "PORT"),
        (&["localhost", "0", "10"], "PORT"),
        (&["localhost", "5001", "0"], "PACKETS"),
        (&["localhost", "5001", "10", "nagle"], "nagle"),
        (&["localhost", "5001", "10", "cork", "no_delay"], "no_delay"),
        (&["-n", "localhost", "5001", "10"], "--no_delay"),
        (&["-p", "5001", "localhost", "5001", "10"], "--port"),
        (&["-v", "localhost", "5001", "10", "cork"], "--verbose"),
    ] {
        let output = client(words).output().unwrap();
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(named), "{words:?} should name {named}: {text}");
    }
}

#[test]
fn bad_usage_of_the_server_exits_with_2_and_names_what_is_wrong() {
    for (words, named) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["port"], "PORT"),
        (&["65536"], "PORT"),
        (&["-1"], "-1"),
        (&["0", "0"], "number of packets from 1"),
        (&["0", "nagle"], "no_delay, cork or rate"),
        (&["0", "10", "nagle"], "nagle"),
        (&["0", "cork", "rate"], "cork"),
        (&["0", "10", "cork", "rate"], "rate"),
        (&["0", "--connections", "0"], "--connections"),
        (&["0", "--buffers", "0"], "--buffers"),
        (&["0", "--buffers", "1000001"], "--buffers"),
    ] {
        let output = Command::new(SERVER).args(words).output().unwrap();
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(named), "{words:?} should name {named}: {text}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for program in [CLIENT, SERVER] {
        for word in ["--help", "-h", "--version"] {
            let output = Command::new(program).arg(word).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{program} {word}");
            assert!(!output.stdout.is_empty() && output.stderr.is_empty());
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_said() {
    // Bound but not listening: no other process gets the port, and a connection is refused.
    let free = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    free.bind(&std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let port = free.local_addr().unwrap().as_socket().unwrap().port().to_string();
    let output = client(&["-p", &port, "127.0.0.1"]).output().unwrap();
    let text = one_sentence(&output);
    assert!(
        text.starts_with(&format!(
            "tcp_nodelay_client: cannot connect to `127.0.0.1` port {port}: Connection refused"
        )),
        "{text}"
    );
}

#[test]
fn a_host_that_means_nothing_is_said() {
    // No name server is asked for a name with a space.
    let text = one_sentence(&client(&["no such host"]).output().unwrap());
    assert!(text.starts_with("tcp_nodelay_client: cannot find the host `no such host`"), "{text}");
    let output = Command::new(SERVER).args(["0", "--bind", "no such host"]).output().unwrap();
    let text = one_sentence(&output);
    assert!(text.starts_with("tcp_nodelay_server: cannot find the host `no such host`"), "{text}");
}

#[test]
fn a_port_in_use_is_said() {
    let server = Server::start(&[]);
    let output = Command::new(SERVER).arg(server.port.to_string()).output().unwrap();
    let text = one_sentence(&output);
    let expected = format!("tcp_nodelay_server: cannot listen on port {}: Address", server.port);
    assert!(text.starts_with(&expected) && text.contains("choose another port"), "{text}");
}

#[test]
fn an_address_of_another_machine_cannot_be_listened_on() {
    // TEST-NET-1, RFC 5737.
    let output = Command::new(SERVER).args(["0", "--bind", "192.0.2.1"]).output().unwrap();
    let text = one_sentence(&output);
    assert!(text.contains("`192.0.2.1`") && text.contains("assign"), "{text}");
}

#[test]
fn a_server_that_has_enough_ends_the_client_which_says_how_far_it_came() {
    let mut server = Server::start(&["7"]);
    for words in [&["-s", "-N", "20"][..], &["-n", "-N", "20"], &["-c", "-N", "20"]] {
        let text = one_sentence(&run_client(&server, words));
        let expected = "tcp_nodelay_client: the server ended the connection after 7 of 20 packets";
        assert!(text.starts_with(expected), "{text}");
        server.reads_of_next_client();
    }
    // And the next client is served as if nothing had happened.
    client_says(&server, &["-s", "-N", "7"]);
    assert_eq!(server.reads_of_next_client(), 7);
}

#[test]
fn half_a_reply_is_no_reply() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut packet = [0; 30];
        socket.read_exact(&mut packet).unwrap();
        socket.write_all(b"ok").unwrap();
        socket.read_exact(&mut packet).unwrap();
        socket.write_all(b"o").unwrap();
    });
    let text = one_sentence(&client(&["-s", "-p", &port, "127.0.0.1"]).output().unwrap());
    assert!(text.contains("after 1 of 10000 packets"), "{text}");
    server.join().unwrap();
}

#[test]
fn a_reply_in_two_halves_is_one_reply() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut packet = [0; 30];
        for _ in 0..2 {
            socket.read_exact(&mut packet).unwrap();
            socket.write_all(b"o").unwrap();
            thread::sleep(Duration::from_millis(20));
            socket.write_all(b"k").unwrap();
        }
    });
    let output = client(&["-s", "-N2", "-p", &port, "127.0.0.1"]).output().unwrap();
    assert!(text(&output).parse::<f64>().is_ok());
    server.join().unwrap();
}

#[test]
fn a_client_that_goes_away_does_not_end_the_server() {
    let mut server = Server::start(&["10", "--connections", "4"]);
    let connect = |bytes: &[u8]| {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    // Ends between packets, without a word; inside a packet; by a reset; properly.
    drop(connect(b""));
    drop(connect(&[b'x'; 7]));
    let reset = connect(&[b'x'; 7]);
    socket2::SockRef::from(&reset).set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    client_says(&server, &["-s", "-N10"]);

    assert_eq!(server.reads_of_next_client(), 0);
    assert_eq!(server.reads_of_next_client(), 1);
    server.reads_of_next_client();
    assert_eq!(server.reads_of_next_client(), 10);
    let (code, out, err) = server.end();
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let lines: Vec<_> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(lines[0].contains("7 bytes into packet 1 of 10") && lines[0].contains("--buffers"));
    assert!(lines[1].contains("failed after 0 of 10 packets: Connection reset"), "{err}");
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let server = Server::start(&["5"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = client(&["-s", "-N5", "-p", &server.port.to_string()]);
    let output = unread.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(SERVER).arg("0").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(SERVER).arg("0").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "tcp_nodelay_server: cannot write the result: No space left on device\n");
}

/// A paced client against a server in its rate mode would wait for ever.
#[test]
fn a_paced_client_says_that_no_reply_comes() {
    let server = Server::start(&["5", "rate"]);
    let begun = Instant::now();
    let text = one_sentence(&run_client(&server, &["-s", "-N5", "--rate", "100"]));
    assert!(text.contains("no reply to packet 1 of 5") && text.contains("--no_reply"), "{text}");
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// With more bytes in a packet at the server than at the client, both wait for ever.
#[test]
fn a_client_that_waits_in_vain_says_what_may_be_wrong_and_goes_on_waiting() {
    let mut server = Server::start(&["2", "--buffers", "20", "--connections", "1"]);
    let words = ["-s", "-N4", "--buffers", "10", "-p", &server.port.to_string(), "127.0.0.1"];
    let mut waiting = client(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut sentence = String::new();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
    stderr.read_line(&mut sentence).unwrap();
    assert!(sentence.contains("no reply to the first packet within 3 s, still waiting"));
    assert!(sentence.contains("--buffers"), "{sentence}");
    assert!(waiting.try_wait().unwrap().is_none(), "it should go on waiting");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(server.reads_of_next_client(), 1);
    let (_, _, err) = server.end();
    assert!(err.contains("20 bytes into packet 1 of 2"), "{err}");
}
