//! A bulk transfer: senders are compared, the receiver is a kernel's socket and counts.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uncork_lab::load::flood;
use uncork_lab::socket::Congestion;
use uncork_netns::Namespace;

use super::{Bed, Who, server};
use crate::place::pin;
use crate::process::Running;

/// The sender's port.
const PORT: u16 = 5301;
/// Size of a read.
const READ_BYTES: usize = 1 << 20;

/// A connection that receives for the lifetime of this value.
pub(super) struct Receiver {
    stream: TcpStream,
    bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// How much had arrived, and at what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    at: Instant,
    pub(super) bytes: u64,
}

impl Receiver {
    /// Connects from a namespace, sends `request`, and counts what arrives.
    pub(super) fn connect(
        from: &Namespace,
        to: SocketAddr,
        request: &[u8],
        core: Option<usize>,
    ) -> Result<Self> {
        let mut stream = from.within(move || Ok(TcpStream::connect(to)?))?;
        stream.write_all(request)?;
        let bytes = Arc::new(AtomicU64::new(0));
        let (mut reading, counted) = (stream.try_clone()?, Arc::clone(&bytes));
        let thread = thread::spawn(move || {
            if core.is_some_and(|core| pin(core).is_err()) {
                return;
            }
            let mut buffer = vec![0; READ_BYTES];
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                counted.fetch_add(length as u64, Relaxed);
            }
        });
        Ok(Self { stream, bytes, thread: Some(thread) })
    }

    /// Returns how much has arrived so far. It is an error if nothing more can arrive.
    pub(super) fn mark(&self) -> Result<Mark> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            bail!("the sender has ended its connection before it was told to");
        }
        Ok(Mark { at: Instant::now(), bytes: self.bytes.load(Relaxed) })
    }
}

impl Mark {
    /// Returns millions of bits per second since `earlier`.
    pub(super) fn megabits_since(&self, earlier: &Self) -> f64 {
        let took = self.at.duration_since(earlier.at).max(Duration::from_millis(1));
        (self.bytes - earlier.bytes) as f64 * 8e-6 / took.as_secs_f64()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sender, which sends until it is dropped.
enum Sender {
    /// Ended when it is dropped.
    Ours { _server: Running },
    /// Ends with the connection.
    Kernel { _thread: JoinHandle<()> },
}

/// A sender and its receiver.
pub(super) struct Transfer {
    /// Dropped first, so that the sender has no peer.
    pub(super) receiver: Receiver,
    _sender: Sender,
}

impl Transfer {
    /// Begins: the near namespace sends to the far one, by our stack or by the kernel's with CUBIC,
    /// whatever the kernel's default is.
    pub(super) fn begin(bed: &Bed<'_>, who: Who, [near, far]: [&Namespace; 2]) -> Result<Self> {
        let at = who.at(PORT);
        match who {
            Who::Ours | Who::Moderated | Who::Xdp => {
                let server = server::serve(bed, near, who, ("chargen", PORT), None)?;
                let receiver = Receiver::connect(far, at, b"", None)?;
                Ok(Self { receiver, _sender: Sender::Ours { _server: server } })
            }
            Who::Kernel => {
                let listener = near.within(move || Ok(TcpListener::bind(at)?))?;
                let receiver = Receiver::connect(far, at, b"", None)?;
                let (stream, _) = listener.accept()?;
                Congestion::Cubic.set(&stream)?;
                Ok(Self { receiver, _sender: Sender::Kernel { _thread: flood(stream) } })
            }
        }
    }
}
