//! `uncork tune sink`: the receiver of a load.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::lab::{INTERRUPTED, stopped_by_signals};
use crate::output::{complain, print};

/// Interval at which new connections and Ctrl-C are checked.
const EVERY: Duration = Duration::from_millis(20);

/// Receives and discards data (RFC 863), until it is ended by a signal.
pub(super) fn take(address: SocketAddr) -> Result<i32, Failure> {
    let unusable =
        |error| Failure::unusable(format!("{address}: it cannot be listened on: {error}"));
    let listener = TcpListener::bind(address).map_err(unusable)?;
    listener.set_nonblocking(true).map_err(unusable)?;
    let stop = stopped_by_signals()?;
    let own = listener.local_addr().map_err(unusable)?;
    print(&format!("listening on {own}; what comes is thrown away\n"))?;
    while !stop.load(Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => drop(thread::spawn(move || discard(stream))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(EVERY),
            // Too many descriptors, or a client that has given up: others may still connect.
            Err(error) => {
                complain(format_args!("a connection was not taken: {error}"));
                thread::sleep(EVERY);
            }
        }
    }
    Ok(INTERRUPTED)
}

fn discard(mut stream: TcpStream) {
    let mut bytes = vec![0; 1 << 18];
    // The listener's flag is not inherited on Linux (accept(2)).
    while stream.read(&mut bytes).is_ok_and(|length| length > 0) {}
}
