//! A guardian that is stopped, late, gone or of another kind, as the program sees it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, socket,
};
use uncork_guardian::{
    Answer, Client, Error, PATIENCE, Place, Question, Reply, Request, Word, channel, table,
};

/// A place at which `guardian` serves the first who comes.
fn place(guardian: impl FnOnce(OwnedFd) + Send + 'static) -> String {
    static PLACES: AtomicU32 = AtomicU32::new(0);
    let number = u64::from(std::process::id()) << 32;
    let number = number | u64::from(PLACES.fetch_add(1, Ordering::Relaxed));
    let place = Place::new(number.to_be_bytes(), [7; 16]);
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new_abstract_name(place.name().as_bytes()).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    thread::spawn(move || guardian(accept(&listener).unwrap()));
    place.to_variable()
}

fn hear(socket: &OwnedFd) -> Question {
    let came = channel::receive(socket.as_fd(), RecvFlags::empty()).unwrap();
    serde_json::from_slice(&came.bytes).unwrap()
}

fn answer(socket: &OwnedFd, id: u32, reply: Reply, descriptor: Option<&OwnedFd>) {
    let descriptor = descriptor.map(|descriptor| descriptor.as_fd());
    channel::send(socket.as_fd(), &Answer { id, reply }, descriptor, SendFlags::empty()).unwrap();
}

fn welcome(socket: &OwnedFd) {
    let id = hear(socket).id;
    let memory = table::create().unwrap();
    answer(
        socket,
        id,
        Reply::Welcome { devices: Vec::new(), attaches: false, queues: false },
        Some(&memory),
    );
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    (listener, local)
}

fn is_prompt(asked: Instant) {
    let took = asked.elapsed();
    assert!(took >= PATIENCE && took < PATIENCE + Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_guardian_that_does_not_answer_is_not_waited_for_for_long() {
    let place = place(|socket| {
        thread::sleep(PATIENCE * 3);
        drop(socket);
    });
    let asked = Instant::now();
    let error = Client::connect(&place).unwrap_err();
    assert!(matches!(error, Error::Slow(_)), "{error}");
    is_prompt(asked);
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_the_next() {
    let place = place(|socket| {
        welcome(&socket);
        let late = hear(&socket).id;
        // Until the other one has given up and asks again.
        let next = hear(&socket).id;
        answer(&socket, late, Reply::Refused { why: "too late".to_owned() }, None);
        answer(&socket, next, Reply::Done, None);
        let last = hear(&socket).id;
        answer(&socket, last, Reply::Refused { why: "for this reason".to_owned() }, None);
    });
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    let asked = Instant::now();
    let error = client.own(local, listener.as_fd()).unwrap_err();
    assert!(matches!(error, Error::Slow(_)), "{error}");
    is_prompt(asked);
    client.check().unwrap();
    client.own(local, listener.as_fd()).unwrap();
    let error = client.disown(local).unwrap_err();
    assert_eq!(error.to_string(), "for this reason");
}

#[test]
fn the_answer_to_what_is_not_waited_for_is_kept_until_somebody_does() {
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let place = place(move |socket| {
        welcome(&socket);
        let [first, second, third] = [(); 3].map(|()| hear(&socket).id);
        answer(&socket, first, Reply::Ports { ports: vec![1, 2] }, None);
        answer(&socket, second, Reply::Refused { why: "for this reason".to_owned() }, None);
        answer(&socket, third, Reply::Done, None);
        // What comes after all that was asked.
        let fourth = hear(&socket).id;
        answer(&socket, fourth, Reply::Ports { ports: vec![3] }, None);
        thread::sleep(PATIENCE);
    });
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    let ask =
        |client: &mut Client| client.reserve(local.ip(), remote, 2, listener.as_fd()).unwrap();
    let (first, second) = (ask(&mut client), ask(&mut client));
    client.disown(local).unwrap();
    assert!(!client.has_news());
    let refused = client.reserved(second).unwrap_err();
    assert_eq!(refused.to_string(), "for this reason");
    assert_eq!(client.reserved(first).unwrap(), [1, 2]);
    let fourth = ask(&mut client);
    assert_eq!(client.reserved(fourth).unwrap(), [3]);
    // Once.
    assert!(matches!(client.reserved(first).unwrap_err(), Error::Language));
}

#[test]
fn a_guardian_that_is_gone_is_told() {
    let place = place(|socket| welcome(&socket));
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    let end = Instant::now() + PATIENCE;
    while client.check().is_ok() {
        assert!(Instant::now() < end, "nobody has told");
    }
    for _ in 0..2 {
        let error = client.own(local, listener.as_fd()).unwrap_err();
        assert!(matches!(error, Error::Gone), "{error}");
    }
    let nobody = "@uncork-nobody:00000000000000000000000000000000";
    assert!(matches!(Client::connect(nobody).unwrap_err(), Error::Gone));
}

#[test]
fn who_is_no_guardian_is_not_understood() {
    let place = place(|socket| {
        channel::send(socket.as_fd(), &["what?"], None, SendFlags::empty()).unwrap();
        thread::sleep(PATIENCE);
    });
    let error = Client::connect(&place).unwrap_err();
    assert!(matches!(error, Error::Language), "{error}");
}

#[test]
fn an_instance_hears_all_words_in_their_order_whatever_it_asks_meanwhile() {
    let local: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let place = place(move |socket| {
        let Question { id, request } = hear(&socket);
        assert!(matches!(request, Request::Serve { token, .. } if token == "secret"));
        let memory = table::create().unwrap();
        answer(
            &socket,
            id,
            Reply::Welcome { devices: Vec::new(), attaches: false, queues: false },
            Some(&memory),
        );
        let asked = hear(&socket).id;
        // With the number of the question, and one without the socket that it needs.
        answer(&socket, asked, Reply::Guest { program: 6, pid: None, uid: None }, None);
        answer(&socket, asked, Reply::Guest { program: 7, pid: None, uid: None }, Some(&memory));
        answer(&socket, 0, Reply::Granted { program: 7, local }, None);
        answer(&socket, asked, Reply::Done, None);
        answer(&socket, 0, Reply::Revoked { program: 7, local }, None);
    });
    let mut client = Client::serve(&place, "secret").unwrap();
    client.give(7, local, local).unwrap();
    assert!(
        client.has_news(),
        "who sleeps on the descriptor is not woken for what has been read from it"
    );
    let mut said = Vec::new();
    let end = Instant::now() + PATIENCE;
    while said.len() < 3 && Instant::now() < end {
        let _ = client.check();
        said.extend(std::iter::from_fn(|| client.next_word()).map(|word| match word {
            Word::Guest { program, .. } => format!("guest {program}"),
            Word::Granted { program, .. } => format!("granted {program}"),
            Word::Revoked { program, .. } => format!("revoked {program}"),
            Word::GrantedConnection { .. } => "connection".to_owned(),
            Word::RevokedConnection { .. } => "no connection".to_owned(),
        }));
    }
    assert_eq!(said, ["guest 7", "granted 7", "revoked 7"]);
    assert!(!client.has_news());
}
