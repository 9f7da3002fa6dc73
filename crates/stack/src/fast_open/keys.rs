//! The cookies that servers issue: a hash of both addresses under a secret key
//! (RFC 7413 §4.1.2), the same as Linux makes with the same key, so that hosts behind one address
//! can share it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uncork_wire::tcp::Cookie;

use crate::hash::{self, Key};

/// The key for new cookies, and one whose cookies are still accepted.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpenKeys {
    primary: Key,
    backup: Option<Key>,
}

impl std::fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FastOpenKeys")
    }
}

/// Result of checking a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Made with the current key.
    Good,
    /// Made with the previous key: valid, but to be replaced.
    Old,
    /// Not one of ours.
    Bad,
}

impl FastOpenKeys {
    /// Makes keys from octets, as setsockopt(TCP_FASTOPEN_KEY) takes them.
    #[must_use]
    pub fn new(primary: [u8; 16], backup: Option<[u8; 16]>) -> Self {
        Self { primary: key(primary), backup: backup.map(key) }
    }

    pub(crate) fn of(primary: Key) -> Self {
        Self { primary, backup: None }
    }

    /// Parses keys as Linux writes them in net.ipv4.tcp_fastopen_key: four words of 32 bits, each in hexadecimal, and optionally
    /// four more after a comma (proc_tcp_fastopen_key). None if there is no key: Linux has none before one is needed.
    #[must_use]
    pub fn of_sysctl(text: &str) -> Option<Self> {
        let mut keys = text.trim().split(',').map(|key| {
            let words = key.split('-').map(|word| u32::from_str_radix(word, 16));
            let words: Vec<u32> = words.collect::<Result<_, _>>().ok()?;
            let words: [u32; 4] = words.try_into().ok()?;
            words.map(u32::to_le_bytes).concat().try_into().ok()
        });
        let primary: [u8; 16] = keys.next()??;
        (primary != [0; 16]).then(|| Self::new(primary, keys.next().flatten()))
    }

    /// Derives keys for the programs of one user, which cannot compute these keys from them. The result is always the same.
    #[must_use]
    pub fn of_user(self, uid: u32) -> Self {
        // The input for a cookie is never three words long.
        let half = |key, which| hash::strong(key, &[OF_USER, uid.into(), which]);
        let derived = |key: Key| Key(half(key, 0), half(key, 1));
        Self { primary: derived(self.primary), backup: self.backup.map(derived) }
    }

    /// Returns keys that make cookies with `primary`, and still accept those of the current key
    /// (RFC 7413 §4.1.2: keys are to be changed from time to time).
    #[must_use]
    pub fn rotated(self, primary: [u8; 16]) -> Self {
        Self { primary: key(primary), backup: Some(self.primary) }
    }

    /// Returns the cookie of a client, for the addresses (local, remote).
    pub(crate) fn cookie(&self, ends: (IpAddr, IpAddr)) -> Cookie {
        make(self.primary, ends)
    }

    pub(crate) fn check(&self, ends: (IpAddr, IpAddr), cookie: &Cookie) -> Verdict {
        if make(self.primary, ends).as_slice() == cookie.as_slice() {
            return Verdict::Good;
        }
        let old = self.backup.is_some_and(|key| make(key, ends).as_slice() == cookie.as_slice());
        if old { Verdict::Old } else { Verdict::Bad }
    }
}

/// Domain separation for [`FastOpenKeys::of_user`].
const OF_USER: u64 = u64::from_le_bytes(*b"of user ");

fn key(octets: [u8; 16]) -> Key {
    let word = |at: usize| octets[at..].first_chunk().map_or(0, |&half| u64::from_le_bytes(half));
    Key(word(0), word(8))
}

