//! A server whose processes end after some connections, and are replaced.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::skip::find;
use uncork_e2e::{Alone, Daemon, alone, artifact};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 7096;
const WORKERS: usize = 4;
/// Connections of a process.
const EACH: u32 = 60;
const CLIENTS: u32 = 6;
/// Connections of a client.
const ASKS: u32 = 120;
/// Lost data comes later than that.
const SOON: Duration = Duration::from_millis(900);

#[test]
fn who_comes_while_workers_end_and_begin_is_answered_and_a_socket_is_made_ahead() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    let alone = alone();
    in_time("an answer while workers end and begin", || are_answered(&alone))
}

fn are_answered(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("recycled")?;
    // Processes on an instance have no sockets of their own.
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/recycled.py")).args([PORT.to_string(), EACH.to_string()]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let ask = |number: u32| -> Result<Duration> {
        let mut longest = Duration::ZERO;
        for ask in 0..ASKS {
            let (begun, mut heard) = (Instant::now(), [0]);
            let mut stream = hosts.connect(PORT)?;
            let said = [(number * ASKS + ask).to_le_bytes()[0]];
            stream.write_all(&said)?;
            stream.read_exact(&mut heard).context("hearing an answer")?;
            ensure!(heard == said, "another one's answer came");
            longest = longest.max(begun.elapsed());
        }
        Ok(longest)
    };
    let longest = thread::scope(|scope| -> Result<Duration> {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || ask(number))).collect();
        let all = clients.into_iter().map(|one| one.join().map_err(|_| anyhow!("one panicked"))?);
        Ok(all.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or_default())
    })?;
    ensure_soon(longest, SOON, || format!("an answer came after {longest:?}\n{}", server.said()))?;
    // Each worker with an engine has a packet socket, and one is ready for the next.
    let sockets = || hosts.packet_sockets();
    wait_until("a socket is there for the next one", || Ok(sockets()? == WORKERS + 1))?;
    drop(server);
    hosts.check_nothing_left(PORT)
}
