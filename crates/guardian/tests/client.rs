//! A guardian that is stopped, late, gone or of another kind, as the program sees it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, socket,
};
use uncork_guardian::{
    Answer, Client, Error, PATIENCE, Place, Question, Reply, Request, Word, channel, table,
};
use uncork_stack::{Snapshot, SnapshotState};

/// Makes a place at which `guardian` serves the first client.
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
fn who_has_waited_in_vain_does_not_wait_again_before_that_is_answered_and_takes_no_answer_for_another()
 {
    let (goes_on, held_up) = mpsc::channel();
    let place = place(move |socket| {
        welcome(&socket);
        let late = hear(&socket).id;
        held_up.recv().unwrap();
        answer(&socket, late, Reply::Refused { why: "too late".to_owned() }, None);
        let next = hear(&socket).id;
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
    let again = Instant::now();
    for _ in 0..3 {
        assert!(matches!(client.own(local, listener.as_fd()), Err(Error::Slow(_))));
    }
    assert!(again.elapsed() < PATIENCE, "each has waited");
    goes_on.send(()).unwrap();
    let until = Instant::now() + PATIENCE;
    let mut done = client.own(local, listener.as_fd());
    while matches!(done, Err(Error::Slow(_))) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
        done = client.own(local, listener.as_fd());
    }
    done.unwrap();
    let error = client.disown(local).unwrap_err();
    assert_eq!(error.to_string(), "for this reason");
}

#[test]
fn what_only_the_kernel_could_go_on_with_is_waited_for_longer() {
    let place = place(|socket| {
        welcome(&socket);
        let id = hear(&socket).id;
        thread::sleep(PATIENCE * 2);
        let (taken, _) = UnixStream::pair().unwrap();
        answer(&socket, id, Reply::Taken, Some(&taken.into()));
        let id = hear(&socket).id;
        thread::sleep(PATIENCE * 2);
        answer(&socket, id, Reply::Refused { why: "for this reason".to_owned() }, None);
    });
    let mut client = Client::connect(&place).unwrap();
    let local = "10.0.0.1:80".parse().unwrap();
    let snapshot = Snapshot {
        local,
        remote: "10.0.0.2:80".parse().unwrap(),
        state: SnapshotState::Established,
        fin_sent: false,
        reading_shut: false,
        send_first: 1,
        unacknowledged_bytes: 0,
        unsent_bytes: 5,
        receive_first: 1,
        unread_bytes: 0,
        window_seq: 1,
        send_window_bytes: 65_535,
        largest_send_window_bytes: 65_535,
        acknowledged: 1,
        receive_window_bytes: 65_535,
        segment_bytes: 1460,
        window_shifts: None,
        sack: true,
        timestamp: None,
    };
    client.take_over(&snapshot, None, false).unwrap();
    let error = client.take_over(&snapshot, None, false).unwrap_err();
    assert_eq!(error.to_string(), "for this reason");
}

#[test]
fn what_is_done_too_late_is_undone() {
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let (tells, told) = mpsc::channel();
    let place = place(move |socket| {
        welcome(&socket);
        let mut late = 0;
        loop {
            let Question { id, request } = hear(&socket);
            match request {
                // Answered when the client no longer waits. The last is refused, so there is
                // nothing to undo.
                Request::Own { .. } | Request::OwnConnection { .. } => {
                    late += 1;
                    thread::sleep(PATIENCE * 3 / 2);
                    let refused = Reply::Refused { why: "for this reason".to_owned() };
                    let reply = if late < 3 { Reply::Done } else { refused };
                    answer(&socket, id, reply, None);
                }
                Request::Over { .. } => tells.send(request).unwrap(),
                other => {
                    answer(&socket, id, Reply::Done, None);
                    let is_last = other == Request::Settle;
                    tells.send(other).unwrap();
                    if is_last {
                        return;
                    }
                }
            }
        }
    });
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    let is_answered = |client: &mut Client, done| {
        assert!(matches!(done, Err(Error::Slow(_))));
        thread::sleep(PATIENCE);
        client.check().unwrap();
    };
    let done = client.own(local, listener.as_fd());
    is_answered(&mut client, done);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Request::Disown { local });
    let done = client.own_connection(local, remote, listener.as_fd());
    is_answered(&mut client, done);
    let over = Request::Over { closed: Vec::new(), over: vec![(local, remote)] };
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), over);
    let done = client.own(local, listener.as_fd());
    is_answered(&mut client, done);
    client.settle().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Request::Settle);
}