/// Computes SipHash over source and destination of the client's packets (__tcp_fastopen_cookie_gen_cipher).
fn make(key: Key, (local, remote): (IpAddr, IpAddr)) -> Cookie {
    let hash = match (remote, local) {
        (IpAddr::V4(remote), IpAddr::V4(local)) => {
            let source = u64::from(u32::from_le_bytes(remote.octets()));
            let destination = u64::from(u32::from_le_bytes(local.octets()));
            hash::strong(key, &[destination << 32 | source])
        }
        (remote, local) => {
            let mut words = [0; 4];
            for (half, address) in words.chunks_exact_mut(2).zip([remote, local]) {
                let IpAddr::V6(address) = address else { continue };
                let octets = address.octets();
                for (word, from) in half.iter_mut().zip([0, 8]) {
                    *word =
                        octets[from..].first_chunk().map_or(0, |&part| u64::from_le_bytes(part));
                }
            }
            hash::strong(key, &words)
        }
    };
    Cookie::new(&hash.to_le_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{FastOpenKeys, Verdict};

    fn ends(local: &str, remote: &str) -> (IpAddr, IpAddr) {
        (local.parse().unwrap(), remote.parse().unwrap())
    }

    #[test]
    fn cookies_are_those_of_linux_with_the_same_key() {
        // a0bf63f7-ed803d81-cd641d30-cebc4a90 in /proc; the cookies are those of Linux, from
        // packetdrill's fastopen/server/simple{1,2,3}.pkt.
        let octets = [
            0xf7, 0x63, 0xbf, 0xa0, 0x81, 0x3d, 0x80, 0xed, 0x30, 0x1d, 0x64, 0xcd, 0x90, 0x4a,
            0xbc, 0xce,
        ];
        let keys = FastOpenKeys::new(octets, None);
        for (local, remote, cookie) in [
            ("192.168.0.2", "10.248.0.2", 0x00ab_aaab_e8e9_54c2_u64),
            ("192.168.0.2", "10.248.0.3", 0x1313_a2da_994a_0951),
            ("192.168.0.3", "10.248.0.3", 0x76d2_c1c5_30f5_1f79),
        ] {
            assert_eq!(keys.cookie(ends(local, remote)).as_slice(), cookie.to_be_bytes());
        }
    }

    #[test]
    fn keys_are_read_as_linux_writes_them_and_are_others_for_each_user() {
        let one = "a0bf63f7-ed803d81-cd641d30-cebc4a90";
        let keys = FastOpenKeys::of_sysctl(&format!("{one}\n")).unwrap();
        let ends = ends("192.168.0.2", "10.248.0.2");
        assert_eq!(keys.cookie(ends).as_slice(), 0x00ab_aaab_e8e9_54c2_u64.to_be_bytes());
        let both = FastOpenKeys::of_sysctl(&format!("1-2-3-4,{one}")).unwrap();
        assert_eq!(both.check(ends, &keys.cookie(ends)), Verdict::Old);
        for none in ["", "00000000-00000000-00000000-00000000", "1-2-3", "1-2-x-4"] {
            assert!(FastOpenKeys::of_sysctl(none).is_none(), "{none}");
        }
        let users = [0, 33].map(|uid| both.of_user(uid));
        assert!(users[0] != users[1] && users[0] != both && users[1] == both.of_user(33));
        assert_eq!(users[1].check(ends, &keys.of_user(33).cookie(ends)), Verdict::Old);
    }

    #[test]
    fn a_cookie_is_good_for_its_ends_and_old_after_one_change_of_keys() {
        let keys = FastOpenKeys::new([1; 16], None);
        for (local, remote, other) in
            [("10.0.0.1", "10.0.0.2", "10.0.0.3"), ("fd00::1", "fd00::2", "fd00::3")]
        {
            let cookie = keys.cookie(ends(local, remote));
            assert_eq!(keys.check(ends(local, remote), &cookie), Verdict::Good);
            assert_eq!(keys.check(ends(local, other), &cookie), Verdict::Bad);
            assert_eq!(keys.check(ends(other, remote), &cookie), Verdict::Bad);
            let once = keys.rotated([2; 16]);
            assert_eq!(once.check(ends(local, remote), &cookie), Verdict::Old);
            let twice = once.rotated([3; 16]);
            assert_eq!(twice.check(ends(local, remote), &cookie), Verdict::Bad);
        }
    }
}
