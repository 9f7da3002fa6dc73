//! The link between two namespaces keeps its promise, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use uncork_link::{Counts, Layer, Path, Settings, run};
use uncork_netns::testing::is_skipped;
use uncork_netns::{Namespace, PREFIX};

/// Ends the link when the test ends, however it does.
struct Link {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<[Counts; 2]>>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn link(client: &Namespace, server: &Namespace, path: &Path) -> Link {
    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings {
        namespaces: [client.name().to_owned(), server.name().to_owned()],
        device: "eth0".to_owned(),
        layer: Layer::Ethernet,
        segmentation_offload: false,
        spin: Duration::from_micros(200),
        paths: [path.clone(), path.clone()],
    };
    let (ready, is_ready) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || run(settings, &stopped, || ready.send(()).unwrap()));
    let link = Link { stop, thread: Some(thread) };
    is_ready.recv().unwrap();
    for (namespace, address) in [(client, "10.77.0.1/24"), (server, "10.77.0.2/24")] {
        namespace.ip("link set eth0 up").unwrap();
        namespace.ip(&format!("address add {address} dev eth0")).unwrap();
    }
    link
}

/// Returns the shortest of ten round trips, twice through `path`, in milliseconds.
fn shortest_round_trip_ms(label: &str, path: &Path) -> f64 {
    let client = Namespace::new(&format!("{label}c")).unwrap();
    let server = Namespace::new(&format!("{label}s")).unwrap();
    let _link = link(&client, &server, path);
    let sock = "import socket,sys,time,threading\n";
    let echo = format!(
        "{sock}l=socket.create_server(('10.77.0.2',4000)); print('up',flush=True); s=l.accept()[0]\n\
         while True:\n d=s.recv(9)\n if not d: break\n s.sendall(d)\n"
    );
    let ask = format!(
        "{sock}s=socket.create_connection(('10.77.0.2',4000)); b=9e9\n\
         for _ in range(10):\n t=time.perf_counter(); s.sendall(b'x'); s.recv(9)\n \
         b=min(b,time.perf_counter()-t)\nprint(b*1000)\n"
    );
    let mut server_process = server
        .command("/usr/bin/python3")
        .args(["-c", &echo])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = String::new();
    BufReader::new(server_process.stdout.take().unwrap()).read_line(&mut up).unwrap();
    let answer = client.command("/usr/bin/python3").args(["-c", &ask]).output().unwrap();
    let _ = server_process.kill();
    server_process.wait().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8_lossy(&answer.stdout).trim().parse().unwrap()
}

#[test]
fn a_frame_takes_the_delay_that_was_asked_for() {
    if is_skipped("a_frame_takes_the_delay_that_was_asked_for") {
        return;
    }
    let without = shortest_round_trip_ms("d0", &Path::default());
    let with = shortest_round_trip_ms(
        "d20",
        &Path { delay: Duration::from_millis(20), ..Path::default() },
    );
    // The minimum of ten: what the scheduler adds to the others is not the link's.
    assert!(without < 1.0, "{without} ms without a delay");
    assert!((40.0..41.0).contains(&with), "{with} ms with 40 ms");
}

#[test]
fn namespaces_are_gone_afterwards_with_what_ran_in_them() {
    if is_skipped("namespaces_are_gone_afterwards_with_what_ran_in_them") {
        return;
    }
    let namespace = Namespace::new("gone").unwrap();
    let name = namespace.name().to_owned();
    assert!(name.starts_with(PREFIX));
    let mut sleeper = namespace.command("sleep").arg("60").spawn().unwrap();
    while !std::fs::read_to_string(format!("/proc/{}/comm", sleeper.id()))
        .unwrap()
        .contains("sleep")
    {
        thread::yield_now();
    }
    drop(namespace);
    assert!(!sleeper.wait().unwrap().success(), "it ended by itself");
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&listed.stdout).contains(&name));
}
