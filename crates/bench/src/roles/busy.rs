//! A program that writes and then calls nothing for a while.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::clock::Monotonic;

/// What to write where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port of the receiver
    port: u16,
    /// Connections, one after the other
    #[arg(long)]
    samples: u32,
    /// How long to compute after the last write, in milliseconds
    #[arg(long)]
    busy: u64,
}

/// Sixteen bytes: the sample's number and the time just before the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Number of the sample.
    pub(crate) sample: u64,
    /// When it was written.
    pub(crate) at: Monotonic,
}

impl Message {
    /// Length on the wire, in bytes.
    pub(crate) const LEN: usize = 16;

    /// Returns the bytes that are sent.
    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.sample.to_le_bytes());
        bytes[8..].copy_from_slice(&self.at.0.to_le_bytes());
        bytes
    }

    /// Parses the message, if `bytes` has its length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (sample, at) = bytes.get(..Self::LEN)?.split_at(8);
        let sample = u64::from_le_bytes(sample.try_into().ok()?);
        Some(Self { sample, at: Monotonic(u64::from_le_bytes(at.try_into().ok()?)) })
    }
}

/// Connects for each sample anew, so that no rhythm can be learned: one to three writes, then
/// computing, then close. Prints for each sample how many microseconds it was kept from running.
pub(crate) fn run(args: &Args) -> Result<()> {
    let per_millisecond = calibrate();
    for sample in 0..u64::from(args.samples) {
        let waited = run_delay();
        let mut socket =
            TcpStream::connect((Ipv4Addr::LOCALHOST, args.port)).context("connecting")?;
        socket.set_nodelay(true)?;
        for _ in 0..=sample % 3 {
            socket.write_all(&Message { sample, at: Monotonic::now()? }.encode())?;
        }
        compute(per_millisecond * args.busy);
        println!("{}", (run_delay() - waited).max(0) / 1_000);
    }
    Ok(())
}

/// Returns for how many nanoseconds this thread has waited for a core on which other programs ran
/// (and not threads of this process, such as the library's own), from an arbitrary start; constant
/// where the kernel does not tell.
fn run_delay() -> i64 {
    let own = std::process::id().to_string();
    let mut waited = 0;
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        // Nanoseconds on a core, nanoseconds waiting for one, number of turns.
        let mut fields = stat.split_whitespace().map_while(|field| field.parse::<i64>().ok());
        let (ran, delayed) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        waited += if task.file_name().to_str() == Some(&own) { delayed } else { -ran };
    }
    waited
}

/// Returns how many steps of [`compute`] fit in a millisecond, at the highest speed measured here.
fn calibrate() -> u64 {
    const STEPS: u64 = 200_000;
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        compute(STEPS);
        start.elapsed()
    });
    let fastest = fastest.min().unwrap_or(Duration::from_millis(1));
    (STEPS as f64 / (fastest.as_secs_f64() * 1e3)) as u64
}

/// Does arithmetic without calls that cannot be optimised away.
fn compute(steps: u64) {
    let mut state = 1u64;
    for step in 0..steps {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_and_a_short_one_does_not() {
        let message = Message { sample: 7, at: Monotonic(u64::MAX - 3) };
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Some(message));
        assert_eq!(Message::decode(&bytes[..15]), None);
    }
}
