//! One byte back and forth over TCP, beside the load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Probe, histogram, record};
use crate::place::{FAR, Place};

const PORT: u16 = 5202;
const EVERY: Duration = Duration::from_millis(5);

/// Sends requests to the far end over one connection until told to stop.
///
/// # Errors
/// If there is no connection.
pub fn request(place: &Place) -> Result<Probe> {
    let address = SocketAddr::from((FAR, PORT));
    let listener = place.far.within(move || Ok(TcpListener::bind(address)?))?;
    let mut client = place.near.within(move || Ok(TcpStream::connect(address)?))?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    thread::spawn(move || echo(server));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let mut times = histogram()?;
        let mut byte = [0];
        while !stopped.load(Relaxed) {
            let begin = Instant::now();
            client.write_all(&byte)?;
            client.read_exact(&mut byte)?;
            record(&mut times, begin.elapsed());
            thread::sleep(EVERY);
        }
        Ok(times)
    });
    Ok(Probe { stop, thread: Some(thread) })
}

/// Echoes until the peer is gone.
fn echo(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}
