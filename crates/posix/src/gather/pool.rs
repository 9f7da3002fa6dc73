//! Spare buffers.

use std::sync::Mutex;

use super::BUFFER_BYTES;

/// Largest number of spare buffers: having one mapped costs more than a small burst saves.
const SPARE: usize = 256;
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

pub(super) fn take() -> Vec<u8> {
    let spare = POOL.try_lock().ok().and_then(|mut pool| pool.pop());
    spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

pub(super) fn give_back(buffer: Vec<u8>) {
    if let Ok(mut pool) = POOL.try_lock() {
        if pool.capacity() == 0 {
            pool.reserve_exact(SPARE);
        }
        if pool.len() < SPARE {
            pool.push(buffer);
        }
    }
}
