//! Bulk senders, and the receivers of their data.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uncork_queues::QueueSettings;

use crate::pacing;
use crate::place::{FAR, Place};
use crate::socket::Congestion;

const PORT: u16 = 5201;
/// Size of a sender's write.
const WRITE_BYTES: usize = 256 * 1024;

/// Connections that send as fast as they can, until dropped.
#[derive(Debug)]
pub struct Bulk {
    streams: Vec<TcpStream>,
    received_bytes: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

/// The data that each connection had delivered at a moment.
#[derive(Clone, Debug)]
pub struct Mark {
    at: Instant,
    bytes: Vec<u64>,
}

impl Bulk {
    /// Starts `senders` connections.
    ///
    /// # Errors
    /// If a connection cannot be established.
    pub fn start(
        place: &Place,
        senders: u32,
        settings: QueueSettings,
        congestion: Congestion,
    ) -> Result<Self> {
        let address = SocketAddr::from((FAR, PORT));
        let listener = place.far.within(move || Ok(TcpListener::bind(address)?))?;
        let mut bulk =
            Self { streams: Vec::new(), received_bytes: Vec::new(), threads: Vec::new() };
        for _ in 0..senders {
            let stream = place.near.within(move || Ok(TcpStream::connect(address)?))?;
            congestion.set(&stream)?;
            if let Some(rate) = settings.pacing_bytes_per_second {
                pacing::set(&stream, rate).context("cannot set SO_MAX_PACING_RATE")?;
            }
            let (inbox, _) = listener.accept()?;
            let received = Arc::new(AtomicU64::new(0));
            bulk.threads.push(receive(inbox, Arc::clone(&received)));
            bulk.threads.push(flood(stream.try_clone()?));
            bulk.received_bytes.push(received);
            bulk.streams.push(stream);
        }
        Ok(bulk)
    }

    /// Returns what was delivered so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let bytes = self.received_bytes.iter().map(|bytes| bytes.load(Relaxed)).collect();
        Mark { at: Instant::now(), bytes }
    }

    /// Returns both addresses of each connection, its own first.
    ///
    /// # Errors
    /// If a connection is gone.
    pub fn addresses(&self) -> Result<Vec<(SocketAddr, SocketAddr)>> {
        let both = |stream: &TcpStream| Ok((stream.local_addr()?, stream.peer_addr()?));
        self.streams.iter().map(both).collect()
    }
}

impl Mark {
    /// Returns the bits per second of each connection since `earlier`.
    #[must_use]
    pub fn rates(&self, earlier: &Self) -> Vec<f64> {
        let took = self.at.duration_since(earlier.at).max(Duration::from_millis(1));
        let bits = self.bytes.iter().zip(&earlier.bytes).map(|(now, then)| (now - then) * 8);
        #[allow(clippy::cast_precision_loss)] // far below 2^53 bits in any run
        bits.map(|bits| bits as f64 / took.as_secs_f64()).collect()
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends as fast as it can, until the connection is shut down.
#[must_use]
pub fn flood(mut stream: TcpStream) -> JoinHandle<()> {
    let bytes = vec![0; WRITE_BYTES];
    thread::spawn(move || while stream.write_all(&bytes).is_ok() {})
}

fn receive(mut stream: TcpStream, received: Arc<AtomicU64>) -> JoinHandle<()> {
    let mut bytes = vec![0; 1 << 20];
    thread::spawn(move || {
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            received.fetch_add(length as u64, Relaxed);
        }
    })
}
