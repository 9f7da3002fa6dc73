//! Threads that sleep on the stack, beside others that give it data and turn to something else.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::skip::find;
use uncork_e2e::{Alone, Daemon, alone, artifact};

use crate::on_stack::{Scratch, lacks};

const PORT: u16 = 7095;
/// Threads that sleep meanwhile; another one waits in accept(2).
const SLEEPERS: usize = 4;
const ROUNDS: usize = 12;
/// All busy threads rest by then, the library's own included.
const REST: Duration = Duration::from_millis(150);
/// Less than the program computes, and than a child of fork takes whose data goes unnoticed.
const SOON: Duration = Duration::from_millis(200);
/// How long the program waits before it answers.
const WAITS: Duration = Duration::from_millis(300);

#[test]
fn what_a_thread_gives_before_it_computes_or_ends_waits_while_others_sleep() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    let alone = alone();
    in_time("what is given beside sleepers", || is_heard_soon(&alone))
}

fn is_heard_soon(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("sleepers")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/beside_sleepers.py")).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let begins = |what: &[u8]| -> Result<TcpStream> {
        let mut stream = hosts.connect(PORT)?;
        stream.write_all(what)?;
        Ok(stream)
    };
    let mut asleep = (0..SLEEPERS).map(|_| begins(b"s")).collect::<Result<Vec<_>>>()?;
    for round in 0..ROUNDS {
        for (what, ends) in [(b"c", false), (b"e", true), (b"f", false)] {
            thread::sleep(REST);
            let mut stream = begins(what)?;
            let begun = Instant::now();
            // Two wake, and fall asleep again: they are the ones that watch.
            for one in &mut asleep[..2] {
                one.write_all(b"?")?;
                one.read_exact(&mut [0]).context("waking one who sleeps")?;
            }
            let heard = stream.read(&mut [0]).context("hearing an answer")?;
            let ended = if ends { stream.read(&mut [0]).context("hearing the end")? } else { 0 };
            ensure!((heard, ended) == (1, 0), "{heard} and {ended} octets came");
            let late = begun.elapsed().saturating_sub(WAITS);
            let what = char::from(what[0]);
            let told = || format!("round {round}, \"{what}\": {late:?} late\n{}", server.said());
            ensure_soon(late, SOON, told)?;
        }
    }
    drop(server);
    hosts.check_nothing_left(PORT)
}
