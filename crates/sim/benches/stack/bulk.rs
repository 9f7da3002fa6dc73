//! Throughput of one connection in memory, on one core for both ends.

use uncork_packet::{Capabilities, Medium};

use crate::ours::Pair;
use crate::{Bed as _, median, on_cpu, tell};

const CHUNK_BYTES: usize = 256 << 10;

/// Returns the Gbit/s of one connection over a port with these capabilities.
fn gigabits(capabilities: Capabilities, total: usize) -> f64 {
    let mut pair = Pair::over(capabilities);
    pair.connect(1);
    let (client, server) = pair.ends[0];
    let chunk = vec![7u8; CHUNK_BYTES];
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let (mut sent, mut read) = (0, 0);
    let began = on_cpu();
    while read < total {
        let now = pair.now();
        while sent < total {
            let most = chunk.len().min(total - sent);
            match pair.nodes[0].stack.send(now, client, &chunk[..most], false) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        pair.turn_of(0, now);
        pair.turn_of(1, now);
        while let Ok(count) = pair.nodes[1].stack.recv(now, server, &mut buffer) {
            read += count;
        }
        pair.turn_of(1, now);
    }
    total as f64 * 8e-9 / (on_cpu() - began)
}

pub(crate) fn run() {
    let plain = Capabilities::plain(Medium::Ethernet, 1500);
    let trains = Capabilities { max_train_bytes: 65_000, completes_checksums: true, ..plain };
    for (name, capabilities, total, bar) in
        [("MTU 1500 with checksums", plain, 2 << 30, 8.0), ("64 KiB trains", trains, 8 << 30, 40.0)]
    {
        let figure = median((0..crate::ROUNDS).map(|_| gigabits(capabilities, total)).collect());
        tell(
            &format!("bulk in memory, {name}"),
            &format!("{figure:.1} Gbit/s"),
            &format!("≥ {bar} Gbit/s"),
            figure >= bar,
        );
    }
}