#[test]
fn what_is_done_too_late_is_undone_behind_the_answer_in_whose_middle_that_is_heard() {
    let (tells, told) = mpsc::channel();
    let place = place(move |socket| {
        welcome(&socket);
        let late = hear(&socket).id;
        // A device is asked for in any case.
        let next = hear(&socket).id;
        answer(&socket, late, Reply::Done, None);
        answer(&socket, next, Reply::Refused { why: "for this reason".to_owned() }, None);
        tells.send(hear(&socket).request).unwrap();
    });
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    assert!(matches!(client.own(local, listener.as_fd()), Err(Error::Slow(_))));
    assert_eq!(client.open(1).unwrap_err().to_string(), "for this reason");
    // Sent by itself, as nothing would wake the client to look for the late answer.
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Request::Disown { local });
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
        // The answer to what is asked after all these.
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
    // Only once, and what was refused is forgotten, too.
    assert!(matches!(client.reserved(first).unwrap_err(), Error::Language));
}

#[test]
fn what_is_over_is_said_in_parts_and_again_when_it_was_not_taken() {
    const MANY: u16 = 20_000;
    let ends = |port| {
        let end = |host: &str| SocketAddr::new(host.parse().unwrap(), port);
        (
            end("2001:db8:1111:2222:3333:4444:5555:6666"),
            end("2001:db8:7777:8888:9999:aaaa:bbbb:cccc"),
        )
    };
    let (tells, told) = mpsc::channel();
    let place = place(move |socket| {
        welcome(&socket);
        // The guardian is busy for a while.
        thread::sleep(Duration::from_millis(300));
        let (mut closes, mut overs) = (Vec::new(), Vec::new());
        loop {
            let Question { id, request } = hear(&socket);
            match request {
                Request::Over { closed, over } => {
                    closes.extend(closed);
                    overs.extend(over);
                }
                Request::Settle => {
                    answer(&socket, id, Reply::Done, None);
                    tells.send((closes, overs)).unwrap();
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let mut client = Client::connect(&place).unwrap();
    let all: Vec<_> = (0..MANY).map(ends).collect();
    let (closed, over) = all.split_at(usize::from(MANY) / 2);
    // It does not fit into one message, and the program does not wait.
    let begun = Instant::now();
    let error = client.over(closed, over).unwrap_err();
    assert!(matches!(error, Error::Slow(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(300));
    client.settle().unwrap();
    let (closes, overs) = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&closes[..], &overs[..]), (closed, over));
}

#[test]
fn ports_that_nobody_wants_when_they_come_are_given_back() {
    let (tells, told) = mpsc::channel();
    let place = place(move |socket| {
        welcome(&socket);
        let [first, second] = [(); 2].map(|()| hear(&socket).id);
        for (asked, port) in [(first, 1), (second, 2)] {
            answer(&socket, asked, Reply::Ports { ports: vec![port] }, None);
        }
        answer(&socket, hear(&socket).id, Reply::Done, None);
        for _ in 0..2 {
            let Request::Over { over, .. } = hear(&socket).request else { panic!("not over") };
            tells.send(over).unwrap();
        }
    });
    let mut client = Client::connect(&place).unwrap();
    let (listener, local) = listener();
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let [early, late] =
        [(); 2].map(|()| client.reserve(local.ip(), remote, 1, listener.as_fd()).unwrap());
    // One of the answers is not here yet.
    client.forsake(early);
    client.settle().unwrap();
    client.check().unwrap();
    let end = |port| (SocketAddr::new(local.ip(), port), remote);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), [end(1)]);
    client.forsake(late);
    client.check().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), [end(2)]);
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
        // With the question's number, and once without the socket that it needs.
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
