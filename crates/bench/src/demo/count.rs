//! Counting the segments of a run: our own server takes the unmodified client's connection and
//! asks the kernel at the end how many segments with data came.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::setting::Setting;
use crate::nodelay::client;
use crate::place::{Cores, pin};
use crate::segments::data_segments_in;
use crate::toolbox::Toolbox;

/// Logical packets that are counted, and of a run that stalls.
const PACKETS: (u64, u64) = (500, 10);
/// Packets before them: the kernel acknowledges the first few more quickly than later ones.
const BEFORE: u64 = 5;
/// How long the server may take after the client has ended.
const LIMIT: Duration = Duration::from_secs(10);

/// Segments with data that the client sent, for each logical packet.
pub(crate) fn segments_per_packet(tools: &Toolbox, setting: &Setting, cores: Cores) -> Result<f64> {
    let packets = if setting.stalls() { PACKETS.1 } else { PACKETS.0 };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
    let port = listener.local_addr()?.port();
    let bytes = setting.pattern.bytes();
    let (result, counted) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more if the client failed.
        let _ = result.send(pin(cores.server).and_then(|()| serve(&listener, bytes)));
    });
    let way = setting.way();
    client(tools, (&setting.pattern, &way), (BEFORE + packets, port), Some(cores.client))?;
    let segments = counted.recv_timeout(LIMIT).context("the counting server does not end")??;
    Ok(f64::from(segments) / packets as f64)
}

/// Answers logical packets of `bytes` until the client closes, and counts the segments of all
/// but the first [`BEFORE`].
fn serve(listener: &TcpListener, bytes: usize) -> Result<u32> {
    let (mut socket, peer) = listener.accept().context("accepting")?;
    let local = socket.local_addr()?;
    let (mut packet, mut packets, mut before) = (vec![0; bytes], 0, 0);
    while socket.read_exact(&mut packet).is_ok() {
        packets += 1;
        if packets == BEFORE {
            before = data_segments_in(local, peer)?;
        }
        socket.write_all(b"ok")?;
    }
    Ok(data_segments_in(local, peer)? - before)
}
