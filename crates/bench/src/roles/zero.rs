//! A descriptor that is not a socket, called as often as possible.

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Reads one byte `reads` times through libc's `read`, and prints the nanoseconds of one.
pub(crate) fn run(reads: u64) -> Result<()> {
    let mut zero = File::open("/dev/zero").context("opening /dev/zero")?;
    let mut byte = [1];
    let start = Instant::now();
    for _ in 0..reads {
        let bytes = zero.read(&mut byte)?;
        ensure!(bytes == 1 && byte == [0], "/dev/zero gave {bytes} bytes, {byte:?}");
    }
    println!("{}", start.elapsed().as_nanos() as f64 / reads as f64);
    Ok(())
}
