//! SipHash (Aumasson and Bernstein, 2012) over whole words: a keyed hash that nobody without the
//! key can predict or make collide.
//!
//! With one round per word and three at the end it finds connections; with two and four it makes
//! initial sequence numbers, cookies and ports.

use serde::{Deserialize, Serialize};

/// A secret of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key(pub(crate) u64, pub(crate) u64);

/// Hashes for tables: fast, and good enough against floods of chosen keys.
pub(crate) fn fast(key: Key, words: &[u64]) -> u64 {
    sip::<1, 3>(key, words)
}

/// Hashes for values that an observer of many of them must not be able to predict.
pub(crate) fn strong(key: Key, words: &[u64]) -> u64 {
    sip::<2, 4>(key, words)
}

fn sip<const WORD: usize, const END: usize>(key: Key, words: &[u64]) -> u64 {
    let mut state = [
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word holds the length in octets, modulo 256, in its top octet.
    let length = (words.len() as u64 * 8) << 56;
    for &word in words.iter().chain([&length]) {
        state[3] ^= word;
        (0..WORD).for_each(|_| round(&mut state));
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..END).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::{Key, fast, strong};

    #[test]
    fn it_is_siphash_2_4() {
        // Appendix A of the paper has 15 octets; these are the published vectors for 0 and 8.
        let key = Key(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(strong(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(strong(key, &[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn the_key_counts() {
        assert_ne!(fast(Key(1, 2), &[3]), fast(Key(1, 3), &[3]));
    }
}
