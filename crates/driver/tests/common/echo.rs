//! An echo server on the stack itself, and a program on the kernel's side that checks the echo.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uncork_driver::{Driver, Offer, clock};
use uncork_netns::Namespace;
use uncork_stack::{Config, RecvError, SocketId, Stack};

use super::{LONG, OUR_MAC, OURS, pattern, wakes_within};

pub(crate) const PORT: u16 = 8000;

/// An echo server on a stack, with a minimal engine.
struct Echo<'a> {
    driver: &'a mut dyn Driver,
    stack: Stack,
    address: IpAddr,
    /// Connections, with what is still to be sent back, and whether the peer has ended.
    served: Vec<(SocketId, Vec<u8>, bool)>,
}

impl Echo<'_> {
    fn run(&mut self, stop: &AtomicBool) {
        let listener = self.stack.listen(SocketAddr::from((self.address, PORT)), 16).unwrap();
        let clock = clock::clock();
        let end = Instant::now() + 3 * LONG;
        while !stop.load(Ordering::Relaxed) {
            assert!(Instant::now() < end, "the client has not got everything back");
            let now = clock();
            let (stack, driver) = (&mut self.stack, &mut self.driver);
            let received =
                driver.receive(64, &mut |frame| stack.handle_frame(now, &frame)).unwrap();
            driver.complete(&mut |completion| stack.handle_completion(now, completion)).unwrap();
            if stack.poll_timeout().is_some_and(|due| due <= now) {
                stack.handle_timeout(now);
            }
            while stack.poll_event().is_some() {}
            while let Some(socket) = stack.accept(listener) {
                self.served.push((socket, Vec::new(), false));
            }
            self.serve(now);
            let (stack, driver) = (&mut self.stack, &mut self.driver);
            while driver.offer(&mut |slot| stack.poll_transmit(now, slot)).unwrap() == Offer::Taken
            {
            }
            driver.flush().unwrap();
            if received == 0 {
                let due = stack.poll_timeout().map_or(LONG, |due| due.since(clock()));
                // Rounded up to the milliseconds of poll(2).
                let sleep = due.min(Duration::from_millis(50)) + Duration::from_millis(1);
                wakes_within(*driver, sleep);
            }
        }
    }

    fn serve(&mut self, now: uncork_packet::Instant) {
        const BUFFER_BYTES: usize = 1 << 18;
        let mut taken = vec![0; 1 << 16];
        for (socket, pending, over) in &mut self.served {
            while pending.len() < BUFFER_BYTES && !*over {
                match self.stack.recv(now, *socket, &mut taken) {
                    Ok(0) => *over = true,
                    Ok(bytes) => pending.extend_from_slice(&taken[..bytes]),
                    Err(RecvError::WouldBlock) => break,
                    Err(error) => unreachable!("the connection has failed: {error}"),
                }
            }
            while !pending.is_empty() {
                match self.stack.send(now, *socket, pending, false) {
                    Ok(bytes) => drop(pending.drain(..bytes)),
                    Err(_) => break,
                }
            }
            if *over && pending.is_empty() {
                self.stack.close(now, *socket);
            }
        }
        self.served.retain(|(_, pending, over)| !*over || !pending.is_empty());
    }
}

/// Starts a program on the kernel's side that compares what comes back. Its end stops the server.
fn client(
    namespace: &Namespace,
    address: IpAddr,
    bytes: usize,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let name = namespace.name().to_owned();
    let stop = Arc::clone(stop);
    let connect = move || {
        let mut stream = TcpStream::connect((address, PORT))?;
        stream.set_read_timeout(Some(2 * LONG))?;
        let mut writer = stream.try_clone()?;
        let writing = thread::spawn(move || {
            writer.write_all(&pattern(bytes)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        writing.join().unwrap();
        assert!(got == pattern(bytes), "{} of {bytes} octets came back, or others", got.len());
        Ok(())
    };
    thread::spawn(move || {
        /// Stops the server, however the client ends.
        struct Stop(Arc<AtomicBool>);
        impl Drop for Stop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(stop);
        let path = format!("/run/netns/{name}");
        let file = std::fs::File::open(path).unwrap();
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let done: anyhow::Result<()> = connect();
        done.unwrap();
    })
}

pub(crate) fn echo(driver: &mut dyn Driver, client_in: &Namespace, bytes: usize) {
    echo_at(driver, client_in, OURS.into(), bytes);
}

/// Like [`echo`], at an address of either version.
pub(crate) fn echo_at(
    driver: &mut dyn Driver,
    client_in: &Namespace,
    address: IpAddr,
    bytes: usize,
) {
    let mut stack = Stack::new(Config::default(), driver.capabilities(), OUR_MAC, [3; 32]);
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    stack.add_address(format!("{address}/{prefix}").parse().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let client = client(client_in, address, bytes, &stop);
    Echo { driver, stack, address, served: Vec::new() }.run(&stop);
    client.join().unwrap();
}
