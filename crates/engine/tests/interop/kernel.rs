//! The kernel's side: a client and an echo server of the standard library.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::link::Link;
use crate::programs::{AT_ONCE, PORT};
use crate::{StopGuard, octet, octets};

/// Long enough for a machine that is four times slower than most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const CHUNK_BYTES: usize = 1 << 16;

/// Sends on many connections, some at once, and compares what comes back. Its end stops the server.
pub(crate) fn client(
    link: &Link,
    connections: usize,
    bytes: usize,
    stop: StopGuard,
) -> JoinHandle<()> {
    let to = SocketAddr::new(link.our_address(), PORT);
    let path = format!("/run/netns/{}", link.kernels.name());
    let left = Arc::new(AtomicUsize::new(connections));
    thread::spawn(move || {
        let _stop = stop;
        let workers: Vec<_> = (0..AT_ONCE.min(connections))
            .map(|_| {
                let (path, left) = (path.clone(), Arc::clone(&left));
                thread::spawn(move || {
                    let file = std::fs::File::open(path).unwrap();
                    nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                    let take = |left: usize| left.checked_sub(1);
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                        talk(TcpStream::connect(to).unwrap(), bytes);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    })
}

fn talk(mut stream: TcpStream, bytes: usize) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        for from in (0..bytes).step_by(CHUNK_BYTES) {
            writer.write_all(&octets(from, CHUNK_BYTES.min(bytes - from))).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut place = 0;
    loop {
        let got = stream.read(&mut buffer).unwrap();
        if got == 0 {
            break;
        }
        let wrong = (0..got).find(|&at| buffer[at] != octet(place + at));
        assert_eq!(wrong, None, "another octet came back behind {place}");
        place += got;
    }
    assert_eq!(place, bytes, "not everything came back");
    writing.join().unwrap();
}

/// An echo server on the kernel's side.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Server {
    pub(crate) fn new(link: &Link) -> Self {
        let at = SocketAddr::new(link.kernels_address(), PORT);
        let listener = link.kernels.within(move || Ok(TcpListener::bind(at)?)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut served = Vec::new();
            loop {
                match listener.accept() {
                    Ok((stream, _)) => served.push(thread::spawn(move || echo(stream))),
                    Err(_) if stopped.load(Ordering::Relaxed) => break,
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
            served.into_iter().map(|one| one.join().unwrap()).count()
        });
        Self { stop, thread }
    }

    /// Returns how many connections it has served, once the last has ended.
    pub(crate) fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn echo(mut stream: TcpStream) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let got = stream.read(&mut buffer).unwrap();
        if got == 0 {
            return;
        }
        stream.write_all(&buffer[..got]).unwrap();
    }
}
