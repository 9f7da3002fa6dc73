//! A load of our own, for a host that has none at the moment: sent to another host that receives it.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::SockRef;
use uncork_lab::load::flood;
use uncork_tune::netns::Handle;

/// How long the receiver may take to accept it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that send as fast as they can, until dropped.
#[derive(Debug)]
pub struct Load {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts them, from this network namespace, to a host that discards what it receives (RFC 863).
    ///
    /// # Errors
    /// If there is no listener.
    pub fn start(handle: &Handle, to: SocketAddr, senders: NonZeroU32) -> Result<Self> {
        let mut load = Self { streams: Vec::new(), threads: Vec::new() };
        for _ in 0..senders.get() {
            let stream = handle.within(|| TcpStream::connect_timeout(&to, PATIENCE))?;
            let stream =
                stream.with_context(|| format!("{to} does not take the load of --load"))?;
            load.threads.push(flood(stream.try_clone()?));
            load.streams.push(stream);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for stream in &self.streams {
            // What is still buffered would take seconds to send on a slow link: reset instead.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}
